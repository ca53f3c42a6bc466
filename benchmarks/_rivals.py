"""The other ways to put the stamps of several clocks on one timeline, for comparison on the same stamps.

    NTP at start          one constant per host, known to 100 us (one sigma) when the run starts, as well-kept hosts have it
    median of ends        one constant per host from the median difference of collective ends
    pairwise OLS          a straight line per pair of hosts through the differences of ends; for messages the mean of
                          both directions, each through the quickest of every stretch (Paxson 1998)
    convex hull           the straight line per pair with the largest margin to all happened-before facts (Duda 1987)
    parent-child shift    Jaeger's adjuster: a span that does not lie inside its cause on another host is moved into it

Methods by pair compose along the spanning tree of the pairs with most facts. Every method is given the same matches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from crossrank.align.components import connect
from crossrank.align.constraints import Constraints, extract
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.clockmap import Epoch, identity_map
from tests.support.clock_truth import KnownTrace, mapped

NTP_SIGMA_NS = 100_000.0
WINDOWS = 200  # the tightest fact of each direction in so many stretches stands for all
Times = tuple[Int64Array, Int64Array]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Cross-domain facts by pair low < high: how far `high` is ahead lies between `least` and `most`; `ends` where ends compare."""

    low: Int64Array
    high: Int64Array
    at: Int64Array  # on low's clock
    least: Int64Array
    has_least: np.ndarray
    most: Int64Array
    has_most: np.ndarray
    ends: Int64Array
    has_ends: np.ndarray
    low_span: Int64Array
    high_span: Int64Array


def rival_times(known: KnownTrace, reference: int) -> dict[str, Times]:
    """Starts and ends of all spans by each method."""
    trace = known.trace
    found = extract(trace, known.matches)
    facts = _facts(known, found)
    order, parent = _tree(facts, len(trace.domains), reference)
    none = trace.start_ns, np.where(trace.is_open, trace.start_ns, trace.end_ns)
    lines = {c: _of_pair(facts, int(parent[c]), c) for c in order[1:].tolist()}
    ols = {c: _least_squares(facts, rows) for c, rows in lines.items()}
    hull = {c: _widest_margin(facts, rows) for c, rows in lines.items()}
    return {
        "none": none,
        "NTP at start": _ntp(known, reference),
        "median of ends": _medians(known, found),
        "pairwise OLS": _along(known, order, parent, ols),
        "convex hull": _along(known, order, parent, hull),
        "parent-child shift": _shifted(known, facts, order, parent, none),
    }


def _facts(known: KnownTrace, found: Constraints) -> _Facts:
    trace = known.trace
    start, end = trace.start_ns, trace.end_ns
    # Collectives: each domain's earliest end and latest start, against the lowest domain of the instance.
    domain = trace.domain[found.span].astype(np.int64)
    by_end = np.lexsort((end[found.span], domain, found.instance))
    new = (np.diff(domain[by_end], prepend=-1) != 0) | (np.diff(found.instance[by_end], prepend=-1) != 0)
    first = np.flatnonzero(new)
    span, of, where = found.span[by_end[first]], found.instance[by_end[first]], domain[by_end[first]]
    latest = np.maximum.reduceat(start[found.span[by_end]], first) if len(first) else first
    hub = np.flatnonzero(np.diff(of, prepend=-1))[np.unique(of, return_inverse=True)[1]] if len(of) else of
    other = np.flatnonzero(hub != np.arange(len(hub)))
    h = hub[other]
    # Messages: a fact in one direction each.
    messages = known.matches.messages
    usable = ~trace.is_open[messages.recv] & (trace.domain[messages.send] != trace.domain[messages.recv])
    before, after = messages.send[usable], messages.recv[usable]
    a, b = trace.domain[before].astype(np.int64), trace.domain[after].astype(np.int64)
    up = a < b
    yes, no = np.ones(len(other), bool), np.zeros(len(up), bool)
    delay = end[after] - start[before]
    return _Facts(
        low=np.concatenate((where[h], np.minimum(a, b))),
        high=np.concatenate((where[other], np.maximum(a, b))),
        at=np.concatenate((end[span[h]], np.where(up, start[before], end[after]))),
        least=np.concatenate((latest[other] - end[span[h]], -delay)),
        has_least=np.concatenate((yes, ~up)),
        most=np.concatenate((end[span[other]] - latest[h], delay)),
        has_most=np.concatenate((yes, up)),
        ends=np.concatenate((end[span[other]] - end[span[h]], np.zeros(len(up), np.int64))),
        has_ends=np.concatenate((yes, no)),
        low_span=np.concatenate((span[h], np.where(up, before, after))),
        high_span=np.concatenate((span[other], np.where(up, after, before))),
    )


def _tree(facts: _Facts, domains: int, reference: int) -> tuple[Int64Array, Int64Array]:
    pair, count = np.unique(facts.low * domains + facts.high, return_counts=True)
    graph = coo_array((1.0 / count, (pair // domains, pair % domains)), shape=(domains, domains)).tocsr()
    return breadth_first_order(minimum_spanning_tree(graph), reference, directed=False)


def _of_pair(facts: _Facts, a: int, b: int) -> Int64Array:
    return np.flatnonzero((facts.low == min(a, b)) & (facts.high == max(a, b)))


Line = tuple[int, int, float, float]  # base time, base value, value there, rate: how far the higher domain is ahead


def _least_squares(facts: _Facts, rows: Int64Array) -> Line:
    ends = rows[facts.has_ends[rows]]
    at, base = int(facts.at[rows[0]]), int(facts.most[rows[0]] if facts.has_most[rows[0]] else facts.least[rows[0]])
    if len(ends):
        parts = [_fitted(facts.at[ends] - at, facts.ends[ends] - base)]
    else:
        sides = ((facts.most, facts.has_most), (facts.least, facts.has_least))
        parts = []
        for sign, (value, has) in zip((1.0, -1.0), sides, strict=True):
            here = rows[has[rows]]
            if len(here):
                here = here[_least_of_each(_windows(facts.at[here] - at), sign * (value[here] - base))]
                parts.append(_fitted(facts.at[here] - at, value[here] - base))
    value, rate = np.mean(parts, axis=0)
    return at, base, float(value), float(rate)


def _fitted(t: Int64Array, y: Int64Array) -> tuple[float, float]:
    if len(t) < 2:
        return float(y.mean()), 0.0
    centre = t.mean()
    x = t - centre
    rate = float((x * y).sum() / max(float((x * x).sum()), 1.0))
    return float(y.mean()) - rate * float(centre), rate


def _widest_margin(facts: _Facts, rows: Int64Array) -> Line:
    """Largest m with least + m <= value + rate t <= most - m; negative where facts contradict a straight line."""
    at, base = int(facts.at[rows[0]]), int(facts.most[rows[0]] if facts.has_most[rows[0]] else facts.least[rows[0]])
    t = (facts.at[rows] - at).astype(np.float64)
    scale = max(float(np.abs(t).max()), 1.0)
    window = _windows(t)
    conditions, limits = [], []
    for values, has, sign in ((facts.most, facts.has_most, 1.0), (facts.least, facts.has_least, -1.0)):
        here = has[rows]
        y = sign * (values[rows] - base).astype(np.float64)
        for i in _least_of_each(window[here], y[here]):
            row = np.flatnonzero(here)[i]
            conditions.append([sign, sign * t[row] / scale, 1.0])
            limits.append(y[row] / 1e3)
    found = linprog([0.0, 0.0, -1.0], A_ub=conditions, b_ub=limits, bounds=[(None, None)] * 3)
    if found.x is None:
        return _least_squares(facts, rows)
    return at, base, float(found.x[0]) * 1e3, float(found.x[1]) * 1e3 / scale


def _windows(t: Float64Array) -> Int64Array:
    return np.clip((t - t.min()) / max(float(np.ptp(t)), 1.0) * WINDOWS, 0, WINDOWS - 1).astype(np.int64)


def _least_of_each(window: Int64Array, y: Float64Array) -> Int64Array:
    order = np.lexsort((y, window))
    return order[np.flatnonzero(np.diff(window[order], prepend=-1))]


def _along(known: KnownTrace, order: Int64Array, parent: Int64Array, lines: dict[int, Line]) -> Times:
    trace = known.trace
    out = [trace.start_ns.copy(), np.where(trace.is_open, trace.start_ns, trace.end_ns)]
    for domain in order[1:].tolist():
        own = trace.domain == domain
        for stamps in out:
            t, child = stamps[own], domain
            while child != order[0]:
                t = _to_parent(t, lines[child], child > parent[child])
                child = int(parent[child])
            stamps[own] = t
    return out[0], out[1]


def _to_parent(t: Int64Array, line: Line, child_is_high: bool) -> Int64Array:
    at, base, value, rate = line
    if child_is_high:  # it shows x + base + value + rate (x - at)
        return at + np.rint(((t - at - base).astype(np.float64) - value) / (1.0 + rate)).astype(np.int64)
    return t + base + np.rint(value + rate * (t - at).astype(np.float64)).astype(np.int64)


def _ntp(known: KnownTrace, reference: int) -> Times:
    trace = known.trace
    begin = np.array([known.true_start_ns.min()])
    noise = np.random.default_rng(len(trace)).normal(0.0, NTP_SIGMA_NS, len(trace.domains))
    shown = np.zeros(len(trace.domains), np.int64)
    for d in np.unique(trace.domain).tolist():  # the service's clock has no spans
        shown[d] = int(known.shown(d, begin)[0])
    ahead = shown - shown[reference] + np.rint(noise).astype(np.int64)
    start = trace.start_ns - ahead[trace.domain]
    return start, np.where(trace.is_open, start, trace.end_ns - ahead[trace.domain])


def _medians(known: KnownTrace, found: Constraints) -> Times:
    """One constant per domain: the coarse offsets that the fit starts from."""
    components = connect(known.trace, found)
    base = components.base_ns
    epochs = tuple(
        (Epoch(0, np.zeros(1, np.int64), base[components.reference[[c]]] - base[[d]]),) for d, c in enumerate(components.component)
    )
    return mapped(known, replace(identity_map(len(base)), epochs=epochs))


def _shifted(known: KnownTrace, facts: _Facts, order: Int64Array, parent: Int64Array, raw: Times) -> Times:
    """Domain by domain away from the reference; a span without a cause on another host goes with the last that had one."""
    trace = known.trace
    start, end = raw[0].copy(), raw[1].copy()
    for domain in order[1:].tolist():
        rows = _of_pair(facts, int(parent[domain]), domain)
        child, cause = facts.high_span[rows], facts.low_span[rows]
        if domain < parent[domain]:
            child, cause = cause, child
        room, length = end[cause] - start[cause], end[child] - start[child]
        inside = (start[child] >= start[cause]) & (end[child] <= end[cause])
        shift = start[cause] + np.where(room > length, (room - length) // 2, 0) - start[child]
        moved = np.zeros(len(trace), np.int64)
        moved[child] = np.where(inside, 0, shift)
        told = np.zeros(len(trace), bool)
        told[child] = True
        own = np.flatnonzero(trace.domain == domain)
        last = np.maximum.accumulate(np.where(told[own], np.arange(len(own)), -1))
        new_lane = np.diff(trace.lane[own], prepend=-1) != 0
        lane_first = np.maximum.accumulate(np.where(new_lane, np.arange(len(own)), 0))
        first_told = int(np.flatnonzero(told[own])[0]) if told[own].any() else 0
        last = np.where(last >= lane_first, last, first_told)
        by = moved[own[last]]
        start[own] += by
        end[own] += by
    return start, end
