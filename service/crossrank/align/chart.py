"""From a fit in floating point on a common axis to offsets in int64 against the reference clock.

The fit knows clocks only up to a common part. Fixing the reference removes it: the common time T = z + phi(z) that clock v shows
at a knot is what the reference shows at its own axis time z_r with z_r + phi_r(z_r) = T, so the offset there is

    offset = reference local - local = (base_r + z_r) - (base_v + z)
"""

from __future__ import annotations

import numpy as np

from crossrank.align.components import Components
from crossrank.align.epochs import Epochs
from crossrank.align.problem import Fit
from crossrank.align.summary import Activity
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.clockmap import Epoch

INVERSION_ROUNDS = 6  # each gains the factor of the clock's rate error, 1e-4 or less


def draw_epochs(fit: Fit, epochs: Epochs, used: Activity, components: Components) -> tuple[tuple[Epoch, ...], ...]:
    """[D] epochs of each domain, against the first epoch of its component's reference."""
    begins = dict(zip(range(epochs.first_of_cuts, len(epochs)), epochs.cuts, strict=True))
    charts = []
    for domain, component in enumerate(components.component.tolist()):
        reference = int(components.reference[component])
        drawn = []
        for clock in epochs.of_domain(domain):
            knot, offset = _offsets(fit, epochs, used, clock, reference)
            from_ns = begins[clock].from_ns if clock in begins else int(knot[0])
            drawn.append(Epoch(from_ns, knot, offset))
        charts.append(tuple(drawn))
    return tuple(charts)


def _offsets(fit: Fit, epochs: Epochs, used: Activity, clock: int, reference: int) -> tuple[Int64Array, Int64Array]:
    """Knots, in local time, around the stretch in which the clock is used, and its offsets there."""
    at = fit.knots.at_ns
    low = int(np.clip(np.searchsorted(at, used.first_ns[clock], side="right") - 1, 0, len(at) - 2))
    high = int(np.clip(np.searchsorted(at, used.last_ns[clock], side="left") + 1, low + 2, len(at)))
    z = np.rint(at[low:high])
    common = fit.correct(z, np.full(len(z), clock, np.int32))
    ahead = shown_by(fit, reference, common) - z
    base = epochs.base_ns
    return base[clock] + z.astype(np.int64), base[reference] - base[clock] + np.rint(ahead).astype(np.int64)


def shown_by(fit: Fit, clock: int, common: Float64Array) -> Float64Array:
    """Axis time of a clock at common times."""
    z = common
    which = np.full(len(common), clock, np.int32)
    for _ in range(INVERSION_ROUNDS):
        z = z + (common - fit.correct(z, which))
    return z
