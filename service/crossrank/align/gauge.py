"""The part of a solution that no row can determine, and how it is kept still.

Rows only compare clocks, so an offset and a rate common to all clocks of a component fit as well as none. The solution moves only
among corrections that share no straight line. What the clocks have in common beyond that is left to the prior, which rather bends
one clock sharply than all the others a little: fixing the mean of all clocks instead would hand a share of one clock's slew to each.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Float64Array, Int32Array


class Gauge:
    """Projection onto steps without a common straight line in any component, over the clocks and knots that rows speak about.

    Without a prior (`free`) nothing ties one knot to the next, and what is common at each of them is taken off.
    """

    def __init__(self, component: Int32Array, active: Float64Array, *, free: bool) -> None:
        self._component, self._active = component, active[: len(component)]
        self._count = self._sums(self._active)
        self._shapes = None if free else np.array([_common_lines(count) for count in self._count]).reshape(-1, 2, active.shape[1])

    def _sums(self, x: Float64Array) -> Float64Array:
        out = np.zeros((int(self._component.max(initial=-1)) + 1, x.shape[1]))
        np.add.at(out, self._component, x)
        return out

    def project(self, x: Float64Array) -> Float64Array:
        """[V, K] the nearest step that leaves alone what cannot be determined."""
        curves = x[: len(self._component)]
        sums = self._sums(curves * self._active)
        if self._shapes is None:
            common = sums / np.maximum(self._count, 1.0)
        else:
            common = np.einsum("csk,cs->ck", self._shapes, np.einsum("csk,ck->cs", self._shapes, sums))
        out = x.copy()
        out[: len(curves)] -= self._active * common[self._component]
        return out


class Settled:
    """Projection onto steps that leave alone what was settled before: where that joins all clocks nothing is undetermined."""

    def __init__(self, settled: BoolArray) -> None:
        self._settled = settled

    def project(self, x: Float64Array) -> Float64Array:
        """[V, K] the step without what it would do to settled numbers."""
        return np.where(self._settled, 0.0, x)


def _common_lines(count: Float64Array) -> Float64Array:
    """[2, K] a constant and a slope over the knots, orthonormal when every knot counts `count` times; zero where there is none."""
    out = np.zeros((2, len(count)))
    total = count.sum()
    if total > 0.0:
        out[0] = 1.0 / np.sqrt(total)
        slope = np.arange(len(count)) - (count * np.arange(len(count))).sum() / total
        size = (count * slope * slope).sum()
        out[1] = slope / np.sqrt(size) if size > 0.0 else 0.0
    return out
