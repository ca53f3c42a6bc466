"""The stamps a fit rests on, as numbers small enough for floating point, and the fit of all clocks to them.

Local stamps become axis times z = local - base of their domain: int64 before the subtraction, float64 after it, where
nanoseconds are exact for a hundred days. A *clock* here is one epoch of one domain: clock numbers below the number of domains
are the first epochs, each clock step adds one more, which shares the curve of its domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crossrank.align.constraints import Constraints
from crossrank.align.epochs import Epochs
from crossrank.align.knots import Knots
from crossrank.align.messages import pair_up
from crossrank.align.prior import prior
from crossrank.align.rows import Rows, collective_weights, group_medians
from crossrank.align.solve import improve
from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from crossrank.model.trace import JobTrace

LAST_TOLERANCE = 1e-3
EARLY_TOLERANCE = 1e-2
LOOSE_BEND_NS = 1e4


@dataclass(frozen=True, slots=True)
class Sightings:
    """Stamps of all facts: axis time in ns and clock of each. Members of collectives [m], messages [p].

    family_ptr: [f + 1] members of the collectives of each process group, which share their noise. turn: [p], see Constraints.
    """

    ptr: Int64Array
    family_ptr: Int64Array
    start: Float64Array
    end: Float64Array
    start_clock: Int32Array
    end_clock: Int32Array
    before: Float64Array
    after: Float64Array
    before_clock: Int32Array
    after_clock: Int32Array
    turn: Int64Array


@dataclass(frozen=True)  # without slots: `corrections` is kept once worked out, it is asked for clock by clock
class Fit:
    """A solution.

    phi: [V, K] corrections in ns at the knots of the D curves, below them in column 0 what each later epoch adds.
    curve: [V] of each clock. residual: of the collective rows, sigma_ns: their robust sigma.
    """

    knots: Knots
    phi: Float64Array
    curve: Int32Array
    residual: Float64Array
    sigma_ns: float

    @cached_property
    def corrections(self) -> Float64Array:
        """[V, K] corrections of every clock at the knots."""
        later = self.curve != np.arange(len(self.curve))
        return self.phi[self.curve] + np.where(later, self.phi[:, 0], 0.0)[:, None]

    def correct(self, z: Float64Array, clock: Int32Array) -> Float64Array:
        """Common times of axis times; linear between knots and beyond the ends."""
        j, _ = self.knots.place(z)
        u = (z - self.knots.first_ns) / self.knots.step_ns - j
        at = self.corrections
        return z + at[clock, j] * (1.0 - u) + at[clock, j + 1] * u


def sight(trace: JobTrace, facts: Constraints, epochs: Epochs) -> Sightings:
    """All stamps of the facts on the axis."""

    def on_axis(domain: Int32Array, local: Int64Array) -> tuple[Float64Array, Int32Array]:
        clock = epochs.clock_of(domain, local)
        return (local - epochs.base_ns[clock]).astype(np.float64), clock

    member_domain = trace.domain[facts.span]
    start, start_clock = on_axis(member_domain, trace.start_ns[facts.span])
    end, end_clock = on_axis(member_domain, trace.end_ns[facts.span])
    before, before_clock = on_axis(facts.before_domain, facts.before_ns)
    after, after_clock = on_axis(facts.after_domain, facts.after_ns)
    return Sightings(
        facts.ptr,
        family_bounds(facts.ptr, facts.family),
        start,
        end,
        start_clock,
        end_clock,
        before,
        after,
        before_clock,
        after_clock,
        facts.turn,
    )


def family_bounds(ptr: Int64Array, family: Int32Array) -> Int64Array:
    """[f + 1] where the members of each run of instances of one family begin."""
    begins = np.flatnonzero(np.diff(family, prepend=-1))
    return np.append(ptr[begins], ptr[-1])


def solve(
    seen: Sightings,
    knots: Knots,
    phi: Float64Array,
    epochs: Epochs,
    component: Int32Array,
    *,
    rounds: int,
    wander: bool = True,
    loose: BoolArray | None = None,
    stretches: Knots | None = None,
    settled_ns: float | None = None,
) -> Fit:
    """Robust fit of corrections that bend at `knots`, from `phi` [V, knots.count] on.

    component: [D] of each domain.
    wander: the rate of a clock changes little from knot to knot.
    loose: [D, K - 2] inner knots where `phi` does not yet show how the clock bends; all of them if not given.
    stretches: where messages are compared, if not between the knots. settled_ns: curves stay as they are at knots up to there.
    """
    curve = epochs.domain
    j, u = knots.place(seen.end)
    rows = Rows(seen.ptr, curve[seen.end_clock], seen.end_clock, j, u, seen.end, np.ones(len(u)))
    two_way = pair_up(seen.before_clock, seen.after_clock, (seen.before + seen.after) / 2.0, stretches or knots)
    sigma = 0.0
    settled = None
    if settled_ns is not None:
        settled = np.zeros(phi.shape, bool)
        settled[: epochs.first_of_cuts] = knots.at_ns <= settled_ns + 1.0
    for i in range(rounds):
        rows, sigma = collective_weights(rows, seen.family_ptr, phi, first=i == 0)
        fit = Fit(knots, phi, curve, seen.end, sigma)
        delay = fit.correct(seen.after, seen.after_clock) - fit.correct(seen.before, seen.before_clock)
        groups = (rows, two_way.rows(knots, curve, phi, delay, constant=False))
        before = prior(phi, epochs.first_of_cuts, knots.stiffness if wander else 0.0, knots.slope_weight)
        if i == 0:
            # The first round hardly holds the wander: a prior that sits on wrong weights would be hard to leave.
            before = before.loosened(np.ones(before.bend.shape, bool) if loose is None else loose, 1.0 / LOOSE_BEND_NS**2)
        tolerance = LAST_TOLERANCE if i == rounds - 1 else EARLY_TOLERANCE
        phi = improve(phi, groups, before, component, tolerance=tolerance, settled=settled)
    return Fit(knots, phi, curve, rows.centred(phi), sigma)


def levels(seen: Sightings, knots: Knots, component: Int32Array, *, rounds: int) -> tuple[Float64Array, Int64Array]:
    """One constant correction per domain and stretch between knots [D, K - 1], and the facts that each rests on.

    Every clock must be in its first epoch. Instances are placed by the median of their ends, so that a stepped clock's rows meet
    the others' in the same stretch.
    """
    middle = np.repeat(group_medians(seen.ptr, seen.end), np.diff(seen.ptr))
    j = knots.place(middle)[0]
    rows = Rows(seen.ptr, seen.end_clock, seen.end_clock, j, np.zeros(len(j)), seen.end, np.ones(len(j)))
    between = (seen.before + seen.after) / 2.0
    at = knots.place(between)[0]
    two_way = pair_up(seen.before_clock, seen.after_clock, between, knots)
    curve = np.arange(len(component), dtype=np.int32)
    phi = np.zeros((len(component), knots.count))
    free = prior(phi, len(component), 0.0, 0.0)
    message = rows
    for i in range(rounds):
        rows, _ = collective_weights(rows, seen.family_ptr, phi, first=i == 0)
        delay = seen.after + phi[seen.after_clock, at] - seen.before - phi[seen.before_clock, at]
        message = two_way.rows(knots, curve, phi, delay, constant=True)
        phi = improve(phi, (rows, message), free, component, tolerance=EARLY_TOLERANCE)
    count = np.zeros((len(component), knots.count - 1), np.int64)
    np.add.at(count, (rows.v, rows.j), 1)
    np.add.at(count, (message.v, message.j), 1)
    return phi[:, :-1], count
