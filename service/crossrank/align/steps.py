"""Which clocks were stepped, roughly when and by how much.

Between knots each clock gets one constant level by a robust fit of all clocks together. A step is a large increment of one
clock's levels from one stretch to the next. What all clocks of a component do together is not seen by any of them and must be
taken off first; it is taken as the median over the clocks, since a mean would hand one clock's step of 30 ms to all others in
part. A steady drift is the clock's own median increment. A slew, a rate of 500 ppm for seconds, shows as a run of increments; it
is no step: the fit follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossrank.align.components import Components
from crossrank.align.knots import Knots
from crossrank.align.problem import Fit, Sightings, levels
from crossrank.model.arrays import Float64Array, Int64Array

SMALLEST_STEP_NS = 100e3
NOISE_FACTOR = 10.0  # times the robust sigma of all increments
LONGEST_RUN = 2  # a step in the middle of a stretch shows in two increments; more of them are a slew
QUIET = 0.3  # increments beside a step are smaller than this share of it
LEVEL_ROUNDS = 4
WELL_SEEN = 0.4  # share of a clock's usual number of facts that a level must rest on


@dataclass(frozen=True, slots=True)
class Suspect:
    """A step of a domain's clock by about `size_ns` somewhere in common times [from_ns, to_ns)."""

    domain: int
    size_ns: float
    from_ns: float
    to_ns: float


def find_steps(seen: Sightings, knots: Knots, line: Fit, components: Components) -> tuple[Suspect, ...]:
    """Suspected steps of all domains, ascending by (domain, time)."""
    straight = replace(
        seen,
        end=line.correct(seen.end, seen.end_clock),
        before=line.correct(seen.before, seen.before_clock),
        after=line.correct(seen.after, seen.after_clock),
    )
    level, count = levels(straight, knots, components.component, rounds=LEVEL_ROUNDS)
    increment, since = _increments(level, count)
    own = _without_common(increment, np.arange(knots.count - 1) - since, components)
    known = ~np.isnan(own)
    if not known.any():
        return ()
    noise = 1.4826 * float(np.median(np.abs(own[known])))
    least = max(SMALLEST_STEP_NS, NOISE_FACTOR * noise)
    edge = knots.at_ns
    suspects = []
    for domain in range(len(own)):
        column = np.flatnonzero(known[domain])
        for first, last, size in _isolated(own[domain, column], least):
            pre, post = since[domain, column[first]], column[last]
            # The stretches at either side may hold the step themselves. At the ends of the recording half of one must do.
            begin = edge[pre] if first > 0 else (edge[pre] + edge[pre + 1]) / 2.0
            until = edge[post + 1] if last + 1 < len(column) else (edge[post] + edge[post + 1]) / 2.0
            suspects.append(Suspect(domain, -size, float(begin), float(until)))
    return tuple(suspects)


def _increments(level: Float64Array, count: Int64Array) -> tuple[Float64Array, Int64Array]:
    """[D, K - 1] change of level since the last stretch in which the clock was well seen (NaN where there is none), and that stretch."""
    increment = np.full(level.shape, np.nan)
    since = np.zeros(level.shape, np.int64)
    for d in range(len(level)):
        usual = np.median(count[d, count[d] > 0]) if count[d].any() else 0.0
        seen = np.flatnonzero((count[d] > 0) & (count[d] >= WELL_SEEN * usual))
        increment[d, seen[1:]] = np.diff(level[d, seen])
        since[d, seen[1:]] = seen[:-1]
    return increment, since


def _without_common(increment: Float64Array, stretches: Int64Array, components: Components) -> Float64Array:
    """Increments, over so many stretches, without each clock's own drift and without what its component does together."""
    own = increment.copy()
    for c, reference in enumerate(components.reference.tolist()):
        members = np.flatnonzero(components.component == c)
        if len(members) < 2:
            own[members] = np.nan
            continue
        for _ in range(2):
            for d in members:
                here = ~np.isnan(own[d])
                drift = np.median(own[d, here] / stretches[d, here]) if here.any() else 0.0
                own[d] -= drift * stretches[d]
            # Of two clocks either may have stepped; the reference is taken at its word.
            judges = np.array([reference]) if len(members) == 2 else members
            columns = np.flatnonzero(~np.isnan(own[judges]).all(axis=0))
            common = np.zeros(own.shape[1])
            common[columns] = np.nanmedian(own[judges][:, columns], axis=0)
            own[members] -= common
    return own


def _isolated(own: Float64Array, least: float) -> list[tuple[int, int, float]]:
    """(first, last, total) of short runs of large increments of one sign between quiet ones."""
    found = []
    i = 0
    while i < len(own):
        if abs(own[i]) <= least:
            i += 1
            continue
        last = i
        while last + 1 < len(own) and abs(own[last + 1]) > least and (own[last + 1] > 0) == (own[i] > 0):
            last += 1
        total = float(own[i : last + 1].sum())
        beside = np.abs(np.concatenate((own[max(0, i - 2) : i], own[last + 1 : last + 3])))
        if last - i < LONGEST_RUN and (beside < QUIET * abs(total)).all():
            # What is left of the step may hide in the increments beside it.
            lo, hi = max(0, i - 1), min(len(own) - 1, last + 1)
            found.append((lo, hi, float(own[lo : hi + 1].sum())))
        i = last + 1
    return found
