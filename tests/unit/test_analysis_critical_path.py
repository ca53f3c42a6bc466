"""The critical path on small jobs drawn by hand: who is on it, from when to when, and where it changes ranks."""

import pytest

from crossrank.analysis.critical_path import critical_path, path_index
from crossrank.analysis.steps import find_steps
from crossrank.errors import NotFound
from crossrank.reconstruct.topology import infer_topology
from tests.support.events import collective, message
from tests.support.timelines import timeline_of


def path_of(*rows, step=0, bound_ns=0):
    timeline = timeline_of(*rows, bound_ns=bound_ns)
    steps = find_steps(timeline, infer_topology(timeline.trace, timeline.matches, None))
    path = critical_path(timeline, steps, step, path_index(timeline))
    edges = [path.start_ns, *(s.end_ns for s in path.segments)]
    assert [s.start_ns for s in path.segments] == edges[:-1]
    assert edges[-1] == path.end_ns
    assert sum(s.on_path_ns for s in path.segments) == path.end_ns - path.start_ns
    return path


def shown(path):
    return [(s.rank, s.name, s.start_ns, s.end_ns) for s in path.segments]


def step(rank, number, at):
    return {"rank": rank, "kind": "step", "name": "step", "step": number, "at": at}


def work(rank, name, at, **more):
    return {"rank": rank, "name": name, "at": at, **more}


def test_a_collective_leads_to_the_rank_that_came_last():
    path = path_of(
        *(step(r, 0, (0, 100)) for r in (0, 1)),
        work(0, "forward", (0, 30)),
        work(1, "forward", (0, 70)),
        collective(0, 1, (30, 80)),
        collective(1, 1, (70, 81)),
        work(0, "optimizer", (80, 100)),
        work(1, "optimizer", (82, 95)),
        bound_ns=7,
    )
    assert shown(path) == [(1, "forward", 0, 70), (0, "all_reduce", 70, 80), (0, "optimizer", 80, 100)]
    (hop,) = path.hops
    assert (hop.from_rank, hop.to_rank, hop.at_ns, hop.edge, hop.group, hop.seq, hop.bound_ns) == (
        1,
        0,
        70,
        "collective",
        "g",
        1,
        7,
    )


def test_a_collective_inside_a_phase_splits_it():
    path = path_of(
        *(step(r, 0, (0, 100)) for r in (0, 1)),
        work(0, "forward", (0, 100)),
        work(1, "forward", (0, 40)),
        collective(0, 1, (50, 60)),
        collective(1, 1, (40, 60)),
    )
    assert shown(path) == [(0, "forward", 0, 50), (0, "all_reduce", 50, 60), (0, "forward", 60, 100)]
    assert path.hops == ()


def test_a_receive_leads_to_its_send_when_it_waited_for_it():
    path = path_of(
        *(step(r, 0, (0, 99 + r)) for r in (0, 1)),
        work(0, "forward", (0, 40)),
        message("send", 0, 1, 5, (40, 60)),
        work(1, "loader", (0, 10), kind="data"),
        message("recv", 1, 0, 5, (10, 55)),
        work(1, "forward", (55, 100)),
    )
    assert shown(path) == [(0, "forward", 0, 40), (1, "recv", 40, 55), (1, "forward", 55, 100)]
    assert [(h.edge, h.from_rank, h.to_rank, h.seq) for h in path.hops] == [("message", 0, 1, 5)]


def test_a_receive_that_came_late_is_its_own_reason():
    path = path_of(
        *(step(r, 0, (0, 99 + r)) for r in (0, 1)),
        message("send", 0, 1, 5, (0, 5)),
        work(1, "forward", (0, 50)),
        message("recv", 1, 0, 5, (50, 55)),
        work(1, "tail", (55, 100)),
    )
    assert shown(path) == [(1, "forward", 0, 50), (1, "recv", 50, 55), (1, "tail", 55, 100)]


def test_a_wait_leads_to_the_operation_it_ended_with_even_if_that_was_stamped_a_little_later():
    path = path_of(
        *(step(r, 0, (0, 1000)) for r in (0, 1)),
        collective(0, 1, (10, 903)),
        work(0, "backward", (20, 100)),
        work(0, "wait_all_reduce", (300, 900), kind="sync"),
        work(0, "optimizer", (904, 1000)),
        work(1, "backward", (0, 800)),
        collective(1, 1, (800, 902)),
    )
    assert shown(path) == [
        (1, "backward", 0, 800),
        (0, "all_reduce", 800, 900),
        (0, "step", 900, 904),
        (0, "optimizer", 904, 1000),
    ]


def test_a_wait_for_something_long_done_is_only_itself():
    path = path_of(
        *(step(r, 0, (0, 10_000_000)) for r in (0, 1)),
        collective(0, 1, (10, 50)),
        work(0, "backward", (20, 9_000_000)),
        work(0, "wait", (9_000_000, 9_000_010), kind="sync"),
        work(0, "optimizer", (9_000_010, 10_000_000)),
        collective(1, 1, (45, 49)),
    )
    assert [name for _, name, *_ in shown(path)] == ["step", "backward", "wait", "optimizer"]


def test_the_path_goes_through_several_ranks_and_into_the_work_of_the_step_before():
    path = path_of(
        step(0, 0, (0, 20)),
        step(1, 0, (0, 50)),
        step(0, 1, (20, 100)),
        step(1, 1, (50, 100)),
        work(1, "slow", (0, 49)),
        work(1, "forward", (50, 60)),
        message("send", 1, 0, 1, (60, 62)),
        message("recv", 0, 1, 1, (25, 70)),
        work(0, "tail", (70, 100)),
        step=1,
    )
    assert shown(path) == [
        (1, "slow", 20, 49),
        (1, "step", 49, 50),
        (1, "forward", 50, 60),
        (0, "recv", 60, 70),
        (0, "tail", 70, 100),
    ]


def test_what_nobody_recorded_is_shown_as_idle():
    path = path_of({"rank": 0, "step": 0, "name": "a", "at": (0, 10)}, {"rank": 1, "step": 0, "name": "b", "at": (30, 40)})
    assert shown(path) == [(1, "", 0, 30), (1, "b", 30, 40)]
    assert path.segments[0].kind == "idle"


def test_a_match_that_cannot_be_true_is_not_followed():
    rows = [step(r, 0, (0, 100)) for r in (0, 1)]
    rows += [
        collective(0, 1, (0, 10), "a"),
        collective(0, 1, (20, 30), "b"),
        collective(1, 1, (0, 10), "b"),
        collective(1, 1, (20, 30), "a"),
    ]
    path_of(*rows)


def test_steps_that_do_not_exist_or_take_no_time():
    with pytest.raises(NotFound):
        path_of(step(0, 0, (0, 10)), step=1)
    assert path_of(step(0, 0, (5, 5))).segments == ()
