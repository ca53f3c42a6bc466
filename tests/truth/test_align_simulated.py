from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crossrank.align.fit import fit_clocks
from crossrank.align.repair import repair
from crossrank.align.violations import count_violations
from crossrank.reconstruct.order import replay
from crossrank.simulate.config import ClockConfig, JobConfig
from tests.support.clock_truth import KnownTrace, error_ns, mapped, share_of_bound, simulated, without_common

CLOCKS = ClockConfig(drift_ppm=50.0)
BASE = JobConfig(dp=4, tp=8, pp=2, steps=60, clocks=CLOCKS)
STEPPED = replace(BASE, clocks=replace(CLOCKS, step_fraction=0.25, step_ns=(300_000, 30_000_000)))


def errors_us(known: KnownTrace):
    clocks = fit_clocks(known.trace, known.matches)
    start, end = mapped(known, clocks)
    return clocks, np.abs(without_common(known, *error_ns(known, start, end, int(clocks.reference[0])))) / 1e3


@pytest.mark.parametrize("seed", [101, 102])
def test_all_stamps_of_64_ranks_are_right_to_a_microsecond(seed):
    known = simulated(BASE, seed)
    clocks, error = errors_us(known)
    assert np.median(error) <= 0.3
    assert np.quantile(error, 0.99) <= 1.2
    assert error.max() <= 3.0
    assert share_of_bound(known, clocks) <= 1.0
    assert clocks.pairs.between_ns.max() < 700_000  # stages are joined by messages that take half a millisecond
    assert not any(clocks.steps)


def test_heavy_tails_cost_little():
    noisy = replace(BASE, jitter_median_ns=50_000, jitter_sigma=1.0, tail_probability=0.1, tail_ns=2_000_000)
    known = simulated(noisy, 103)
    clocks, error = errors_us(known)
    assert np.median(error) <= 0.8
    assert np.quantile(error, 0.99) <= 4.0
    assert share_of_bound(known, clocks) <= 1.0


@pytest.mark.parametrize("seed", [104, 105, 106])
def test_clock_steps_are_found_and_sized(seed):
    known = simulated(STEPPED, seed)
    clocks, error = errors_us(known)
    found = {d: steps for d, steps in enumerate(clocks.steps) if steps}
    assert set(found) == set(known.steps)
    for d, (_, size) in known.steps.items():
        assert len(found[d]) == 1
        assert abs(found[d][0].size_ns - size) <= 10_000
    assert np.median(error) <= 0.3
    assert np.quantile(error, 0.99) <= 1.2
    assert share_of_bound(known, clocks) <= 1.0


def test_a_step_forward_puts_every_stamp_into_the_right_epoch():
    for seed in range(107, 109):
        known = simulated(STEPPED, seed)
        forward = [d for d, (_, size) in known.steps.items() if size > 0]
        clocks = fit_clocks(known.trace, known.matches)
        for d in forward:
            own = known.trace.domain == d
            for local, true in ((known.trace.start_ns, known.true_start_ns), (known.trace.end_ns, known.true_end_ns)):
                later = local[own] >= clocks.steps[d][0].t_ns
                assert (later == (true[own] >= known.steps[d][0])).all()


def test_slews_are_followed_and_within_bounds():
    slewing = replace(BASE, clocks=replace(CLOCKS, offset_ns=5_000_000_000, slew_fraction=0.13))
    known = simulated(slewing, 113)
    clocks, error = errors_us(known)
    assert np.quantile(error, 0.99) <= 3.0
    assert error.max() <= 40.0
    assert share_of_bound(known, clocks) <= 1.0
    assert not any(clocks.steps)


def test_nothing_is_violated_after_the_repair_and_little_before():
    known = simulated(BASE, 114)
    trace, matches = known.trace, known.matches
    clocks = fit_clocks(trace, matches)
    start, end = mapped(known, clocks)
    raw = count_violations(matches, trace.start_ns, trace.end_ns, trace.is_open)
    assert raw > 1000
    assert count_violations(matches, start, end, trace.is_open) <= 1e-4 * raw
    start, end = repair(trace, matches, replay(trace, matches), start, end)
    assert count_violations(matches, start, end, trace.is_open) == 0


def test_true_clocks_are_hardly_moved():
    known = simulated(replace(BASE, clocks=ClockConfig(0, 0.0, 0.0, 0.0)), 115)
    clocks = fit_clocks(known.trace, known.matches)
    start, end = mapped(known, clocks)
    assert np.abs(start - known.trace.start_ns).max() <= 3_000
    assert np.abs(end - known.trace.end_ns).max() <= 3_000
