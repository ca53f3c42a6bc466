"""The stamps a fit rests on, as numbers small enough for floating point, and the fit of all clocks to them.

Local stamps become axis times z = local - base of their domain: int64 before the subtraction, float64 after it, where
nanoseconds are exact for a hundred days. A *clock* here is one epoch of one domain: clock numbers below the number of domains
are the first epochs, each clock step adds one more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.align.constraints import Constraints
from crossrank.align.epochs import Epochs
from crossrank.align.knots import Knots
from crossrank.align.messages import TwoWay, pair_up
from crossrank.align.solve import Rows, collective_weights, group_medians, improve, prior_weights
from crossrank.model.arrays import Float64Array, Int32Array, Int64Array
from crossrank.model.trace import JobTrace

LAST_TOLERANCE = 1e-3
EARLY_TOLERANCE = 1e-2
WEAK_SHARE = 1e-3  # of the mean weight that rows put on an unknown


@dataclass(frozen=True, slots=True)
class Sightings:
    """Stamps of all facts: axis time in ns and clock of each. Members of collectives [m], messages [p]."""

    ptr: Int64Array
    start: Float64Array
    end: Float64Array
    start_clock: Int32Array
    end_clock: Int32Array
    before: Float64Array
    after: Float64Array
    before_clock: Int32Array
    after_clock: Int32Array


@dataclass(frozen=True, slots=True)
class Fit:
    """A solution: corrections [V, K] in ns at the knots, the residuals of the collective rows and their robust sigma."""

    knots: Knots
    phi: Float64Array
    residual: Float64Array
    sigma_ns: float

    def correct(self, z: Float64Array, clock: Int32Array) -> Float64Array:
        """Common times of axis times; linear between knots and beyond the ends."""
        j, _ = self.knots.place(z)
        u = (z - self.knots.first_ns) / self.knots.step_ns - j
        return z + self.phi[clock, j] * (1.0 - u) + self.phi[clock, j + 1] * u


def sight(trace: JobTrace, facts: Constraints, epochs: Epochs) -> Sightings:
    """All stamps of the facts on the axis."""

    def on_axis(span: Int64Array, stamp: Int64Array) -> tuple[Float64Array, Int32Array]:
        local = stamp[span]
        clock = epochs.clock_of(trace.domain[span], local)
        return (local - epochs.base_ns[clock]).astype(np.float64), clock

    start, start_clock = on_axis(facts.span, trace.start_ns)
    end, end_clock = on_axis(facts.span, trace.end_ns)
    before, before_clock = on_axis(facts.before, trace.start_ns)
    after, after_clock = on_axis(facts.after, trace.end_ns)
    return Sightings(facts.ptr, start, end, start_clock, end_clock, before, after, before_clock, after_clock)


def solve(
    seen: Sightings,
    knots: Knots,
    phi: Float64Array,
    component: Int32Array,
    *,
    rounds: int,
    wander: bool = True,
    stretches: Knots | None = None,
) -> Fit:
    """Robust fit of corrections that bend at `knots`, from `phi` [V, knots.count] on.

    component: [V] of each clock.
    wander: the rate of a clock changes little from knot to knot.
    stretches: where messages are compared, if not between the knots.
    """
    j, u = knots.place(seen.end)
    rows = Rows(seen.ptr, seen.end_clock, j, u, seen.end, np.ones(len(u)))
    two_way = pair_up(seen.before_clock, seen.after_clock, (seen.before + seen.after) / 2.0, stretches or knots)
    sigma = 0.0
    for i in range(rounds):
        rows, sigma = collective_weights(rows, phi, first=i == 0)
        groups = (rows, _message_rows(seen, two_way, knots, phi))
        # The first round hardly holds the wander: a prior that sits on wrong weights would be hard to leave.
        stiffness = (knots.stiffness if i else _weak(groups, phi)) if wander else 0.0
        tolerance = LAST_TOLERANCE if i == rounds - 1 else EARLY_TOLERANCE
        phi = improve(phi, groups, prior_weights(phi, stiffness, robust=i > 0), component, tolerance=tolerance)
    return Fit(knots, phi, rows.centred(phi), sigma)


def levels(seen: Sightings, knots: Knots, component: Int32Array, *, rounds: int) -> tuple[Float64Array, Int64Array]:
    """One constant correction per clock and stretch between knots [V, K - 1], and the facts that each rests on.

    Instances are placed by the median of their ends, so that a stepped clock's rows meet the others' in the same stretch.
    """
    middle = np.repeat(group_medians(seen.ptr, seen.end), np.diff(seen.ptr))
    j = knots.place(middle)[0]
    zero = np.zeros(len(j))
    rows = Rows(seen.ptr, seen.end_clock, j, zero, seen.end, np.ones(len(j)))
    two_way = pair_up(seen.before_clock, seen.after_clock, (seen.before + seen.after) / 2.0, knots)
    phi = np.zeros((len(component), knots.count))
    message = rows
    for i in range(rounds):
        rows, _ = collective_weights(rows, phi, first=i == 0)
        message = _message_rows(seen, two_way, knots, phi, constant=True)
        weak = prior_weights(phi, _weak((rows, message), phi), robust=False)
        phi = improve(phi, (rows, message), weak, component, tolerance=EARLY_TOLERANCE)
    count = np.zeros((len(component), knots.count - 1), np.int64)
    np.add.at(count, (rows.v, rows.j), 1)
    np.add.at(count, (message.v, message.j), 1)
    return phi[:, :-1], count


def _weak(groups: tuple[Rows, ...], phi: Float64Array) -> float:
    """A stiffness that only ties what the rows leave open."""
    return WEAK_SHARE * sum(float(rows.w.sum()) for rows in groups) / max(phi.size, 1)


def _message_rows(seen: Sightings, two_way: TwoWay, knots: Knots, phi: Float64Array, *, constant: bool = False) -> Rows:
    """Rows of messages under the correction phi, which is linear between knots or constant from knot to knot."""

    def shown(z: Float64Array, clock: Int32Array) -> Float64Array:
        return z + phi[clock, knots.place(z)[0]] if constant else Fit(knots, phi, z, 0.0).correct(z, clock)

    delay = shown(seen.after, seen.after_clock) - shown(seen.before, seen.before_clock)
    return two_way.rows(knots, phi, delay, constant=constant)
