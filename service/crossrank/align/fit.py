"""From a trace and its matches to a ClockMap: the order of the work of this room.

    facts between domains -> components and coarse offsets -> clock steps -> global robust fit -> guaranteed bounds -> ClockMap

The timeline of a component is the clock of its reference domain, so the reference has offset zero. It is the domain with most
rows, the lowest of equals, but not one that was stepped or slewed if an even one has nearly as many. Should the reference itself
be stepped, the timeline goes on as if it had not been.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossrank.align.bounds import Intervals, intervals
from crossrank.align.chart import draw_epochs
from crossrank.align.components import Components, connect
from crossrank.align.constraints import Constraints, extract
from crossrank.align.cuts import place_cuts, rough_cuts
from crossrank.align.epochs import Cut, Epochs, certain, split
from crossrank.align.halves import split_half_sigma
from crossrank.align.knots import Knots, choose_knots
from crossrank.align.level import Level, level
from crossrank.align.problem import Fit, Sightings, sight, solve
from crossrank.align.steps import find_steps
from crossrank.align.summary import activity, unknown_bounds, worst_bounds
from crossrank.model.arrays import Float64Array, Int32Array
from crossrank.model.clockmap import ClockMap, ClockStep
from crossrank.model.matches import Matches
from crossrank.model.trace import JobTrace

LINE_ROUNDS = 6
ROUNDS = 7
NEARLY_MOST = 0.9  # of the rows of the domain that has most
SHARP_NS = 5e3  # a clock that bends by more at one knot was slewed
BIAS_SHARE = 0.1  # share of the jitter that an uneven completion may shift systematically (measured on real recordings)


@dataclass(frozen=True, slots=True)
class Solved:
    """A fit with the epochs it rests on and the sightings it was made from."""

    epochs: Epochs
    seen: Sightings
    fit: Fit
    level: Level | None = None


def fit_clocks(trace: JobTrace, matches: Matches) -> ClockMap:
    """Offsets, drifts, steps and uncertainties of all clock domains of a trace. Deterministic; never NaN.

    A domain that nothing connects to others keeps its own clock as its timeline. A trace without facts between domains gives
    every domain offset zero in a component of its own.
    """
    return fit_facts(trace, extract(trace, matches))


def fit_facts(trace: JobTrace, facts: Constraints) -> ClockMap:
    """The same from facts of a trace, all of them or some."""
    components = connect(trace, facts)
    solved = solve_clocks(trace, facts, components)
    components = replace(components, reference=even_references(solved, components))
    epochs, fit = solved.epochs, solved.fit
    used = activity(trace, epochs)
    between = intervals(solved.seen, fit, len(epochs))
    bounds = unknown_bounds(components) if between is None else worst_bounds(between, fit, epochs, used, components)
    sigma = split_half_sigma(solved.seen, fit, epochs, used, components)
    return ClockMap(
        epochs=draw_epochs(fit, epochs, used, components),
        steps=tuple(
            tuple(ClockStep(cut.from_ns, cut.size_ns) for cut in epochs.cuts if cut.domain == d) for d in range(len(trace.domains))
        ),
        component=components.component,
        reference=components.reference,
        sigma_ns=sigma,
        bias_floor_ns=bias_floor(solved, components),
        bound_lo_ns=bounds.lo_ns,
        bound_hi_ns=bounds.hi_ns,
        pairs=bounds.pairs,
        contradicted_ns=() if between is None else contradicted(between, components),
    )


def contradicted(between: Intervals, components: Components) -> tuple[tuple[int, int], ...]:
    """Windows with contradicting facts, by the clock of the reference that most rows speak of."""
    if not len(components.reference):
        return ()
    first = int(components.base_ns[components.reference[np.argmax(components.rows[components.reference])]])
    edge = [first + round(between.first_ns + i * between.window_ns) for i in range(len(between.distance) + 1)]
    return tuple((edge[w], edge[w + 1]) for w in np.flatnonzero(between.contradicted).tolist())


def solve_clocks(trace: JobTrace, facts: Constraints, components: Components) -> Solved:
    """Straight lines, then steps, then the bending fit; cuts are placed by the lines and once more by the bending fit.

    Steps show where facts are dense; sharp but sparse clock samples would drag a line that does not know of a step along with it.
    """
    base = components.base_ns
    epochs = split(base, ())
    dense = facts.without_samples(trace.samples.service)
    seen = sight(trace, dense, epochs)
    knots = choose_knots(np.concatenate((seen.end, seen.before)), max(int((components.rows > 0).sum()), 1))
    straight = _straight(trace, dense, epochs, components, knots)
    suspects = find_steps(seen, knots, straight.fit, components)
    cuts = rough_cuts(trace, dense, seen, straight.fit, suspects)
    if cuts or dense is not facts:
        straight = _straight(trace, facts, split(base, cuts), components, knots)
    if cuts:
        cuts = placed(trace, facts, straight, 2.0 * knots.step_ns)
        straight = _straight(trace, facts, split(base, cuts), components, knots)
    solved = _bend(straight, components, knots)
    if cuts:
        cuts = placed(trace, facts, solved, knots.step_ns)
        straight = _straight(trace, facts, split(base, cuts), components, knots)
        solved = _bend(straight, components, knots)
    return _level(bend_finely(solved, components), components)


def placed(trace: JobTrace, facts: Constraints, solved: Solved, margin_ns: float) -> tuple[Cut, ...]:
    """The cuts of a fit, placed anew by all facts."""
    return place_cuts(trace, facts, sight(trace, facts, solved.epochs), solved.fit, solved.epochs, margin_ns)


def _straight(trace: JobTrace, facts: Constraints, epochs: Epochs, components: Components, knots: Knots) -> Solved:
    """The fit without bends, on facts whose epochs are certain."""
    seen = sight(trace, certain(trace, facts, epochs), epochs)
    start = np.zeros((len(epochs), 2))
    line = solve(seen, knots.line(), start, epochs, components.component, rounds=LINE_ROUNDS, wander=False, stretches=knots)
    return Solved(epochs, seen, line)


def _bend(straight: Solved, components: Components, knots: Knots) -> Solved:
    """The bending fit, starting from the straight one."""
    share = np.linspace(0.0, 1.0, knots.count)
    start = straight.fit.phi[:, :1] * (1.0 - share) + straight.fit.phi[:, 1:] * share
    fit = solve(straight.seen, knots, start, straight.epochs, components.component, rounds=ROUNDS)
    return Solved(straight.epochs, straight.seen, fit)


def bend_finely(solved: Solved, components: Components, settled_ns: float | None = None) -> Solved:
    """The fit with closer knots where a clock bends sharply, as at the ends of a slew; as it is where none does.

    settled_ns: curves stay as they are up to there.
    """
    sharp = np.abs(_bends(solved)) > SHARP_NS
    coarse, fine = solved.fit.knots, solved.fit.knots.finer()
    if not sharp.any() or fine.count == coarse.count:
        return solved
    start = np.array([np.interp(fine.at_ns, coarse.at_ns, phi) for phi in solved.fit.phi])
    near = sharp.copy()
    near[:, 1:] |= sharp[:, :-1]
    near[:, :-1] |= sharp[:, 1:]
    stretch = np.clip(np.rint((fine.at_ns[1:-1] - coarse.first_ns) / coarse.step_ns).astype(int) - 1, 0, near.shape[1] - 1)
    curve_start = np.where(np.arange(len(start))[:, None] < len(sharp), start, solved.fit.phi[:, :1])
    fit = solve(
        solved.seen,
        fine,
        curve_start,
        solved.epochs,
        components.component,
        rounds=ROUNDS,
        loose=near[:, stretch],
        stretches=coarse,
        settled_ns=settled_ns,
    )
    return Solved(solved.epochs, solved.seen, fit)


def _level(solved: Solved, components: Components) -> Solved:
    """The same fit with each domain's curve moved to where the quickest facts want it."""
    fit = solved.fit
    found = level(solved.seen, fit, components.component)
    phi = fit.phi.copy()
    phi[: len(components.component)] += found.delta_ns[:, None]
    return replace(solved, fit=replace(fit, phi=phi), level=found)


def _bends(solved: Solved) -> Float64Array:
    """[D, K - 2] second differences of the curves."""
    curves = solved.fit.phi[: solved.epochs.first_of_cuts]
    return curves[:, :-2] - 2.0 * curves[:, 1:-1] + curves[:, 2:]


def even_references(solved: Solved, components: Components) -> Int32Array:
    """Per component the lowest domain with nearly the most rows, one whose clock runs evenly if there is such."""
    uneven = np.abs(_bends(solved)).max(axis=1, initial=0.0) > SHARP_NS
    uneven[[cut.domain for cut in solved.epochs.cuts]] = True
    reference = components.reference.copy()
    for c, first in enumerate(components.reference.tolist()):
        near = (components.component == c) & (components.rows >= NEARLY_MOST * components.rows[first])
        domains = np.flatnonzero(near)
        reference[c] = domains[np.argmin(uneven[domains])]
    return reference


def bias_floor(solved: Solved, components: Components) -> Float64Array:
    """[D] what habits of completion may hide: a share of the jitter, or what the quickest facts leave open if that is more."""
    share = BIAS_SHARE * _jitter(solved, components)
    if solved.level is None:
        return share
    reference = components.reference[components.component]
    bias = np.maximum(share, solved.level.bias_ns(reference))
    return np.where(reference == np.arange(len(reference)), share, bias)


def _jitter(solved: Solved, components: Components) -> Float64Array:
    """[D] robust sigma of how far each domain's ends are from those of the others; of all where a domain has no rows."""
    domain = solved.epochs.domain[solved.seen.end_clock]
    sigma = np.where(components.rows > 0, solved.fit.sigma_ns, 0.0)
    order = np.lexsort((np.abs(solved.fit.residual), domain))
    first = np.flatnonzero(np.diff(domain[order], prepend=-1))
    count = np.diff(first, append=len(order))
    sigma[domain[order[first]]] = 1.4826 * np.abs(solved.fit.residual)[order[first + count // 2]]
    return sigma
