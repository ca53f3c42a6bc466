"""A trace and a dump of the same rank: every operation once, with what both know; kept apart where that is not sure."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crossrank.analysis.waits import collective_times
from crossrank.model.kinds import COLLECTIVE, MARK, RECV, SEND
from crossrank.model.trace import JobTrace, trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.reconstruct.recordings import join_recordings
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess
from tests.support.pipeline import timeline_of
from tests.support.two_formats import COMM, dump_file, imported, rows_by_rank, trace_file

GLOO = (
    "healthy_3d_w8", pytest.param("slow_rank_3d_w8", marks=pytest.mark.long), "slow_loader_ddp_w4", "hang_ddp_w4", "desync_skip_ddp_w4",
    "desync_size_alldumps_w4",
)  # fmt: skip


@cache
def run(seed: int = 3) -> dict[int, list[dict[str, Any]]]:
    config = JobConfig(job="both", dp=2, tp=2, pp=2, steps=5, microbatches=2, layers=1, buckets=2, ranks_per_host=2)
    return rows_by_rank(simulate(config, seed=seed).events)


def both(ranks: dict[int, list[dict[str, Any]]], *, without_dump: int | None = None, **options: Any) -> pa.Table:
    how = {k: options.pop(k) for k in ("seq", "calls", "groups") if k in options}
    files = [("kineto", trace_file(rows, r, **how), r) for r, rows in ranks.items()]
    files += [("flight_recorder", dump_file(rows, **options), r) for r, rows in ranks.items() if r != without_dump]
    return imported(files)


def instances(trace: JobTrace) -> set[tuple[Any, ...]]:
    """(group, members, seq, (rank, start, end) of every member) of all matched collectives."""
    coll = match(trace).collectives
    found = set()
    for k in range(len(coll)):
        m = coll.member[coll.ptr[k] : coll.ptr[k + 1]]
        times = tuple(zip(trace.rank[m].tolist(), trace.start_ns[m].tolist(), trace.end_ns[m].tolist(), strict=True))
        found.add((trace.groups[coll.group[k]], trace.group_ranks[coll.group[k]], int(coll.seq[k]), times))
    return found


def truth(ranks: dict[int, list[dict[str, Any]]]) -> set[tuple[Any, ...]]:
    members: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for rank, rows in ranks.items():
        for row in rows:
            if row["kind"] == "collective":
                key = row["group"], tuple(row["group_ranks"]), row["seq"]
                members.setdefault(key, []).append((rank, row["start_ns"], row["end_ns"]))
    return {(*key, tuple(sorted(times))) for key, times in members.items()}


def communications(ranks: dict[int, list[dict[str, Any]]]) -> int:
    return sum(row["kind"] in COMM for rows in ranks.values() for row in rows)


def joined(events: pa.Table):
    return join_recordings(trace_from_arrow(events, job="both", attempt=0))


@pytest.mark.parametrize("how", [{}, {"seq": True}, {"completed": True}, {"calls": False, "seq": True}], ids=str)
def test_every_operation_is_there_once_with_the_number_of_one_and_the_times_of_the_other(how: dict[str, Any]):
    found = joined(both(run(), **how))
    assert found.counts == {"joined": communications(run())}
    assert instances(found.trace) == truth(run())
    matches = match(found.trace)
    assert matches.unmatched == {}
    sends = sum(row["kind"] == "send" for rows in run().values() for row in rows)
    assert len(matches.messages) == sends > 0


def test_waits_are_those_of_the_trace_alone():
    with_dump, alone = both(run()), imported(("kineto", trace_file(rows, r, seq=True), r) for r, rows in run().items())
    waits = [collective_times(timeline_of(events, job="both")).wait_ns for events in (with_dump, alone)]
    assert waits[0].tolist() == waits[1].tolist()


def test_the_entry_stays_as_a_mark_and_lends_its_clock_to_nobody():
    found = joined(both(run()))
    recorded = np.array([lane == "flight_recorder" for lane in found.trace.lanes])[found.trace.lane]
    assert (found.trace.kind[recorded] == MARK).all()
    assert not np.isin(found.trace.kind[recorded], (COLLECTIVE, SEND, RECV)).any()


def test_a_ring_buffer_that_starts_late_joins_what_it_holds():
    found = joined(both(run(), last=20))
    assert found.counts["joined"] == 20 * len(run())
    assert found.counts["join_unrecorded"] == communications(run()) - 20 * len(run())


def test_a_rank_without_a_dump_gets_the_numbers_of_its_peers():
    found = joined(both(run(), without_dump=5))
    assert instances(found.trace) == truth(run())


def test_ranks_without_a_trace_are_known_from_their_dumps_and_bind_nobody():
    files = [("kineto", trace_file(run()[r], r), r) for r in (0, 1, 2, 3)]
    files += [("flight_recorder", dump_file(rows), r) for r, rows in run().items()]
    timeline = timeline_of(imported(files), job="both")
    coll, times = timeline.matches.collectives, collective_times(timeline)
    recorded = np.array([lane == "flight_recorder" for lane in timeline.trace.lanes])[timeline.trace.lane[coll.member]]
    share = np.add.reduceat(recorded, coll.ptr[:-1]) / np.diff(coll.ptr)
    mixed = (share > 0) & (share < 1)
    assert timeline.matches.unmatched["mixed_records"] == mixed.sum() > 0
    assert not coll.synchronising[mixed].any()
    assert not times.decided[mixed].any()


def regular(count: int = 12, period: int = 1_000_000) -> dict[int, list[dict[str, Any]]]:
    """The same operation again and again."""
    common = {"kind": "collective", "op": "all_reduce", "group": "g", "group_ranks": [0, 1], "bytes": 64, "lane": "s", "peer": None}
    at = 1_770_000_000_000_000_000
    return {
        r: [
            common | {"rank": r, "seq": i + 1, "start_ns": at + i * period, "end_ns": at + i * period + 900_000}
            for i in range(count)
        ]
        for r in (0, 1)
    }


def test_a_host_that_ran_ahead_of_a_regular_device_is_not_guessed_at():
    """The nearest entry is the wrong one: only the completion, the call or the number could tell."""
    ahead = {"ahead_ns": 2_100_000, "calls": False}
    found = joined(both(regular(), **ahead))
    assert found.counts == {"join_unsure": 24}
    assert joined(both(regular(), **ahead, seq=True)).counts == {"joined": 24}


def test_operations_that_are_not_alike_stay_two():
    other = regular()
    for rows in other.values():
        rows[3] = rows[3] | {"op": "all_gather"}
    files = [("kineto", trace_file(rows, r, seq=True), r) for r, rows in regular().items()]
    files += [("flight_recorder", dump_file(rows), r) for r, rows in other.items()]
    found = joined(imported(files))
    assert found.counts == {"join_contradicts": 2, "joined": 22}


def test_spans_that_name_no_group_join_only_where_one_group_can_be_meant():
    """Of two groups' equal operations that wait at once nobody knows which ran first."""
    rows = regular()[0]
    crowded = [row | {"group": "gh"[i % 2], "seq": i // 2 + 1} for i, row in enumerate(rows)]
    trace = ("kineto", trace_file(crowded, 0, groups=False), 0)
    sure = joined(imported([trace, ("flight_recorder", dump_file(crowded), 0)]))
    assert sure.counts == {"joined": 12}
    burst = [row | {"start_ns": row["start_ns"] - (i % 2) * 970_000} for i, row in enumerate(crowded)]
    unsure = joined(imported([trace, ("flight_recorder", dump_file(burst), 0)]))
    assert unsure.counts == {"join_order": 12}


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 10))])
def test_the_join_does_not_depend_on_the_order_of_the_events(seed: int):
    events = both(run(seed))
    shuffled = events.take(pa.array(np.random.default_rng(seed).permutation(len(events))))
    a, b = joined(events), joined(shuffled)
    assert a.counts == b.counts == {"joined": communications(run(seed))}
    assert instances(a.trace) == instances(b.trace) == truth(run(seed))


@pytest.mark.parametrize("scenario", GLOO)
def test_recorded_traces_and_dumps_of_one_run(recordings: Path, scenario: str):
    folder = recordings / "gloo" / scenario
    if not (folder / "kineto").is_dir():
        pytest.skip("not in the committed sample")
    files = [("kineto", f, int(f.name[4])) for f in sorted((folder / "kineto").iterdir())]
    files += [("flight_recorder", f, int(f.name[4])) for f in sorted((folder / "fr_json").iterdir())]
    found = joined(imported((kind, f.read_bytes(), r) for kind, f, r in files))
    trace = found.trace
    dumped = {r for kind, _, r in files if kind == "flight_recorder"}
    traced = (trace.kind == COLLECTIVE) & np.isin(trace.rank, sorted(dumped))
    traced &= ~np.array([lane == "flight_recorder" for lane in trace.lanes])[trace.lane]
    assert found.counts == {"joined": int(traced.sum())}
    assert trace.has_seq[traced].all()
    assert (trace.group[traced] >= 0).all()
    unmatched = match(trace).unmatched
    assert not {"doubled", "by_order", "mixed_records", "no_group"} & unmatched.keys(), unmatched
    assert trace.domains == ("vm",)


def test_imported_into_a_service_nothing_is_counted_twice(tmp_path: Path):
    with InProcess(tmp_path / "data") as service:
        for rank, rows in run().items():
            for format_, body in (("kineto", trace_file(rows, rank)), ("flight_recorder", dump_file(rows))):
                service.post("/v1/import", body, "application/octet-stream", format=format_, job="both", rank=rank)
        service.derive("both")
        summary = service.get("/v1/jobs/both")
        entries = service.get("/v1/jobs/both/events", kind="collective", limit=1000)["events"]
        found = service.get("/v1/jobs/both/collectives", limit=10_000)["collectives"]
    assert summary["joins"] == {"joined": communications(run())}
    assert summary["unmatched"] == {}
    assert len(found) == len(truth(run()))
    assert all(c["missing"] == [] for c in found)
    recorded = [e for e in entries if e["lane"] == "flight_recorder"]
    assert recorded
    assert all(e["bound_ns"] is not None and e["aligned_start_ns"] for e in recorded)


def test_the_answers_say_what_was_kept_apart(tmp_path: Path):
    with InProcess(tmp_path / "data") as service:
        for rank, rows in regular().items():
            for format_, body in (
                ("kineto", trace_file(rows, rank, calls=False)),
                ("flight_recorder", dump_file(rows, ahead_ns=2_100_000)),
            ):
                service.post("/v1/import", body, "application/octet-stream", format=format_, job="both", rank=rank)
        service.derive("both")
        assert service.get("/v1/jobs/both")["joins"] == {"join_unsure": 24}
