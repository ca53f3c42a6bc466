"""What is known of clocks before any row is read.

A clock's rate wanders slowly, so the second differences of its correction are small; their law is Cauchy's, not Gauss's, so that a
real change of rate (a slew) costs little more than none. And a quartz is right to tens of ppm, which bounds first differences; that
counts only where rows are few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossrank.model.arrays import BoolArray, Float64Array

CAUCHY_SCALE = 5.0  # second differences beyond this many of their sigmas begin to cost little more


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of clocks before any row. curves: how many; the rest of phi are numbers of epochs, of which nothing is known."""

    curves: int
    bend: Float64Array  # [curves, K - 2] weights of the second differences
    slope: float  # weight of the first differences

    def times(self, x: Float64Array) -> Float64Array:
        """The prior's part of A x."""
        out = np.zeros_like(x)
        c = self.bend * _bend(x[: self.curves])
        out[: self.curves, :-2] += c
        out[: self.curves, 1:-1] -= 2.0 * c
        out[: self.curves, 2:] += c
        c = self.slope * np.diff(x[: self.curves])
        out[: self.curves, :-1] -= c
        out[: self.curves, 1:] += c
        return out

    def add_to(self, band: Float64Array) -> None:
        """The prior's part of each curve's own block."""
        band = band[: self.curves]
        inner = self.bend.shape[1]
        for offset, c in ((0, 1.0), (1, 4.0), (2, 1.0)):
            band[:, offset : offset + inner, 0] += c * self.bend
        band[:, 0:inner, 1] -= 2.0 * self.bend
        band[:, 1 : 1 + inner, 1] -= 2.0 * self.bend
        band[:, 0:inner, 2] += self.bend
        band[:, :-1, 0] += self.slope
        band[:, 1:, 0] += self.slope
        band[:, :-1, 1] -= self.slope

    def loosened(self, where: BoolArray, stiffness: float) -> Prior:
        """The same with second differences held by no more than `stiffness` at some places [curves, K - 2]."""
        return replace(self, bend=np.where(where, np.minimum(self.bend, stiffness), self.bend))


def prior(phi: Float64Array, curves: int, stiffness: float, slope: float) -> Prior:
    """The prior around `phi`: `stiffness` is one over the expected square of a second difference, `slope` the weight of first ones."""
    bend = _bend(phi[:curves])
    return Prior(curves, stiffness / (1.0 + bend * bend * stiffness / CAUCHY_SCALE**2), slope)


def _bend(phi: Float64Array) -> Float64Array:
    return phi[:, :-2] - 2.0 * phi[:, 1:-1] + phi[:, 2:]
