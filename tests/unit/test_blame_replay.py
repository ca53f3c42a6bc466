"""Own work, releases and the replay, on jobs small enough to follow by hand (times in ns)."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.analysis.lane_work import lane_work, own_ns
from crossrank.analysis.replay import build_replay, end_of_steps_ns, replay_ns
from crossrank.model.clockmap import identity_map
from crossrank.model.timeline import Timeline
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.reconstruct.steps import assign_steps
from tests.support.events import collective, message, trace_of


def timeline(*rows: dict[str, Any]) -> Timeline:
    trace = trace_of(*rows)
    matches = match(trace)
    clocks = identity_map(len(trace.domains))
    return Timeline(trace, matches, replay(trace, matches), clocks, trace.start_ns, trace.end_ns, assign_steps(trace))


def work(rank: int, at: tuple[int, int], name: str = "forward", **more: Any) -> dict[str, Any]:
    return {"rank": rank, "kind": "compute", "name": name, "at": at, "step": 0, **more}


def own_by_name(t: Timeline) -> dict[tuple[int, str], int]:
    own = own_ns(lane_work(t))
    out: dict[tuple[int, str], int] = {}
    for i in range(len(t.trace)):
        key = (int(t.trace.rank[i]), t.trace.names[t.trace.name[i]])
        out[key] = out.get(key, 0) + int(own[i])
    return out


def test_blocking_communication_is_not_the_work_of_the_span_around_it():
    t = timeline(work(0, (0, 100)), collective(0, 1, (40, 90)), work(1, (0, 100)), collective(1, 1, (80, 92)))
    graph = build_replay(t)
    own = {(int(t.trace.rank[i]), t.trace.names[t.trace.name[i]]): int(graph.own_ns[i]) for i in range(len(t.trace))}
    assert own[0, "forward"] == 40 + 10
    assert own[1, "forward"] == 80 + 8
    assert own[0, "all_reduce"] == own[1, "all_reduce"] == 0


def test_an_overlapped_operation_leaves_the_work_around_it_alone():
    # backward [0, 100] launches two bucket all-reduces; the first completes while it goes on computing, the second at its end.
    t = timeline(
        work(0, (0, 100), "backward"), collective(0, 1, (20, 80)), collective(0, 2, (70, 95)),
        work(1, (0, 100), "backward"), collective(1, 1, (20, 80)), collective(1, 2, (70, 95)),
    )  # fmt: skip
    assert own_by_name(t)[0, "backward"] == 20 + 50 + 5


def test_a_send_that_blocks_the_program_owns_its_time():
    t = timeline(
        {"rank": 0, "kind": "step", "name": "step", "at": (0, 200), "step": 0},
        message("send", 0, 1, 1, (10, 82), step=0),
        work(0, (80, 150)),
        message("recv", 1, 0, 1, (0, 90), step=0),
    )
    assert own_by_name(t)[0, "send"] == 70


def test_unchanged_replay_is_the_recording():
    t = timeline(
        work(0, (0, 30)), message("send", 0, 1, 1, (30, 31)), work(0, (35, 60)), collective(0, 1, (60, 100)),
        message("recv", 1, 0, 1, (5, 40)), work(1, (41, 90)), collective(1, 1, (90, 101)), work(1, (101, 130)),
    )  # fmt: skip
    graph = build_replay(t)
    assert np.array_equal(replay_ns(graph)[graph.order], graph.recorded_ns[graph.order])


def test_cost_stops_at_the_next_slowest_rank():
    # Rank 1 computes 90, rank 0 60: taking 50 from rank 1 shortens the job by 30 only.
    t = timeline(work(0, (0, 60)), collective(0, 1, (60, 95)), work(1, (0, 90)), collective(1, 1, (90, 95)))
    graph = build_replay(t)
    removed = np.zeros(2 * len(t.trace), dtype=np.int64)
    forward = int(np.flatnonzero((t.trace.rank == 1) & (t.trace.kind == 1))[0])
    removed[2 * forward + 1] = 50
    fixed = replay_ns(graph, removed)
    assert end_of_steps_ns(graph, graph.recorded_ns) - end_of_steps_ns(graph, fixed) == 30


def test_a_wait_ends_as_what_it_waits_for():
    # A bucket runs beside the program; `wait` returns when it is done. Rank 1 arrives late at the bucket.
    rows = []
    for rank, arrival in ((0, 20), (1, 400_000)):
        rows += [
            work(rank, (0, arrival)),
            collective(rank, 1, (arrival, 500_000)),
            work(rank, (arrival + 10, arrival + 60), "more"),
            {"rank": rank, "kind": "sync", "name": "wait", "at": (arrival + 60, 499_990), "step": 0},
            work(rank, (500_100, 500_200), "optimizer"),
        ]
    t = timeline(*rows)
    graph = build_replay(t)
    assert np.array_equal(replay_ns(graph)[graph.order], graph.recorded_ns[graph.order])
    removed = np.zeros(2 * len(t.trace), dtype=np.int64)
    late = int(np.flatnonzero((t.trace.rank == 1) & (t.trace.name == t.trace.names.index("forward")))[0])
    removed[2 * late + 1] = 300_000
    assert end_of_steps_ns(graph, graph.recorded_ns) - end_of_steps_ns(graph, replay_ns(graph, removed)) == 300_000


def test_a_launch_from_another_lane_follows_the_work_there():
    rows = []
    for rank in (0, 1):
        rows += [
            work(rank, (0, 1_000_000), "backward"),
            collective(rank, 1, (600_000, 1_400_000), lane="comm"),
            {"rank": rank, "kind": "sync", "name": "wait", "at": (1_000_000, 1_400_000), "step": 0},
        ]
    t = timeline(*rows)
    graph = build_replay(t)
    removed = np.zeros(2 * len(t.trace), dtype=np.int64)
    for i in np.flatnonzero(t.trace.name == t.trace.names.index("backward")).tolist():
        removed[2 * i + 1] = 500_000
    # Half of the work before the launch goes, so the bucket starts and ends 300 us earlier.
    assert replay_ns(graph, removed).max() == 1_100_000
