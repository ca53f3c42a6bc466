"""Where on the time axis the correction of a clock may bend.

Knots are evenly spaced and common to all clocks. Close knots follow a wandering clock, but each needs rows of its own to stand
on: about thirty per clock, so that their mean has a fraction of the noise. Half a second is close enough for any quartz
(0.1 ppm per sqrt(s) wanders 30 ns in it); beyond 400 knots a long recording only gets them wider apart.

The stiffness is one over the expected square of a second difference: a rate that random-walks with q (1 / sqrt(s)) gives
phase second differences over knots dt apart a variance of 2/3 q^2 dt^3. The rate itself is known to tens of ppm beforehand, which
matters to short and noisy recordings only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.arrays import Float64Array, Int32Array

CLOSEST_NS = 0.5e9
WIDEST_NS = 5e9
ROWS_PER_KNOT = 30
MOST_KNOTS = 400
FINER = 5
MOST_FINE_KNOTS = 2000
WILD_STAMPS = 4  # that many, or 0.2 %, at either end may be wild: more than the length of all others away
USUAL_DRIFT = 50e-6  # how far the rate of a clock is off
WANDER_PER_SQRT_S = 1e-7  # 0.1 ppm / sqrt(s): a plain crystal in a warm rack


@dataclass(frozen=True, slots=True)
class Knots:
    """`count` >= 2 knots, `step_ns` apart from `first_ns` on."""

    first_ns: float
    step_ns: float
    count: int

    @property
    def at_ns(self) -> Float64Array:
        """[count] axis times."""
        return self.first_ns + self.step_ns * np.arange(self.count, dtype=np.float64)

    @property
    def stiffness(self) -> float:
        """1 / ns^2, of second differences, for `solve.prior`."""
        dt_s = self.step_ns * 1e-9
        return 1.0 / (2.0 / 3.0 * (WANDER_PER_SQRT_S * 1e9) ** 2 * dt_s**3)

    @property
    def slope_weight(self) -> float:
        """1 / ns^2, of first differences: all of them together say what is known of the mean rate."""
        return 1.0 / ((USUAL_DRIFT * self.step_ns) ** 2 * (self.count - 1))

    def place(self, z: Float64Array) -> tuple[Int32Array, Float64Array]:
        """Interval and place in it, (j, u); times beyond the ends count as at the ends."""
        at = np.clip((z - self.first_ns) / self.step_ns, 0.0, self.count - 1.0)
        j = np.minimum(at.astype(np.int32), np.int32(self.count - 2))
        return j, at - j

    def finer(self) -> Knots:
        """The same stretch with knots closer together, for clocks that bend between these."""
        times = max(1, min(FINER, MOST_FINE_KNOTS // self.count))
        return Knots(self.first_ns, self.step_ns / times, (self.count - 1) * times + 1)

    def line(self) -> Knots:
        """Two knots at the ends: a straight line."""
        return Knots(self.first_ns, self.step_ns * (self.count - 1), 2)


def choose_knots(z: Float64Array, clocks: int) -> Knots:
    """Knots for rows at axis times z of so many clocks. One wild stamp does not stretch the axis."""
    if len(z) == 0:
        return Knots(0.0, CLOSEST_NS, 3)
    ordered = np.sort(z)
    spare = min(max(WILD_STAMPS, len(z) // 500), (len(z) - 1) // 2)
    low, high = float(ordered[spare]), float(ordered[-1 - spare])
    first, last = max(float(ordered[0]), 2.0 * low - high), min(float(ordered[-1]), 2.0 * high - low)
    length = max(last - first, 1e6)
    wanted = np.clip(ROWS_PER_KNOT * clocks * length / len(z), CLOSEST_NS, WIDEST_NS)
    count = int(np.clip(np.ceil(length / wanted) + 1, 3, MOST_KNOTS))
    return Knots(first, length / (count - 1), count)
