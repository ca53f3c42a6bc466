from __future__ import annotations

import numpy as np

from crossrank.align.fit import fit_clocks
from crossrank.align.knots import Knots
from crossrank.align.straddlers import Straddlers
from crossrank.reconstruct.match import match
from tests.support.events import collective, trace_of

EPOCH_NS = 1_780_272_000_000_000_000
LATENCY_NS = 50_000


def job_with_a_habit(*, kinds: tuple[int, ...], late_ns: int):
    """Three hosts with one true clock; in operations of 4 bytes host 0 always ends first, by `late_ns`."""
    rng = np.random.default_rng(5)
    rows = []
    for seq in range(1, 401):
        size = kinds[seq % len(kinds)]
        arrive = EPOCH_NS + seq * 10_000_000 + rng.integers(0, 3_000_000, 3)
        for rank in range(3):
            habit = late_ns if size == 4 and rank > 0 else 0
            # Now and then nothing is in the way, not even the habit.
            quick = rng.random() < 0.05
            wait = 0 if quick else habit + int(300_000 * np.exp(0.7 * rng.standard_normal()))
            end = int(arrive.max()) + LATENCY_NS + wait + int(rng.integers(0, 2_000))
            rows.append(collective(rank, seq, (int(arrive[rank]), end), bytes=size, dtype="float32"))
    return trace_of(*rows)


def worst_offset_ns(trace) -> int:
    clocks = fit_clocks(trace, match(trace))
    return int(np.abs(clocks.to_reference(trace.domain, trace.start_ns) - trace.start_ns).max())


def test_a_habit_that_kinds_of_collectives_disagree_about_is_undone_by_the_quickest():
    assert worst_offset_ns(job_with_a_habit(kinds=(4, 1 << 20), late_ns=900_000)) < 60_000


def test_where_all_kinds_agree_the_fit_stands():
    assert worst_offset_ns(job_with_a_habit(kinds=(8, 1 << 20), late_ns=0)) < 60_000


def test_a_habit_of_the_only_kind_is_covered_by_two_sigma_and_the_bias_floor():
    trace = job_with_a_habit(kinds=(4,), late_ns=300_000)
    clocks = fit_clocks(trace, match(trace))
    error = np.abs(clocks.to_reference(trace.domain, trace.start_ns) - trace.start_ns)
    worst = np.array([error[trace.domain == d].max() for d in range(3)])
    assert (worst <= 2.0 * clocks.sigma_ns + clocks.bias_floor_ns).all()


def test_intervals_around_the_right_cut_are_explained_and_no_others():
    step = 7_000_000
    rows = []
    for rank in (0, 1):
        t = EPOCH_NS
        for seq in range(60):
            work, gap = 10_000_000 + 1000 * ((seq * 7) % 5), 500_000
            jump = step if seq == 30 else 0
            rows.append({"rank": rank, "host": "h", "at": (t, t + work + jump)})
            t += work + jump + gap
    trace = trace_of(*rows)
    begins = np.unique(trace.start_ns)
    inside = (int(begins[25]), int(begins[36]))
    judged = Straddlers(trace, 0, step, inside)
    cuts = begins[26:36] - 600_000  # inside the work of steps 25 to 34
    cost = judged.cost(cuts)
    assert int(np.argmin(cost)) == 5
    assert cost[5] < -10.0
    assert (np.delete(cost, 5) > 10.0).all()


def test_finer_knots_keep_the_ends():
    knots = Knots(5.0, 100.0, 11)
    fine = knots.finer()
    assert fine.at_ns[0] == knots.at_ns[0]
    assert abs(fine.at_ns[-1] - knots.at_ns[-1]) < 1e-9
    assert fine.count == 51
