"""Steps over all ranks: first start to last end, completeness, and the finisher where the clocks can tell."""

from crossrank.analysis.steps import find_steps
from crossrank.reconstruct.topology import infer_topology
from tests.support.timelines import timeline_of


def table_of(*rows, bound_ns=0, world_size=None):
    timeline = timeline_of(*rows, bound_ns=bound_ns)
    posted = {"world_size": world_size} if world_size else None
    return find_steps(timeline, infer_topology(timeline.trace, timeline.matches, posted))


def step(rank, number, at, **more):
    return {"rank": rank, "kind": "step", "step": number, "at": at, **more}


def test_a_step_goes_from_the_first_start_to_the_last_end():
    table = table_of(step(0, 0, (0, 90)), step(1, 0, (5, 100)), step(0, 1, (90, 190)), step(1, 1, (100, 180)))
    assert table.step.tolist() == [0, 1]
    assert table.start_ns.tolist() == [0, 90]
    assert table.end_ns.tolist() == [100, 190]
    assert table.ranks.tolist() == [2, 2]
    assert table.complete.tolist() == [True, True]
    assert [table.last_rank_of(i) for i in range(2)] == [1, 0]
    assert table.row_of(1) == 1
    assert table.row_of(2) is None


def test_the_finisher_is_unknown_within_the_clock_bound_and_in_a_tie():
    rows = (step(0, 0, (0, 90)), step(1, 0, (0, 100)))
    assert table_of(*rows, bound_ns=9).last_rank_of(0) == 1
    assert table_of(*rows, bound_ns=10).last_rank_of(0) is None
    assert table_of(step(0, 0, (0, 90)), step(1, 0, (0, 90))).last_rank_of(0) is None
    one_clock = [{**row, "clock": "c"} for row in rows]
    assert table_of(*one_clock, bound_ns=10).last_rank_of(0) == 1


def test_open_steps_and_missing_ranks_are_not_complete():
    table = table_of(step(0, 0, (0, 90)), step(1, 0, (0, None)), {"rank": 1, "step": 0, "at": (5, 120)})
    assert table.complete.tolist() == [False]
    assert table.closed.tolist() == [False]
    assert table.rank_closed.tolist() == [True, False]
    assert table.end_ns.tolist() == [120]
    assert table.last_rank_of(0) is None
    table = table_of(step(0, 0, (0, 90)), step(1, 0, (0, 100)), world_size=3)
    assert table.complete.tolist() == [False]
    assert table.closed.tolist() == [True]


def test_without_step_spans_a_step_lasts_as_long_as_its_events():
    table = table_of(
        {"rank": 0, "step": 3, "at": (10, 20)},
        {"rank": 0, "step": 3, "at": (30, 50)},
        {"rank": 0, "step": 3, "at": (70, 70), "kind": "metric"},
        {"rank": 1, "at": (0, 500)},
    )
    assert (table.step.tolist(), table.start_ns.tolist(), table.end_ns.tolist(), table.ranks.tolist()) == ([3], [10], [50], [1])


def test_step_spans_go_before_events_that_run_over():
    table = table_of(step(0, 0, (0, 90)), {"rank": 0, "step": 0, "kind": "other", "at": (91, 700)})
    assert table.end_ns.tolist() == [90]


def test_hostile_step_numbers_and_no_steps():
    assert table_of(step(0, 2**62, (0, 1)), step(0, 0, (2, 3))).step.tolist() == [0, 2**62]
    assert len(table_of({"at": (0, 1)})) == 0
    assert len(table_of()) == 0
