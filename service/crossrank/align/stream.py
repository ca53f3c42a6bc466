"""The clocks of a job that runs for weeks: the fit goes on from window to window and leaves the past as it was told.

A job of up to WHOLE_NS is fitted as a whole, which is best. A longer one is fitted by stretches:

    ... settled curves ...|-- window --|-- lag --|-- patience --> newest fact
                          F            F'

All facts after the settled moment F are fitted together, with every clock's curve held at F and at the knot before: value and rate
go on from the past, which also keeps the timeline where it is. Once facts reach LAG and PATIENCE beyond a window, its curves are
settled up to F' and told no other way again; later facts would have changed them little, since a clock's state is seen best from
both sides within seconds. Facts that come later than that for a settled window are not used. The curve beyond F is told too, but may
still move a little with each derivation.

What is carried is bounded: per clock its knots (thinned beyond MOST_KNOTS), value and rate at F and steps; per pair of clocks the
quickest facts of all time and the worst guaranteed bound of all windows. The constant part of an offset (`level`) gets better with
every quick fact; it is told anew, for all of the past, when it moved by more than TOLERANCE_NS. Whoever compares maps sees that the
past moved and says so. Where clocks or components join, the stream begins anew with the facts at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossrank.align.bounds import intervals
from crossrank.align.components import Components, connect
from crossrank.align.constraints import Constraints, extract
from crossrank.align.cuts import rough_cuts
from crossrank.align.epochs import Cut, certain, split
from crossrank.align.fit import (
    ROUNDS,
    Solved,
    bend_finely,
    bias_floor,
    contradicted,
    even_references,
    fit_facts,
    placed,
    solve_clocks,
)
from crossrank.align.halves import split_half_sigma
from crossrank.align.knots import Knots, choose_knots
from crossrank.align.level import Level, level
from crossrank.align.moved import TOLERANCE_NS
from crossrank.align.problem import Fit, sight, solve
from crossrank.align.settled import Told, drawn, told_epochs
from crossrank.align.steps import find_steps
from crossrank.align.summary import activity, bounds_from, one_way_bounds, unknown_bounds
from crossrank.model.arrays import Float64Array, Int32Array, Int64Array
from crossrank.model.clockmap import ClockMap
from crossrank.model.matches import Matches
from crossrank.model.trace import JobTrace

WHOLE_NS = 120e9
BEGIN_SHARE = 0.5  # of that is the first stretch of a longer job
WINDOW_NS = 10e9
LAG_NS = 5e9
LAG_KNOTS = 8
PATIENCE_NS = 5e9
MOST_CONTRADICTED = 1_000
WILD_FACTS = 4  # that many, or 0.2 %, beyond all others do not say how far the job has come


@dataclass(frozen=True)
class Carried:
    """Everything that is kept of the past of D clocks, known by name.

    components: its `base_ns` is what each clock showed at the settled moment. step_ns: between knots. rate_ns: [D] correction one
    knot before that moment, where it is zero. bound: [D, D] worst one-way bounds so far, None where clocks are too many.
    square_ns, bias_ns: [D] mean square of sigma over `windows`, and the last bias floor.
    """

    names: tuple[str, ...]
    components: Components
    step_ns: float
    rate_ns: Float64Array
    told: Told
    level: Level
    told_level_ns: Float64Array
    bound: Float64Array | None
    square_ns: Float64Array
    bias_ns: Float64Array
    windows: int
    contradicted_ns: tuple[tuple[int, int], ...]

    @property
    def settled_ns(self) -> int:
        """Time on the timeline of the largest component up to which curves are settled."""
        first = self.components.reference[int(np.bincount(self.components.component).argmax())]
        return int(self.components.base_ns[first] - self.told.ahead_ns[first])

    @property
    def nbytes(self) -> int:
        """Memory of its arrays."""
        arrays = [
            self.rate_ns,
            self.told_level_ns,
            self.square_ns,
            self.bias_ns,
            self.bound,
            self.level.quickest,
            self.level.unknown,
        ]
        return sum(a.nbytes for a in arrays if a is not None) + self.told.nbytes


def fit_on(
    trace: JobTrace, matches: Matches, carried: Carried | None, *, whole_ns: float = WHOLE_NS
) -> tuple[ClockMap, Carried | None]:
    """The clocks of a trace, going on from what an earlier call carried; and what to carry to the next one, None for a short job.

    whole_ns: up to which length a job is fitted as a whole.
    """
    facts = extract(trace, matches)
    if carried is None or carried.names != trace.domains:
        carried = _begin(trace, facts, whole_ns)
        if carried is None:
            return fit_facts(trace, facts), None
    while True:
        first = _first_stamps(trace, facts, carried)
        later, reach = _from(facts, first, 0.0, np.inf), _reach(first)
        if _joins(trace, later, carried.components.component):
            begun = _begin(trace, later, whole_ns)
            if begun is None:
                return fit_facts(trace, later), None
            carried = begun
            continue
        window = max(1, round(WINDOW_NS / carried.step_ns)) * carried.step_ns
        lag = max(LAG_NS, LAG_KNOTS * carried.step_ns)
        if reach < window + lag + PATIENCE_NS:
            break
        carried = _settle(trace, _stretch(trace, _from(facts, first, 0.0, window + lag), carried, window + lag), carried, window)
    return _map(trace, _stretch(trace, later, carried, max(reach, carried.step_ns)), carried), carried


def _begin(trace: JobTrace, facts: Constraints, whole_ns: float) -> Carried | None:
    """The first stretch of a long job, fitted as a whole; None where there is no more than a whole fit can hold."""
    components = connect(trace, facts)
    nothing = np.zeros(len(trace.domains))
    told = Told((), (), np.zeros(len(trace.domains), np.int64))
    state = Carried(
        trace.domains, components, 1.0, nothing, told, Level(nothing, None), nothing, None, nothing, nothing, 0, ()
    )  # fmt: skip
    first = _first_stamps(trace, facts, state)
    if len(first) == 0 or _reach(first) + _reach(-first) <= whole_ns:
        return None
    low = -_reach(-first)
    some = _from(facts, first, -np.inf, low + BEGIN_SHARE * whole_ns)
    solved = solve_clocks(trace, some, components)
    assert solved.level is not None
    components = replace(components, reference=even_references(solved, components))
    phi = solved.fit.phi.copy()
    phi[: len(components.component)] -= solved.level.delta_ns[:, None]
    solved = replace(solved, fit=replace(solved.fit, phi=phi))
    knots = choose_knots(np.concatenate((solved.seen.end, solved.seen.before)), max(int((components.rows > 0).sum()), 1))
    at = knots.at_ns[knots.at_ns <= low + BEGIN_SHARE * whole_ns - max(LAG_NS, LAG_KNOTS * knots.step_ns)]
    return _settle(trace, solved, replace(state, components=components, step_ns=knots.step_ns), float(at[-1]))


def _stretch(trace: JobTrace, facts: Constraints, carried: Carried, length_ns: float) -> Solved:
    """The fit of what comes after the settled moment: steps, their cuts, and curves that go on from it."""
    components, step = carried.components, carried.step_ns
    knots = Knots(-step, step, max(4, int(np.ceil(length_ns / step)) + 2))
    start = carried.rate_ns[:, None] * (1.0 - np.arange(knots.count))

    def bent(cuts: tuple[Cut, ...]) -> Solved:
        epochs = split(components.base_ns, cuts)
        phi = np.concatenate((start, np.zeros((len(cuts), knots.count))))
        seen = sight(trace, certain(trace, facts, epochs), epochs)
        return Solved(epochs, seen, solve(seen, knots, phi, epochs, components.component, rounds=ROUNDS, settled_ns=0.0))

    dense = facts.without_samples(trace.samples.service)
    epochs = split(components.base_ns, ())
    seen = sight(trace, dense, epochs)
    line = Fit(knots, start, epochs.domain, np.empty(0), 0.0)
    cuts = rough_cuts(trace, dense, seen, line, find_steps(seen, knots, line, components))
    solved = bent(cuts)
    if cuts:
        solved = bent(placed(trace, facts, solved, step))
    return bend_finely(solved, components, settled_ns=0.0)


def _settle(trace: JobTrace, solved: Solved, carried: Carried, until_ns: float) -> Carried:
    """Carries a fitted stretch up to common time `until_ns`; the rest of it is fitted again with what follows."""
    components, fit, epochs = carried.components, solved.fit, solved.epochs
    found = level(solved.seen, fit, components.component, carried.level if carried.windows else None)
    off = found.delta_ns - found.delta_ns[components.reference[components.component]]
    off -= carried.told_level_ns - carried.told_level_ns[components.reference[components.component]]
    moves = bool((np.abs(off) > TOLERANCE_NS).any()) or carried.windows == 0
    told_level = found.delta_ns if moves else carried.told_level_ns
    bound = carried.bound
    if bound is not None and moves:  # they were bounds of the error of what was told: that is another now
        by = told_level - carried.told_level_ns
        bound = bound - (by[None, :] - by[:, None])
    leveled = replace(solved, fit=_leveled(fit, told_level), level=found)
    own, contradictions = _bound(trace, leveled, components)
    told, base, rate = told_epochs(solved, carried.told, components, until_ns, carried.step_ns)
    settled_ns = None if carried.windows == 0 else 0.0
    sigma = split_half_sigma(solved.seen, fit, epochs, activity(trace, epochs), components, settled_ns)
    return replace(
        carried,
        components=replace(components, base_ns=base),
        rate_ns=rate,
        told=told,
        level=found,
        told_level_ns=told_level,
        bound=own if bound is None else None if own is None else np.maximum(bound, own),
        square_ns=(carried.square_ns * carried.windows + sigma**2) / (carried.windows + 1),
        bias_ns=bias_floor(leveled, components),
        windows=carried.windows + 1,
        contradicted_ns=(carried.contradicted_ns + contradictions)[-MOST_CONTRADICTED:],
    )


def _map(trace: JobTrace, solved: Solved, carried: Carried) -> ClockMap:
    """What is settled, and the stretch since as it looks now."""
    components = carried.components
    own, contradictions = _bound(trace, replace(solved, fit=_leveled(solved.fit, carried.told_level_ns)), components)
    if own is None or carried.bound is None:
        bounds = unknown_bounds(components)
    else:
        bounds = bounds_from(np.maximum(own, carried.bound), components)
    told = drawn(solved, carried.told, components, None)
    by = np.rint(carried.told_level_ns - carried.told_level_ns[components.reference[components.component]]).astype(np.int64)
    return ClockMap(
        epochs=tuple(
            tuple(replace(epoch, offset_ns=epoch.offset_ns + by[d]) for epoch in epochs) for d, epochs in enumerate(told.epochs)
        ),
        steps=told.steps,
        component=components.component,
        reference=components.reference,
        sigma_ns=np.sqrt(carried.square_ns),
        bias_floor_ns=carried.bias_ns,
        bound_lo_ns=bounds.lo_ns,
        bound_hi_ns=bounds.hi_ns,
        pairs=bounds.pairs,
        contradicted_ns=(carried.contradicted_ns + contradictions)[-MOST_CONTRADICTED:],
    )


def _leveled(fit: Fit, level_ns: Float64Array) -> Fit:
    phi = fit.phi.copy()
    phi[: len(level_ns)] += level_ns[:, None]
    return replace(fit, phi=phi)


def _bound(trace: JobTrace, leveled: Solved, components: Components) -> tuple[Float64Array | None, tuple[tuple[int, int], ...]]:
    """Worst one-way bounds of a stretch, and its windows with contradictions."""
    between = intervals(leveled.seen, leveled.fit, len(leveled.epochs))
    if between is None:
        return None, ()
    used = activity(trace, leveled.epochs)
    return one_way_bounds(between, leveled.fit, leveled.epochs, used, components), contradicted(between, components)


def _first_stamps(trace: JobTrace, facts: Constraints, carried: Carried) -> Float64Array:
    """[k + p] when each instance and pair of facts first shows, ns since the settled moment by the carried rates."""
    base, rate = carried.components.base_ns, carried.rate_ns / carried.step_ns

    def since(domain: Int32Array, local_ns: Int64Array) -> Float64Array:
        z = (local_ns - base[domain]).astype(np.float64)
        return z - rate[domain] * z

    end = since(trace.domain[facts.span], trace.end_ns[facts.span])
    first = np.minimum.reduceat(end, facts.ptr[:-1]) if len(end) else np.empty(0)
    return np.concatenate((first, since(facts.before_domain, facts.before_ns)))


def _reach(first_ns: Float64Array) -> float:
    """How far facts go, but for a few wild ones; minus infinity without facts."""
    if len(first_ns) == 0:
        return -np.inf
    spare = min(max(WILD_FACTS, len(first_ns) // 500), (len(first_ns) - 1) // 2)
    return float(np.partition(first_ns, len(first_ns) - 1 - spare)[len(first_ns) - 1 - spare])


def _from(facts: Constraints, first_ns: Float64Array, low: float, high: float) -> Constraints:
    """The facts that first show in [low, high)."""
    kept = (first_ns >= low) & (first_ns < high)
    instances = len(facts.ptr) - 1
    length = np.diff(facts.ptr)
    mine = kept[:instances]
    ptr = np.concatenate(([0], np.cumsum(length[mine]))).astype(np.int64)
    some = replace(facts, ptr=ptr, span=facts.span[np.repeat(mine, length)], family=facts.family[mine])
    return some.of_pairs(kept[instances:])


def _joins(trace: JobTrace, facts: Constraints, component: Int32Array) -> bool:
    """Whether facts join clocks of different components."""
    if len(facts.span):
        of = component[trace.domain[facts.span]]
        if (np.minimum.reduceat(of, facts.ptr[:-1]) != np.maximum.reduceat(of, facts.ptr[:-1])).any():
            return True
    across = component[facts.before_domain] != component[facts.after_domain]
    clocks = len(component)
    forth = np.unique(facts.before_domain[across].astype(np.int64) * clocks + facts.after_domain[across])
    return bool(np.isin(forth % clocks * clocks + forth // clocks, forth).any())
