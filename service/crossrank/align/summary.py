"""From intervals between clocks, window by window, to what a reader of one domain or one pair needs: the worst case."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crossrank.align.bounds import Intervals
from crossrank.align.components import Components
from crossrank.align.epochs import Epochs
from crossrank.align.problem import Fit
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.clockmap import UNALIGNED_NS, PairBounds
from crossrank.model.trace import JobTrace


@dataclass(frozen=True, slots=True)
class Activity:
    """The stretch of axis time in which each clock has stamps. first_ns, last_ns: [V]; last < first for a clock without stamps."""

    first_ns: Float64Array
    last_ns: Float64Array


@dataclass(frozen=True, slots=True)
class Bounds:
    """Guaranteed bounds of D domains, as ClockMap holds them."""

    lo_ns: Int64Array
    hi_ns: Int64Array
    pairs: PairBounds


def activity(trace: JobTrace, epochs: Epochs) -> Activity:
    """When each clock is in use: from its domain's first stamp or its own cut to the last stamp or the next cut."""
    domains = len(trace.domains)
    first, last = np.full(domains, np.iinfo(np.int64).max), np.full(domains, np.iinfo(np.int64).min)
    runs = np.flatnonzero(np.diff(trace.domain, prepend=-1))  # spans of one rank stand together: runs are few
    if len(runs):
        np.minimum.at(first, trace.domain[runs], np.minimum.reduceat(trace.start_ns, runs))
        np.maximum.at(last, trace.domain[runs], np.maximum.reduceat(trace.end_ns, runs))
    s = trace.samples
    if len(s):
        np.minimum.at(first, s.domain, s.sent_ns)
        np.maximum.at(last, s.domain, s.got_ns)
        first[s.service] = min(int(first[s.service]), int(s.received_ns.min()))
        last[s.service] = max(int(last[s.service]), int(s.replied_ns.max()))
    from_ns = np.append(first, [cut.from_ns for cut in epochs.cuts]).astype(np.int64)
    to_ns = last[epochs.domain].astype(np.int64)
    for domain in {cut.domain for cut in epochs.cuts}:
        clocks = epochs.of_domain(domain)
        for earlier, later in pairwise(clocks):
            to_ns[earlier] = from_ns[later]
    empty = from_ns > to_ns
    start, end = from_ns - epochs.base_ns, to_ns - epochs.base_ns
    return Activity(np.where(empty, 0.0, start.astype(np.float64)), np.where(empty, -1.0, end.astype(np.float64)))


def worst_bounds(between: Intervals, fit: Fit, epochs: Epochs, used: Activity, components: Components) -> Bounds:
    """The worst of all windows in which both clocks of a pair are in use; UNALIGNED_NS where nothing joins them."""
    return bounds_from(one_way_bounds(between, fit, epochs, used, components), components)


def one_way_bounds(between: Intervals, fit: Fit, epochs: Epochs, used: Activity, components: Components) -> Float64Array:
    """[D, D] how far error(b) - error(a) goes at most in any window, inf where nothing joins them."""
    clock = np.arange(len(epochs), dtype=np.int32)
    first, last = between.window_of(fit.correct(used.first_ns, clock)), between.window_of(fit.correct(used.last_ns, clock))
    window = np.arange(len(between.distance))[:, None]
    active = (window >= first) & (window <= last) & (used.last_ns >= used.first_ns)
    together = active[:, :, None] & active[:, None, :]
    worst = np.where(together, between.distance, -np.inf).max(axis=0)
    # Clocks that were never in use at the same time: their distance in any window.
    worst = np.where(together.any(axis=0), worst, between.distance.max(axis=0))
    domains = len(components.component)
    one_way = np.full((domains, domains), -np.inf)
    np.maximum.at(one_way, (epochs.domain[:, None], epochs.domain[None, :]), worst)
    doubt = np.zeros(domains)
    for cut in epochs.cuts:
        if cut.doubt_to_ns > cut.doubt_from_ns:
            doubt[cut.domain] = max(doubt[cut.domain], abs(cut.size_ns))
    same = components.component[:, None] == components.component[None, :]
    wide: Float64Array = np.where(same, one_way + doubt[:, None] + doubt[None, :] * (1.0 - np.eye(domains)), np.inf)
    return wide


def bounds_from(one_way: Float64Array, components: Components) -> Bounds:
    """Bounds as ClockMap holds them."""
    reference = components.reference[components.component]
    d = np.arange(len(reference))
    pair = _whole(np.maximum(one_way, one_way.T))
    return Bounds(
        lo_ns=-_whole(np.maximum(one_way[d, reference], 0.0)),
        hi_ns=_whole(np.maximum(one_way[reference, d], 0.0)),
        pairs=PairBounds(np.diagonal(pair).copy(), pair),
    )


def unknown_bounds(components: Components) -> Bounds:
    """Nothing is guaranteed between any two clocks; a reference agrees with itself."""
    domains = len(components.component)
    apart = np.full(domains, UNALIGNED_NS, dtype=np.int64)
    apart[components.reference] = 0
    return Bounds(lo_ns=-apart, hi_ns=apart, pairs=PairBounds(np.zeros(domains, dtype=np.int64), None))


def _whole(bound: Float64Array) -> Int64Array:
    """Rounded up, and up once more for the rounding of the mapped times."""
    limited = np.minimum(bound, float(UNALIGNED_NS))
    return np.where(limited >= float(UNALIGNED_NS), UNALIGNED_NS, np.ceil(limited).astype(np.int64) + (limited > 0.0))
