"""Rows: what the fit compares, and how much each counts.

A row says what common time one stamp shows; the rows of a group should agree. How much a row counts follows from how far off it
is (iteratively reweighted least squares). The noise of collective ends is one-sided: a member may come back late for many reasons
and early for none. So a row before its group counts much more than one after it, and one far off, Student-t, counts little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from crossrank.model.arrays import Float64Array, Int32Array, Int64Array

EARLY_WEIGHT = 40.0  # who ends early is near the truth, who ends late says little of how late
STUDENT_SCALE = 2.0  # residuals beyond this many sigmas begin to lose weight
SIGMA_FLOOR_NS = 50.0
FAMILY_ROWS = 40  # fewer do not give a sigma of their own


@dataclass(frozen=True, slots=True)
class Rows:
    """Groups of rows that should agree.

    Row r follows curve v[r] at knot position j[r] + u[r], 0 <= u < 1. An epoch after a step has e[r] != v[r]: its number is phi[e, 0].
    """

    ptr: Int64Array  # [k + 1]
    v: Int32Array  # [m]
    e: Int32Array  # [m]
    j: Int32Array  # [m]
    u: Float64Array  # [m]
    y: Float64Array  # [m] ns
    w: Float64Array  # [m] 1 / ns^2

    def __len__(self) -> int:
        return len(self.v)

    def correction(self, phi: Float64Array) -> Float64Array:
        """[m] what phi adds to each row."""
        number = np.where(self.e != self.v, phi[self.e, 0], 0.0)
        return phi[self.v, self.j] * (1.0 - self.u) + phi[self.v, self.j + 1] * self.u + number

    def shown(self, phi: Float64Array) -> Float64Array:
        """[m] the common time each row shows under a correction."""
        return self.y + self.correction(phi)

    def centred(self, phi: Float64Array) -> Float64Array:
        """[m] residuals against the weighted mean of each group."""
        out = self.shown(phi)
        _centre(self.ptr, self.w, out)
        return out


def group_medians(ptr: Int64Array, y: Float64Array) -> Float64Array:
    """[k] median of each group."""
    out = np.empty(len(ptr) - 1)
    _medians(ptr, y, out)
    return out


def collective_weights(rows: Rows, family_ptr: Int64Array, phi: Float64Array, *, first: bool) -> tuple[Rows, float]:
    """Rows with weights by their residuals under `phi`, and the robust sigma of all in ns.

    Families, runs of rows from `family_ptr` [f + 1], each have a sigma of their own: a group of many ranks over many hosts ends
    far less together than a small one. A family of few rows goes by all.
    """
    if len(rows) == 0:
        return rows, SIGMA_FLOOR_NS
    shown = rows.shown(phi)
    residual = shown - np.repeat(group_medians(rows.ptr, shown), np.diff(rows.ptr))
    sigma = 1.4826 * group_medians(family_ptr, np.abs(residual))
    overall = 1.4826 * float(np.median(np.abs(residual)))
    size = np.diff(family_ptr)
    sigma = np.where(size >= FAMILY_ROWS, sigma, overall)
    scale = np.repeat(np.maximum(sigma, SIGMA_FLOOR_NS), size)
    if not first:
        residual = shown
        _centre(rows.ptr, rows.w, residual)
    side = np.where(residual < 0.0, EARLY_WEIGHT, 1.0)
    weight = side / (scale**2 * (1.0 + (residual / (STUDENT_SCALE * scale)) ** 2))
    return replace(rows, w=weight), max(overall, SIGMA_FLOOR_NS)


@numba.njit(cache=True, nogil=True)
def _centre(ptr: Int64Array, w: Float64Array, y: Float64Array) -> None:
    for k in range(len(ptr) - 1):
        sw = 0.0
        sy = 0.0
        for r in range(ptr[k], ptr[k + 1]):
            sw += w[r]
            sy += w[r] * (y[r] - y[ptr[k]])
        mean = y[ptr[k]] + (sy / sw if sw > 0.0 else 0.0)
        for r in range(ptr[k], ptr[k + 1]):
            y[r] -= mean


@numba.njit(cache=True, nogil=True)
def _medians(ptr: Int64Array, y: Float64Array, out: Float64Array) -> None:
    for k in range(len(ptr) - 1):
        out[k] = np.median(y[ptr[k] : ptr[k + 1]])
