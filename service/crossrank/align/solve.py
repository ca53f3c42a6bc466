"""The global robust fit: one piecewise-linear correction per clock, from all collectives and messages at once.

Unknowns are phi[v, j], the correction of clock v at knot j; between knots it is linear. A step moves a clock but leaves its rate,
so a later epoch is no clock of its own: it adds one number to the curve of its domain. Row r (the end of one member) shows the
common time y_r = z_r + phi_v(z_r), plus its epoch's number. Members of an instance end together but for noise, so with T_k the
instance's true end

    minimise  sum_k sum_{r in k} w_r (y_r - T_k)^2  +  sum_{v,j} L_vj (phi_v,j-1 - 2 phi_v,j + phi_v,j+1)^2
              +  R sum_{v,j} (phi_v,j+1 - phi_v,j)^2

T_k is eliminated (the weighted mean of its rows).

The normal equations are never written down: one product A x is a pass over the rows, and conjugate gradients with the exact
block of each clock (a band of five diagonals, factorised) as preconditioner needs a dozen of them. So memory is O(rows) and
10,000 clocks are no different from ten. The weights w of the rows are the matter of `rows`, L and R of `prior`.
"""

from __future__ import annotations

import numba
import numpy as np

from crossrank.align.gauge import Gauge, Settled
from crossrank.align.prior import Prior
from crossrank.align.rows import Rows
from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array

RIDGE = 1e-9  # relative; keeps clocks without rows in place
MOST_STEPS = 200  # of conjugate gradients


def improve(
    phi: Float64Array,
    groups: tuple[Rows, ...],
    before: Prior,
    component: Int32Array,
    *,
    tolerance: float,
    settled: BoolArray | None = None,
) -> Float64Array:
    """One weighted least squares solution, starting from and returning phi [V, K]. Deterministic.

    component: [D] of each domain, the curves come first in phi. tolerance: the remaining error, in standard errors of the unknowns.
    settled: [V, K] what is not to move.
    """
    gradient = before.times(phi)
    for rows in groups:
        _scatter(rows.ptr, rows.v, rows.e, rows.j, rows.u, rows.w, rows.shown(phi), gradient)
    band = _band(phi.shape, groups, before)
    gauge: Gauge | Settled
    if settled is not None:
        gauge = Settled(settled)
    else:
        gauge = Gauge(component, _has_rows(phi.shape, groups), free=not before.bend.any() and phi.shape[1] > 2)
    _factorise(band)
    return phi - _conjugate_gradients(gradient, groups, before, band, gauge, tolerance)


def _has_rows(shape: tuple[int, ...], groups: tuple[Rows, ...]) -> Float64Array:
    active = np.zeros(shape)
    for rows in groups:
        active[rows.v, rows.j] = 1.0
        active[rows.v, rows.j + 1] = 1.0
    return active


def _conjugate_gradients(
    b: Float64Array, groups: tuple[Rows, ...], before: Prior, band: Float64Array, gauge: Gauge | Settled, tolerance: float
) -> Float64Array:
    """Solves A x = b by preconditioned conjugate gradients within the gauge."""
    x = np.zeros_like(b)
    r = gauge.project(b)
    s = gauge.project(_solve_band(band, r))
    p = s.copy()
    rs = float(np.vdot(r, s))
    stop = tolerance**2 * b.size
    for _ in range(MOST_STEPS):
        if not rs > stop:
            break
        ap = before.times(p)
        for rows in groups:
            _normal_times(rows.ptr, rows.v, rows.e, rows.j, rows.u, rows.w, p, ap)
        ap = gauge.project(ap)
        curvature = float(np.vdot(p, ap))
        if not curvature > 0.0:
            break
        step = rs / curvature
        x += step * p
        r -= step * ap
        s = gauge.project(_solve_band(band, r))
        rs, last = float(np.vdot(r, s)), rs
        p = s + (rs / last) * p
    return x


def _band(shape: tuple[int, ...], groups: tuple[Rows, ...], before: Prior) -> Float64Array:
    """[V, K, 3] diagonal and two subdiagonals of each clock's own block (its rows taken against fixed T_k)."""
    band = np.zeros((*shape, 3))
    for rows in groups:
        _add_to_band(rows.v, rows.e, rows.j, rows.u, rows.w, band)
    before.add_to(band)
    band[:, :, 0] += RIDGE * max(float(band[:, :, 0].sum()) / max(band[:, :, 0].size, 1), 1e-300)
    return band


@numba.njit(cache=True, nogil=True)
def _scatter(
    ptr: Int64Array,
    v: Int32Array,
    e: Int32Array,
    j: Int32Array,
    u: Float64Array,
    w: Float64Array,
    y: Float64Array,
    out: Float64Array,
) -> None:
    """Adds the gradient of half the weighted squares of y against its group means."""
    for k in range(len(ptr) - 1):
        sw = 0.0
        sy = 0.0
        for r in range(ptr[k], ptr[k + 1]):
            sw += w[r]
            sy += w[r] * (y[r] - y[ptr[k]])  # differences keep the digits
        if sw <= 0.0:
            continue
        mean = y[ptr[k]] + sy / sw
        for r in range(ptr[k], ptr[k + 1]):
            g = w[r] * (y[r] - mean)
            out[v[r], j[r]] += g * (1.0 - u[r])
            out[v[r], j[r] + 1] += g * u[r]
            if e[r] != v[r]:
                out[e[r], 0] += g


@numba.njit(cache=True, nogil=True)
def _normal_times(
    ptr: Int64Array,
    v: Int32Array,
    e: Int32Array,
    j: Int32Array,
    u: Float64Array,
    w: Float64Array,
    x: Float64Array,
    out: Float64Array,
) -> None:
    """Adds A x: interpolate to the rows, take each group's weighted mean off, weight and spread back."""
    for k in range(len(ptr) - 1):
        sw = 0.0
        sy = 0.0
        for r in range(ptr[k], ptr[k + 1]):
            at = x[v[r], j[r]] * (1.0 - u[r]) + x[v[r], j[r] + 1] * u[r]
            if e[r] != v[r]:
                at += x[e[r], 0]
            sw += w[r]
            sy += w[r] * at
        if sw <= 0.0:
            continue
        mean = sy / sw
        for r in range(ptr[k], ptr[k + 1]):
            at = x[v[r], j[r]] * (1.0 - u[r]) + x[v[r], j[r] + 1] * u[r]
            if e[r] != v[r]:
                at += x[e[r], 0]
            g = w[r] * (at - mean)
            out[v[r], j[r]] += g * (1.0 - u[r])
            out[v[r], j[r] + 1] += g * u[r]
            if e[r] != v[r]:
                out[e[r], 0] += g


@numba.njit(cache=True, nogil=True)
def _add_to_band(v: Int32Array, e: Int32Array, j: Int32Array, u: Float64Array, w: Float64Array, band: Float64Array) -> None:
    for r in range(len(v)):
        a = 1.0 - u[r]
        band[v[r], j[r], 0] += w[r] * a * a
        band[v[r], j[r] + 1, 0] += w[r] * u[r] * u[r]
        band[v[r], j[r], 1] += w[r] * a * u[r]
        if e[r] != v[r]:
            band[e[r], 0, 0] += w[r]


@numba.njit(cache=True, nogil=True)
def _factorise(band: Float64Array) -> None:
    """L D L^T of every clock's five-diagonal block in place: D in column 0, L's subdiagonals in columns 1 and 2."""
    for v in range(band.shape[0]):
        for i in range(band.shape[1]):
            d = band[v, i, 0]
            if i >= 1:
                d -= band[v, i - 1, 1] ** 2 * band[v, i - 1, 0]
            if i >= 2:
                d -= band[v, i - 2, 2] ** 2 * band[v, i - 2, 0]
            d = max(d, 1e-12 * band[v, i, 0])
            c = band[v, i, 1]
            if i >= 1:
                c -= band[v, i - 1, 1] * band[v, i - 1, 2] * band[v, i - 1, 0]
            band[v, i, 0] = d
            band[v, i, 1] = c / d
            band[v, i, 2] = band[v, i, 2] / d


@numba.njit(cache=True, nogil=True)
def _solve_band(band: Float64Array, b: Float64Array) -> Float64Array:
    x = b.copy()
    knots = band.shape[1]
    for v in range(band.shape[0]):
        for i in range(knots):
            if i >= 1:
                x[v, i] -= band[v, i - 1, 1] * x[v, i - 1]
            if i >= 2:
                x[v, i] -= band[v, i - 2, 2] * x[v, i - 2]
        for i in range(knots - 1, -1, -1):
            x[v, i] /= band[v, i, 0]
            if i + 1 < knots:
                x[v, i] -= band[v, i, 1] * x[v, i + 1]
            if i + 2 < knots:
                x[v, i] -= band[v, i, 2] * x[v, i + 2]
    return x
