"""The told part of the clocks of a long job: offsets at knots that later facts do not change, and how a stretch is added to it.

Offsets are against each component's reference as if it had never been stepped. Knots lie on the grid of the fit. Beyond MOST_KNOTS
of an epoch every second one of its older half is dropped: a clock wanders little between close knots, and memory stays bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.align.chart import shown_by
from crossrank.align.components import Components
from crossrank.align.fit import Solved
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.clockmap import ClockStep, Epoch

MOST_KNOTS = 8192
MOST_EPOCHS = 256  # of one clock; a clock stepped more often loses its earliest


@dataclass(frozen=True, slots=True)
class Told:
    """epochs, steps: [D] settled ones of each clock; empty before the first stretch. ahead_ns: [D] all its steps together."""

    epochs: tuple[tuple[Epoch, ...], ...]
    steps: tuple[tuple[ClockStep, ...], ...]
    ahead_ns: Int64Array

    @property
    def nbytes(self) -> int:
        """Memory of its arrays."""
        return sum(e.knot_ns.nbytes + e.offset_ns.nbytes for epochs in self.epochs for e in epochs) + self.ahead_ns.nbytes


def told_epochs(
    solved: Solved, told: Told, components: Components, until_ns: float, step_ns: float
) -> tuple[Told, Int64Array, Float64Array]:
    """What is told with a stretch added up to common time `until_ns`, and where the next stretch goes on.

    Second: [D] what each clock shows then. Third: [D] its correction one knot, `step_ns`, before, relative to that moment.
    """
    fit, epochs = solved.fit, solved.epochs
    base, rate = np.zeros(len(components.component), np.int64), np.zeros(len(components.component))
    for d in range(len(base)):
        clock = _clock_at(solved, d, until_ns)
        z = round(float(shown_by(fit, clock, np.array([until_ns]))[0]))
        base[d] = epochs.base_ns[clock] + z
        then = fit.correct(np.array([z - step_ns, z]), np.full(2, clock, np.int32))
        rate[d] = (then[0] + step_ns) - then[1]
    return drawn(solved, told, components, until_ns), base, rate


def drawn(solved: Solved, told: Told, components: Components, until_ns: float | None) -> Told:
    """What is told with a stretch added, up to a common time or all of it."""
    epochs, steps, ahead = [], [], told.ahead_ns.copy()
    for d, component in enumerate(components.component.tolist()):
        reference = int(components.reference[component])
        reference_base = int(solved.epochs.base_ns[reference] - told.ahead_ns[reference])
        own = list(told.epochs[d]) if told.epochs else []
        known = list(told.steps[d]) if told.steps else []
        for clock, z in _grids(solved, d, until_ns):
            common = solved.fit.correct(z, np.full(len(z), clock, np.int32))
            shown = np.rint(shown_by(solved.fit, reference, common) - z).astype(np.int64)
            local = int(solved.epochs.base_ns[clock]) + np.rint(z).astype(np.int64)
            offset = reference_base - int(solved.epochs.base_ns[clock]) + shown
            if clock != d:
                cut = solved.epochs.cuts[clock - solved.epochs.first_of_cuts]
                own.append(Epoch(cut.from_ns, local, offset))
                known.append(ClockStep(cut.from_ns, cut.size_ns))
                ahead[d] += cut.size_ns
            elif own:
                own[-1] = _longer(own[-1], local, offset)
            else:
                own.append(Epoch(int(local[0]), local, offset))
        epochs.append(tuple(own[-MOST_EPOCHS:]))
        steps.append(tuple(known[-MOST_EPOCHS:]))
    return Told(tuple(epochs), tuple(steps), ahead)


def _clock_at(solved: Solved, domain: int, until_ns: float) -> int:
    """The clock of a domain in use at a common time."""
    now = domain
    for clock in solved.epochs.of_domain(domain)[1:]:
        if _begins(solved, clock) < until_ns:
            now = clock
    return now


def _begins(solved: Solved, clock: int) -> float:
    """Common time at which a later epoch begins."""
    cut = solved.epochs.cuts[clock - solved.epochs.first_of_cuts]
    z = np.array([float(cut.from_ns - solved.epochs.base_ns[clock])])
    return float(solved.fit.correct(z, np.array([clock], np.int32))[0])


def _grids(solved: Solved, domain: int, until_ns: float | None) -> list[tuple[int, Float64Array]]:
    """(clock, its axis times) of the knots of each epoch of a domain in a stretch; those before it are told already."""
    knots = solved.fit.knots
    at = knots.at_ns[1:] if knots.first_ns < 0.0 else knots.at_ns
    at = at[at > -0.25 * knots.step_ns] if knots.first_ns < 0.0 else at
    if until_ns is not None:
        at = at[at < until_ns - 0.25 * knots.step_ns]
    clocks = solved.epochs.of_domain(domain)
    begins = [-np.inf, *(_begins(solved, clock) for clock in clocks[1:]), np.inf]
    found = []
    for i, clock in enumerate(clocks):
        if until_ns is not None and begins[i] >= until_ns:
            break
        own = at[(at > begins[i]) & (at < begins[i + 1])]
        if i > 0:
            cut = solved.epochs.cuts[clock - solved.epochs.first_of_cuts]
            own = np.append(float(cut.from_ns - solved.epochs.base_ns[clock]), own)
        if len(own):
            found.append((clock, own))
    return found


def _longer(epoch: Epoch, local_ns: Int64Array, offset_ns: Int64Array) -> Epoch:
    """An epoch with more knots, thinned if they are too many. They ascend: what is not beyond the last one is left out."""
    new = local_ns > epoch.knot_ns[-1]
    knot, offset = np.concatenate((epoch.knot_ns, local_ns[new])), np.concatenate((epoch.offset_ns, offset_ns[new]))
    if len(knot) > MOST_KNOTS:
        half = len(knot) // 2
        kept = np.ones(len(knot), bool)
        kept[1:half:2] = False
        knot, offset = knot[kept], offset[kept]
    return Epoch(epoch.from_ns, knot, offset)
