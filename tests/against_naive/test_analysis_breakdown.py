"""What ranks did with their steps: against painting every nanosecond, and on shapes known by hand."""

from hypothesis import given
from hypothesis import strategies as st

from crossrank.analysis.breakdown import CATEGORIES, breakdown
from crossrank.analysis.steps import find_steps
from crossrank.reconstruct.topology import infer_topology
from tests.support.events import collective, message
from tests.support.naive_breakdown import paint
from tests.support.random_jobs import random_rows
from tests.support.timelines import timeline_of

KINDS = st.sampled_from(["compute", "data", "copy", "checkpoint", "sync", "idle", "other"])
span = st.tuples(st.integers(0, 1), st.integers(0, 2), KINDS, st.integers(0, 60), st.integers(0, 25))


def parts_of(*rows):
    timeline = timeline_of(*rows)
    steps = find_steps(timeline, infer_topology(timeline.trace, timeline.matches, None))
    return timeline, steps, breakdown(timeline, steps)


def named(parts, row=0):
    return {c: int(n) for c, n in zip(CATEGORIES, parts.time_ns[row], strict=True) if n}


def step(rank, at, number=0):
    return {"rank": rank, "kind": "step", "step": number, "at": at}


@given(st.integers(0, 10**6), st.lists(span, max_size=8), st.integers(20, 60))
def test_equals_painting_and_sums_to_the_step(seed, spans, seam):
    rows = [{"rank": r, "lane": ("main", "comm", "io")[lane], "kind": kind, "at": (at, at + n)} for r, lane, kind, at, n in spans]
    rows += random_rows(seed, ranks=2, operations=6)
    rows += [step(r, at, n) for r in (0, 1) for n, at in enumerate([(0, seam), (seam, 90)])]
    timeline, steps, parts = parts_of(*rows)
    assert (parts.time_ns.sum(axis=1) == steps.rank_end_ns - steps.rank_start_ns).all()
    for row, expected in enumerate(paint(timeline, steps)):
        assert named(parts, row) == dict(expected)


def test_waits_and_transfers_of_a_blocking_collective_inside_a_phase():
    _, _, parts = parts_of(
        step(0, (0, 100)),
        step(1, (0, 100)),
        {"rank": 0, "name": "forward", "at": (0, 90)},
        collective(0, 1, (20, 60)),
        {"rank": 1, "kind": "data", "at": (0, 50)},
        collective(1, 1, (50, 61)),
    )
    assert named(parts, 0) == {"compute": 50, "wait": 30, "transfer": 10, "unknown": 10}
    assert named(parts, 1) == {"data": 50, "transfer": 11, "unknown": 39}


def test_communication_beside_compute_is_overlapped_not_exposed():
    _, _, parts = parts_of(
        step(0, (0, 100)),
        {"name": "backward", "at": (0, 60)},
        collective(0, 1, (20, 80), lane="comm"),
        collective(1, 1, (10, 80)),
    )
    assert named(parts, 0) == {"compute": 60, "transfer": 20, "unknown": 20}
    assert parts.overlapped_ns.tolist() == [40]
    assert parts.of("transfer").tolist() == [20]


def test_a_wait_for_what_is_in_flight_is_communication_and_any_other_is_sync():
    _, _, parts = parts_of(
        step(0, (0, 100)),
        message("send", 0, 1, 1, (0, 40)),
        {"name": "forward", "at": (5, 20)},
        {"kind": "sync", "name": "wait_sends", "at": (20, 39)},
        {"kind": "sync", "name": "device", "at": (50, 70)},
    )
    assert named(parts, 0) == {"compute": 15, "transfer": 25, "sync": 20, "unknown": 40}


def test_an_operation_that_never_ends_waits_until_the_end_of_what_is_known():
    _, _, parts = parts_of(step(0, (0, None)), collective(0, 1, (10, None)), step(1, (0, 70)))
    assert named(parts, 0) == {"unknown": 10}
    _, _, parts = parts_of(
        step(0, (0, None)), collective(0, 1, (10, None)), {"rank": 0, "at": (70, 75), "lane": "x"}, step(1, (0, 70))
    )
    assert named(parts, 0) == {"unknown": 10, "wait": 60, "compute": 5}


def test_no_steps_no_rows():
    assert parts_of({"at": (0, 1)})[2].time_ns.shape == (0, len(CATEGORIES))
    assert parts_of()[2].time_ns.shape == (0, len(CATEGORIES))
