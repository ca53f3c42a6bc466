"""Alignment against the truth: traces whose true times are known, and how far a ClockMap is from them.

The error of a stamp is (mapped time) - (what the reference clock, unstepped, showed at the stamp's true time). Only differences
between clocks can be known, so the part that all domains share at a time is taken off: it is the reference's own error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import Float64Array, Int32Array, Int64Array
from crossrank.model.clock_samples import SERVICE_CLOCK, ClockSamples
from crossrank.model.clockmap import UNALIGNED_NS, ClockMap
from crossrank.model.matches import Matches
from crossrank.model.trace import JobTrace, trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.pipeline import recorded_events

BINS = 60


@dataclass(frozen=True, slots=True)
class KnownTrace:
    """A trace, its matches, and the truth: [n] true times and what any domain's clock, without its steps, shows at a true time."""

    trace: JobTrace
    matches: Matches
    true_start_ns: Int64Array
    true_end_ns: Int64Array  # equals the start where open
    shown: Callable[[int, Int64Array], Int64Array]
    steps: Mapping[int, tuple[int, int]]  # domain -> (true time, size)


@dataclass(frozen=True, slots=True)
class RecordedClock:
    """A wrong clock to inject into a recording made with a right one."""

    offset_ns: int = 0
    drift_ppm: float = 0.0
    step_ns: int = 0
    step_at_ns: int = 0  # since the first stamp

    def show(self, since_ns: Int64Array, *, stepped: bool = True) -> Int64Array:
        """What it shows, less the true time of the first stamp."""
        drift = np.rint(since_ns * (self.drift_ppm * 1e-6)).astype(np.int64)
        step = np.where((since_ns >= self.step_at_ns) & stepped, self.step_ns, 0)
        return since_ns + self.offset_ns + drift + step

    def true_since(self, shown_ns: Int64Array) -> Int64Array:
        """The inverse of `show`, for clocks that were not stepped back."""

        def without(step_ns: int) -> Int64Array:
            return np.rint((shown_ns - self.offset_ns - step_ns).astype(np.float64) / (1.0 + self.drift_ppm * 1e-6)).astype(
                np.int64
            )

        stepped = without(self.step_ns)
        return np.where(stepped >= self.step_at_ns, stepped, without(0))


def simulated(config: JobConfig, seed: int) -> KnownTrace:
    """A simulated job with its matches and truth."""
    job = simulate(config, seed=seed)
    trace = trace_from_arrow(job.events, job=config.job, attempt=0)
    row = _rows_of(trace, job.events)
    true_start = job.true_start_ns[row]
    clocks = replace(job.clocks, step_ns=np.zeros_like(job.clocks.step_ns))
    hosts = [int(np.flatnonzero(trace.domain == d)[0]) for d in range(len(trace.domains))]
    host_number = [int(trace.rank[i]) // config.ranks_per_host for i in hosts]

    def shown(domain: int, true_ns: Int64Array) -> Int64Array:
        return clocks.read(np.full(len(true_ns), host_number[domain], np.int32), true_ns - config.start_ns)

    steps = {
        d: (config.start_ns + int(job.clocks.step_at_ns[h]), int(job.clocks.step_ns[h]))
        for d, h in enumerate(host_number)
        if job.clocks.step_ns[h]
    }
    true_end = np.where(trace.is_open, true_start, job.true_end_ns[row])
    return KnownTrace(trace, match(trace), true_start, true_end, shown, steps)


def recorded(scenario: Path, clocks: Mapping[str, RecordedClock]) -> KnownTrace:
    """A recording made with one right clock, as hosts with these wrong ones would have stamped it."""
    events = recorded_events(scenario)
    start = events.column("start_ns").to_numpy()
    end = events.column("end_ns").fill_null(0).to_numpy()
    hosts = np.array(events.column("host").to_pylist())
    zero = int(start.min())
    wrong_start, wrong_end = start.copy(), end.copy()
    for host, clock in clocks.items():
        here = hosts == host
        wrong_start[here] = zero + clock.show(start[here] - zero)
        wrong_end[here] = zero + clock.show(end[here] - zero)
    is_open = pc.is_null(events.column("end_ns")).to_numpy()
    for name, values, mask in (("start_ns", wrong_start, None), ("end_ns", wrong_end, is_open)):
        events = events.set_column(events.schema.get_field_index(name), events.schema.field(name), pa.array(values, mask=mask))
    trace = trace_from_arrow(events, job="recorded", attempt=0)
    row = _rows_of(trace, events)

    def shown(domain: int, true_ns: Int64Array) -> Int64Array:
        return zero + clocks.get(trace.domains[domain], RecordedClock()).show(true_ns - zero, stepped=False)

    steps = {
        d: (zero + c.step_at_ns, c.step_ns)
        for d, c in ((d, clocks.get(name, RecordedClock())) for d, name in enumerate(trace.domains))
        if c.step_ns
    }
    return KnownTrace(trace, match(trace), start[row], np.where(trace.is_open, start[row], end[row]), shown, steps)


def recorded_skewed(scenario: Path) -> KnownTrace:
    """A recording whose stamps were made wrong when it was made, as its skew_truth.json tells."""
    told = json.loads((scenario / "skew_truth.json").read_text())
    zero = int(told["T_ref_ns"])
    trace = trace_from_arrow(recorded_events(scenario), job="recorded", attempt=0)
    clocks = [_told_clock(told["hosts"][name], zero) for name in trace.domains]
    true_start, true_end = trace.start_ns.copy(), trace.end_ns.copy()
    for d, clock in enumerate(clocks):
        own = trace.domain == d
        true_start[own] = zero + clock.true_since(trace.start_ns[own] - zero)
        true_end[own] = zero + clock.true_since(trace.end_ns[own] - zero)

    def shown(domain: int, true_ns: Int64Array) -> Int64Array:
        return zero + clocks[domain].show(true_ns - zero, stepped=False)

    steps = {d: (zero + c.step_at_ns, c.step_ns) for d, c in enumerate(clocks) if c.step_ns}
    return KnownTrace(trace, match(trace), true_start, true_end, shown, steps)


def _told_clock(host: Mapping[str, Any], zero: int) -> RecordedClock:
    at = host["ntp_step_at_true_ns"]
    return RecordedClock(host["offset_ns"], host["drift_ppm"], host["ntp_step_ns"], 0 if at is None else int(at) - zero)


def with_samples(known: KnownTrace, *, every_ns: int, seed: int) -> KnownTrace:
    """The same with clock samples of every domain: each way takes 30 us and a tail of 20 us, one in ten is held up by 1 ms more."""
    trace, rng = known.trace, np.random.default_rng(seed)
    first, last = int(known.true_start_ns.min()), int(known.true_end_ns.max())
    columns: list[list[Int64Array]] = []
    for d in range(len(trace.domains)):
        sent = np.arange(first + int(rng.integers(every_ns)), last, every_ns, dtype=np.int64)
        forth, back = (
            np.rint(
                30e3 + rng.exponential(20e3, len(sent)) + (rng.random(len(sent)) < 0.1) * rng.exponential(1e6, len(sent))
            ).astype(np.int64)
            for _ in range(2)
        )
        received, replied = sent + forth, sent + forth + 5_000
        at, size = known.steps.get(d, (last, 0))
        shown = [known.shown(d, t) + np.where(t >= at, size, 0) for t in (sent, replied + back)]
        columns.append([np.full(len(sent), d, np.int64), shown[0], received + 123_456_789, replied + 123_456_789, shown[1]])
    domain, sent, received, replied, got = (np.concatenate(c) for c in zip(*columns, strict=True))
    samples = ClockSamples(len(trace.domains), domain.astype(np.int32), sent, received, replied, got)
    with_service = replace(trace, samples=samples, domains=(*trace.domains, SERVICE_CLOCK), domain_host=(*trace.domain_host, ""))
    return replace(known, trace=with_service)


def error_ns(known: KnownTrace, start_ns: Int64Array, end_ns: Int64Array, reference: int) -> tuple[Int64Array, Int64Array]:
    """Error of the start and end of each span of mapped times, against the reference's clock."""
    return (
        start_ns - known.shown(reference, known.true_start_ns),
        np.where(known.trace.is_open, 0, end_ns - known.shown(reference, known.true_end_ns)),
    )


def without_common(known: KnownTrace, start_error: Int64Array, end_error: Int64Array) -> Float64Array:
    """Errors of all stamps, ns, without the median over domains of their medians, as a function of time."""
    trace = known.trace
    error = np.concatenate((start_error, end_error[~trace.is_open])).astype(np.float64)
    time = np.concatenate((known.true_start_ns, known.true_end_ns[~trace.is_open]))
    domain = np.concatenate((trace.domain, trace.domain[~trace.is_open]))
    at = (time - time.min()) / max(int(time.max() - time.min()), 1) * BINS
    middle, common = [], []
    for b in range(BINS):
        here = (at >= b) & (at < b + 1)
        if here.any():
            middle.append(float(at[here].mean()))
            common.append(float(np.median([np.median(error[here & (domain == d)]) for d in np.unique(domain[here])])))
    return error - np.interp(at, middle, common)


def mapped(known: KnownTrace, clocks: ClockMap) -> tuple[Int64Array, Int64Array]:
    """Starts and ends by the clock map alone."""
    trace = known.trace
    start = clocks.to_reference(trace.domain, trace.start_ns)
    return start, np.where(trace.is_open, start, clocks.to_reference(trace.domain, trace.end_ns))


def share_of_bound(known: KnownTrace, clocks: ClockMap) -> float:
    """The largest |error of (time in a - time in b)| over its guaranteed bound, over all pairs and stamps at about one time."""
    start, end = mapped(known, clocks)
    trace, domains = known.trace, len(known.trace.domains)
    worst = 0.0
    for c, reference in enumerate(clocks.reference.tolist()):
        inside = clocks.component[trace.domain] == c
        starts, ends = error_ns(known, start, end, reference)
        error, time = (
            np.concatenate((starts[inside], ends[inside])),
            np.concatenate((known.true_start_ns[inside], known.true_end_ns[inside])),
        )
        domain = np.concatenate((trace.domain[inside], trace.domain[inside]))
        at = np.minimum((time - time.min()) * 200 // max(int(time.max() - time.min()), 1), 199)
        low = np.full((200, domains), np.iinfo(np.int64).max // 4)
        high = -low
        np.minimum.at(low, (at, domain), error)
        np.maximum.at(high, (at, domain), error)
        seen = high >= low
        apart = np.where(seen[:, :, None] & seen[:, None, :], high[:, :, None] - low[:, None, :], 0).max(axis=0)
        assert clocks.pairs.between_ns is not None
        bound = np.where(clocks.pairs.between_ns < UNALIGNED_NS, np.maximum(clocks.pairs.between_ns, 1), UNALIGNED_NS)
        np.fill_diagonal(apart, 0)
        worst = max(worst, float((apart / bound).max()))
    return worst


def _rows_of(trace: JobTrace, events: pa.Table) -> Int64Array:
    """Row of `events` of each span of the trace made from them."""
    ids = np.frombuffer(b"".join(events.column("span_id").to_pylist()), dtype=">i8").astype(np.int64)
    rank: Int32Array = events.column("rank").to_numpy()
    by_id = {(r, i): k for k, (r, i) in enumerate(zip(rank.tolist(), ids.tolist(), strict=True))}
    return np.array([by_id[key] for key in zip(trace.rank.tolist(), trace.span_id.tolist(), strict=True)], dtype=np.int64)
