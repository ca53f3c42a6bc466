"""The global robust fit: one piecewise-linear correction per clock, from all collectives and messages at once.

Unknowns are phi[v, j], the correction of clock v at knot j; between knots it is linear. A step moves a clock but leaves its rate,
so a later epoch is no clock of its own: it adds one number to the curve of its domain. Row r (the end of one member) shows the
common time y_r = z_r + phi_v(z_r), plus its epoch's number. Members of an instance end together but for noise, so with the instance's true end T_k

    minimise  sum_k sum_{r in k} w_r (y_r - T_k)^2  +  sum_{v,j} L_vj (phi_v,j-1 - 2 phi_v,j + phi_v,j+1)^2
              +  R sum_{v,j} (phi_v,j+1 - phi_v,j)^2

T_k is eliminated (the weighted mean of its rows). Weights come from the residuals by iteration (IRLS): a row far off counts
little (Student-t), and the second difference, the wander of a clock's rate, is judged by a Cauchy law, so that a real change of
rate (a slew) costs little more than none. The last term says that a quartz is right to tens of ppm; it counts only where rows are few.

The normal equations are never written down: one product A x is a pass over the rows, and conjugate gradients with the exact
block of each clock (a band of five diagonals, factorised) as preconditioner needs a dozen of them. So memory is O(rows) and
10,000 clocks are no different from ten. Only differences between clocks are determined, so the common offset and rate of each
component are kept where they started: the solution moves only among corrections that share no straight line. What the clocks have
in common beyond that is left to the prior, which rather bends one clock sharply (a slew) than all the others a little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array

EARLY_WEIGHT = 40.0  # noise is one-sided: who ends early is near the truth, who ends late says little of how late
STUDENT_SCALE = 2.0  # residuals beyond this many sigmas begin to lose weight
CAUCHY_SCALE = 5.0  # the same for second differences
SIGMA_FLOOR_NS = 50.0
FAMILY_ROWS = 40  # fewer do not give a sigma of their own
RIDGE = 1e-9  # relative; keeps clocks without rows in place
MOST_STEPS = 200  # of conjugate gradients


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


def improve(phi: Float64Array, groups: tuple[Rows, ...], before: Prior, component: Int32Array, *, tolerance: float) -> Float64Array:
    """One weighted least squares solution, starting from and returning phi [V, K]. Deterministic.

    component: [D] of each domain, the curves come first in phi. tolerance: the remaining error, in standard errors of the unknowns.
    """
    gradient = before.times(phi)
    for rows in groups:
        _scatter(rows.ptr, rows.v, rows.e, rows.j, rows.u, rows.w, rows.shown(phi), gradient)
    band = _band(phi.shape, groups, before)
    gauge = _Gauge(component, _has_rows(phi.shape, groups), free=not before.bend.any() and phi.shape[1] > 2)
    _factorise(band)
    return phi - _conjugate_gradients(gradient, groups, before, band, gauge, tolerance)


class _Gauge:
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
        curves = x[: len(self._component)]
        sums = self._sums(curves * self._active)
        if self._shapes is None:
            common = sums / np.maximum(self._count, 1.0)
        else:
            common = np.einsum("csk,cs->ck", self._shapes, np.einsum("csk,ck->cs", self._shapes, sums))
        out = x.copy()
        out[: len(curves)] -= self._active * common[self._component]
        return out


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


def _has_rows(shape: tuple[int, ...], groups: tuple[Rows, ...]) -> Float64Array:
    active = np.zeros(shape)
    for rows in groups:
        active[rows.v, rows.j] = 1.0
        active[rows.v, rows.j + 1] = 1.0
    return active


def _conjugate_gradients(
    b: Float64Array, groups: tuple[Rows, ...], before: Prior, band: Float64Array, gauge: _Gauge, tolerance: float
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


def _bend(phi: Float64Array) -> Float64Array:
    return phi[:, :-2] - 2.0 * phi[:, 1:-1] + phi[:, 2:]


def _band(shape: tuple[int, ...], groups: tuple[Rows, ...], before: Prior) -> Float64Array:
    """[V, K, 3] diagonal and two subdiagonals of each clock's own block (its rows taken against fixed T_k)."""
    band = np.zeros((*shape, 3))
    for rows in groups:
        _add_to_band(rows.v, rows.e, rows.j, rows.u, rows.w, band)
    before.add_to(band)
    band[:, :, 0] += RIDGE * max(float(band[:, :, 0].sum()) / max(band[:, :, 0].size, 1), 1e-300)
    return band


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
