"""A span's step: as sent, else that of the step span running on its rank, by its own clock."""

from crossrank.model.timeline import NO_STEP
from crossrank.reconstruct.steps import assign_steps
from tests.support.events import trace_of


def steps_by_name(*rows):
    trace = trace_of(*rows)
    return {trace.names[n]: int(s) for n, s in zip(trace.name, assign_steps(trace), strict=True)}


def test_given_steps_count_and_others_follow_the_running_step_span():
    found = steps_by_name(
        {"kind": "step", "name": "s0", "step": 0, "at": (0, 100)},
        {"kind": "step", "name": "s1", "step": 1, "at": (100, 200)},
        {"name": "said", "step": 7, "at": (10, 20)},
        {"name": "inside", "at": (10, 20), "lane": "stream"},
        {"name": "at the seam", "at": (100, 120)},
        {"name": "before", "at": (-5, 10)},
        {"name": "after", "at": (200, 210)},
        {"name": "elsewhere", "at": (10, 20), "rank": 1},
        {"name": "other clock", "at": (10, 20), "clock": "gpu"},
    )
    assert found == {
        "s0": 0,
        "s1": 1,
        "said": 7,
        "inside": 0,
        "at the seam": 1,
        "before": NO_STEP,
        "after": NO_STEP,
        "elsewhere": NO_STEP,
        "other clock": NO_STEP,
    }


def test_an_open_step_holds_all_that_follows():
    found = steps_by_name(
        {"kind": "step", "name": "s", "step": 4, "at": (0, None)},
        {"name": "late", "at": (10**12, None)},
    )
    assert found == {"s": 4, "late": 4}


def test_without_step_spans_there_are_only_the_steps_that_were_sent():
    assert steps_by_name({"name": "a", "at": (0, 1)}, {"name": "b", "at": (0, 1), "step": -3}) == {"a": NO_STEP, "b": NO_STEP}
