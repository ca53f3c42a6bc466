"""The clock fit of a long job, window by window, against the truth and against the fit of the whole."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from crossrank.align import settled
from crossrank.align.fit import fit_clocks
from crossrank.align.moved import TOLERANCE_NS, moved
from crossrank.align.stream import Carried, fit_on
from crossrank.model.clockmap import ClockMap
from crossrank.model.trace import JobTrace, trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.job import Simulated, simulate
from tests.support.clock_truth import error_ns, mapped, share_of_bound, simulated, without_common

STEPPED = JobConfig(
    dp=2, tp=2, pp=2, steps=340, microbatches=2, ranks_per_host=2, clocks=ClockConfig(drift_ppm=50.0, step_fraction=0.5)
)
WHOLE_NS = 15e9
SEED = 921


@pytest.fixture(scope="module")
def job() -> Simulated:
    return simulate(STEPPED, seed=SEED)


def until(job: Simulated, seconds: float) -> JobTrace:
    ended = job.true_end_ns - job.true_start_ns.min() <= seconds * 1e9
    return trace_from_arrow(job.events.filter(pa.array(ended)), job=STEPPED.job, attempt=0)


def grown(job: Simulated, moments: range) -> list[tuple[JobTrace, ClockMap, Carried | None]]:
    """The fit at each of some moments, each going on from the one before."""
    found, carried = [], None
    for seconds in moments:
        trace = until(job, seconds)
        clocks, carried = fit_on(trace, match(trace), carried, whole_ns=WHOLE_NS)
        found.append((trace, clocks, carried))
    return found


@pytest.fixture(scope="module")
def windows(job: Simulated) -> list[tuple[JobTrace, ClockMap, Carried | None]]:
    return grown(job, range(12, 40, 5))


def test_windows_are_as_right_as_the_whole_and_find_the_same_steps():
    known = simulated(STEPPED, SEED)
    whole = fit_clocks(known.trace, known.matches)
    clocks, carried = fit_on(known.trace, known.matches, None, whole_ns=WHOLE_NS)
    assert carried is not None
    assert carried.windows >= 2
    assert share_of_bound(known, clocks) <= 1.0
    errors = []
    for one in (whole, clocks):
        start, end = mapped(known, one)
        errors.append(np.abs(without_common(known, *error_ns(known, start, end, int(one.reference[0])))))
    assert known.steps
    assert [len(s) for s in clocks.steps] == [len(s) for s in whole.steps] == [int(d in known.steps) for d in range(4)]
    assert np.quantile(errors[1], 0.99) <= 1.5 * np.quantile(errors[0], 0.99)
    for d, (_, size) in known.steps.items():
        assert abs(clocks.steps[d][0].size_ns - size) <= 10_000


def test_what_is_settled_stays_and_what_moves_is_said(windows: list[tuple[JobTrace, ClockMap, Carried | None]]):
    assert windows[0][2] is None
    assert windows[-1][2] is not None
    for (earlier, before, was), (later, now, carried) in itertools.pairwise(windows):
        if was is None or carried is None:
            continue
        past = before.to_reference(earlier.domain, earlier.end_ns) < was.settled_ns
        away = np.abs(now.to_reference(earlier.domain, earlier.end_ns) - before.to_reference(earlier.domain, earlier.end_ns))[past]
        if (carried.told_level_ns == was.told_level_ns).all():
            assert away.max() == 0
        else:
            assert moved(before, earlier.domains, now, later.domains) == bool(away.max() > TOLERANCE_NS)


def test_memory_does_not_grow_with_the_job(job: Simulated, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settled, "MOST_KNOTS", 24)
    sizes = [(c.windows, c.nbytes) for _, _, c in grown(job, range(19, 40, 10)) if c is not None]
    assert sizes[-1][0] > sizes[0][0]
    # 4 clocks, a step of two: at most six epochs of 25 knots of 16 bytes beside what does not depend on the length.
    fixed = sizes[0][1]
    assert all(size <= fixed + 6 * 25 * 16 for _, size in sizes)


def test_going_on_is_near_to_doing_it_at_once(windows: list[tuple[JobTrace, ClockMap, Carried | None]]):
    trace, clocks, _ = windows[-1]
    once, _ = fit_on(trace, match(trace), None, whole_ns=WHOLE_NS)
    one, other = (m.to_reference(trace.domain, trace.end_ns) for m in (clocks, once))
    apart = (one - other).astype(np.float64)
    assert np.abs(apart - np.median(apart)).max() <= 5_000


def test_a_host_that_joins_late_begins_the_stream_anew(job: Simulated):
    late = [n for n in ("host3",) if n in until(job, 40).domains] or [until(job, 40).domains[-1]]
    hosts = np.array(job.events["clock"].to_pylist())
    since = job.true_start_ns - job.true_start_ns.min()
    kept = ~((hosts == late[0]) & (since < 20e9))
    carried = None
    for seconds in (19, 40):
        ended = job.true_end_ns - job.true_start_ns.min() <= seconds * 1e9
        trace = trace_from_arrow(job.events.filter(pa.array(kept & ended)), job=STEPPED.job, attempt=0)
        clocks, carried = fit_on(trace, match(trace), carried, whole_ns=WHOLE_NS)
        assert clocks.component.tolist() == [0] * len(trace.domains)
        assert all(np.isfinite(clocks.sigma_ns))
