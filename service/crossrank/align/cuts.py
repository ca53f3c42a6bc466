"""Where exactly a clock was stepped: the cut in local time between two epochs.

With both epochs fitted, each stamp near the step can be read by either, and the others' stamps tell how well each reading does:
an end should be where the other members' ends are, must not lie before the last of their starts, and so on. Sorted by local
time, the cost of a cut is the costs by the earlier epoch before it plus those by the later epoch after it: two running sums.

A step forward by J leaves local time without any stamp for at least J, on all lanes of all ranks of that domain, so only such
gaps can hold it: with hundreds of stamps a second this mostly leaves one. A step back has no gap, and local times of the last
|J| before it come again: their epoch stays in doubt.

Where the others say nothing, because all ranks compute, the lanes themselves do: an interval that straddles a wrong cut is corrected
by J that it should not be, and then is unlike all others of its kind (see straddlers).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossrank.align.constraints import Constraints
from crossrank.align.epochs import Cut, Epochs
from crossrank.align.problem import Fit, Sightings
from crossrank.align.rows import group_medians
from crossrank.align.steps import Suspect
from crossrank.align.straddlers import Straddlers
from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from crossrank.model.trace import JobTrace

FACTS_AROUND = 40
GAP_SHARE = 0.9  # a gap may be shorter than the step by the error of its size
STRADDLERS_JUDGE = 30.0  # between cuts that differ by less than this the durations of spans help to decide
CLEAR_GAIN = 3.0  # cuts that cost this much more than the best are ruled out
LEAST_GAIN = 10.0  # a step that explains no more than this is none
IMPOSSIBLE_NS = 2000.0  # scale on which an end before a start is taken for a wrong epoch rather than a slightly wrong fit


def rough_cuts(trace: JobTrace, facts: Constraints, seen: Sightings, line: Fit, suspects: Sequence[Suspect]) -> tuple[Cut, ...]:
    """A first cut for each suspect: in the middle of the times it may lie in, all of which are in doubt."""
    common = line.correct(seen.end, seen.end_clock)
    at = np.repeat(group_medians(seen.ptr, common), np.diff(seen.ptr))
    end_domain, local = trace.domain[facts.span], trace.end_ns[facts.span]
    message_at = (line.correct(seen.before, seen.before_clock) + line.correct(seen.after, seen.after_clock)) / 2.0
    cuts = []
    for suspect in suspects:
        times, stamps = [], []
        for when, domain, stamp in (
            (at, end_domain, local),
            (message_at, facts.before_domain, facts.before_ns),
            (message_at, facts.after_domain, facts.after_ns),
        ):
            own = domain == suspect.domain
            times.append(when[own])
            stamps.append(stamp[own])
        time, stamp = np.concatenate(times), np.concatenate(stamps)
        pre, post = stamp[time < suspect.from_ns], stamp[time >= suspect.to_ns]
        if len(pre) == 0 or len(post) == 0:
            continue
        low, high = sorted((int(pre.max()), int(post.min())))
        cuts.append(Cut(suspect.domain, (low + high) // 2, round(suspect.size_ns), low, high + 1))
    return tuple(cuts)


def place_cuts(trace: JobTrace, facts: Constraints, seen: Sightings, fit: Fit, epochs: Epochs, margin_ns: float) -> tuple[Cut, ...]:
    """The cuts of `epochs`, each moved to where it explains the stamps best; those that explain nothing are left out.

    seen: sightings of all `facts`, doubtful ones too. margin_ns: how far beyond the doubtful times of a cut to look.
    """
    placed = []
    for i, cut in enumerate(epochs.cuts):
        later = epochs.first_of_cuts + i
        clocks = epochs.of_domain(cut.domain)
        earlier = clocks[clocks.index(later) - 1]
        around = _facts_around(trace, facts, cut)
        low = min(cut.doubt_from_ns - round(margin_ns), around[0])
        high = max(cut.doubt_to_ns + round(margin_ns), around[1] + 1)
        for other in epochs.cuts:  # leave the neighbours' steps to them
            if other.domain == cut.domain and other is not cut:
                low = max(low, other.from_ns) if other.from_ns < cut.from_ns else low
                high = min(high, other.from_ns) if other.from_ns > cut.from_ns else high
        size = _size(fit, epochs, earlier, later, cut.from_ns)
        evidence = _evidence(trace, facts, seen, fit, epochs, (earlier, later), (low, high))
        stamps = _stamps_between(trace, cut.domain, low, high)
        best = _best_cut(stamps, evidence, Straddlers(trace, cut.domain, size, (low, high)), cut.domain, size)
        if best is not None:
            placed.append(best)
    return tuple(placed)


def _facts_around(trace: JobTrace, facts: Constraints, cut: Cut) -> tuple[int, int]:
    """Local times that hold enough of the domain's facts on both sides of a cut, across a pause of the job if there is one."""
    parts = (
        (trace.domain[facts.span], trace.end_ns[facts.span]),
        (facts.before_domain, facts.before_ns),
        (facts.after_domain, facts.after_ns),
    )
    local = np.sort(np.concatenate([stamp[domain == cut.domain] for domain, stamp in parts]))
    if len(local) == 0:
        return cut.doubt_from_ns, cut.doubt_to_ns
    at = int(np.searchsorted(local, cut.from_ns))
    return int(local[max(at - FACTS_AROUND, 0)]), int(local[min(at + FACTS_AROUND, len(local) - 1)])


def _size(fit: Fit, epochs: Epochs, earlier: int, later: int, local_ns: int) -> int:
    """What the later epoch shows more than the earlier one at the same moment."""
    base = epochs.base_ns
    at = np.array([float(local_ns - base[later])])
    clock = np.array([earlier, later], dtype=np.int32)
    ahead = fit.correct(at, clock[:1]) - fit.correct(at, clock[1:])
    return int(base[later] - base[earlier]) + round(float(ahead[0]))


def _stamps_between(trace: JobTrace, domain: int, low: int, high: int) -> Int64Array:
    """All local stamps of a domain in [low, high), sorted."""
    own = trace.domain == domain
    stamps = np.concatenate((trace.start_ns[own], trace.end_ns[own & ~trace.is_open]))
    return np.unique(stamps[(stamps >= low) & (stamps < high)])


def _best_cut(
    stamps: Int64Array,
    evidence: tuple[Int64Array, Float64Array, Float64Array],
    straddlers: Straddlers,
    domain: int,
    size: int,
) -> Cut | None:
    local, pre, post = evidence
    if len(stamps) < 2 or len(local) == 0:
        return None
    order = np.argsort(local, kind="stable")
    cost = np.concatenate(([0.0], np.cumsum(pre[order]))) + (post.sum() - np.concatenate(([0.0], np.cumsum(post[order]))))
    gap = np.diff(stamps)
    wide = np.flatnonzero(gap >= GAP_SHARE * size) if size > 0 else np.arange(len(gap))
    if len(wide) == 0:
        wide = np.arange(len(gap))
    candidate, gap = stamps[1:][wide], gap[wide]
    costs = cost[np.searchsorted(local[order], candidate, side="left")]
    near = np.flatnonzero(costs < costs.min() + STRADDLERS_JUDGE)
    candidate, gap, costs = candidate[near], gap[near], costs[near]
    costs = costs + straddlers.cost(candidate)
    best = np.lexsort((gap, costs))[0]
    if costs[best] > min(cost[0], cost[-1]) - LEAST_GAIN:
        return None
    at = int(candidate[best])
    if size < 0:
        return Cut(domain, at, size, at + size, at - size)
    # Anywhere in the gap cuts alike; its middle leaves room on both sides.
    at -= max(int(gap[best]) - size, 0) // 2
    rivals = candidate[costs < costs[best] + CLEAR_GAIN]
    clear = len(rivals) == 1
    return Cut(domain, at, size, at if clear else int(rivals.min()) - size, at if clear else int(rivals.max()) + size)


def _evidence(
    trace: JobTrace,
    facts: Constraints,
    seen: Sightings,
    fit: Fit,
    epochs: Epochs,
    clocks: tuple[int, int],
    between: tuple[int, int],
) -> tuple[Int64Array, Float64Array, Float64Array]:
    """Stamps of a domain with local times between two: (local time, cost if of the earlier epoch, cost if of the later)."""
    domain = int(epochs.domain[clocks[0]])
    low, high = between

    def near(of: Int32Array, local: Int64Array) -> BoolArray:
        return (of == domain) & (local >= low) & (local < high)

    def readings(local: Int64Array) -> list[Float64Array]:
        return [
            fit.correct((local - epochs.base_ns[clock]).astype(np.float64), np.full(len(local), clock, np.int32))
            for clock in clocks
        ]

    parts: list[tuple[Int64Array, list[Float64Array]]] = []
    own = near(trace.domain[facts.span], trace.end_ns[facts.span])
    instance = facts.instance
    involved = np.zeros(len(facts.ptr) - 1, dtype=bool)
    involved[instance[own]] = True
    others = np.flatnonzero(involved[instance] & (trace.domain[facts.span] != domain))
    end, start = fit.correct(seen.end[others], seen.end_clock[others]), fit.correct(seen.start[others], seen.start_clock[others])
    middle, earliest, latest = _of_others(instance[others], end, start, len(involved))
    rows = np.flatnonzero(own & np.isfinite(middle[instance]))
    k = instance[rows]
    local = trace.end_ns[facts.span[rows]]
    scale = 3.0 * max(fit.sigma_ns, IMPOSSIBLE_NS)
    parts.append((local, [np.log1p(((e - middle[k]) / scale) ** 2) + _impossible(latest[k] - e) for e in readings(local)]))
    local = trace.start_ns[facts.span[rows]]
    parts.append((local, [_impossible(s - earliest[k]) for s in readings(local)]))
    sends = np.flatnonzero(near(facts.before_domain, facts.before_ns))
    local, received = facts.before_ns[sends], fit.correct(seen.after[sends], seen.after_clock[sends])
    parts.append((local, [_impossible(s - received) for s in readings(local)]))
    receives = np.flatnonzero(near(facts.after_domain, facts.after_ns))
    local, sent = facts.after_ns[receives], fit.correct(seen.before[receives], seen.before_clock[receives])
    parts.append((local, [_impossible(sent - e) for e in readings(local)]))
    return (
        np.concatenate([local for local, _ in parts]),
        np.concatenate([pre for _, (pre, _) in parts]),
        np.concatenate([post for _, (_, post) in parts]),
    )


def _of_others(
    instance: Int64Array, end: Float64Array, start: Float64Array, instances: int
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Per instance the median and earliest end and the latest start of the other domains' members; NaN where there are none."""
    middle = np.full(instances, np.nan)
    earliest, latest = middle.copy(), middle.copy()
    if len(instance):
        order = np.lexsort((end, instance))
        first = np.flatnonzero(np.diff(instance[order], prepend=-1))
        k = instance[order[first]]
        count = np.diff(first, append=len(order))
        middle[k] = end[order[first + count // 2]]
        earliest[k] = end[order[first]]
        latest[k] = np.maximum.reduceat(start[order], first)
    return middle, earliest, latest


def _impossible(excess_ns: Float64Array) -> Float64Array:
    return np.log1p((np.maximum(excess_ns, 0.0) / IMPOSSIBLE_NS) ** 2)
