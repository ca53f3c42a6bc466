"""How wrong the fitted times can be at most, from happened-before facts alone.

Let g be fitted times and delta_v the unknown error still to be added for clock v. Every fact "the end of a is not before the
start of b" says g(a) + delta_a >= g(b) + delta_b, that is

    delta_b - delta_a <= C[a, b] = min over all such facts of (g(end in a) - g(start in b))

The tightest consequences of all facts together are shortest paths in C (Attiya, Herzberg, Rajsbaum 1996; Halpern, Megiddo,
Munshi 1985): with D the all-pairs distances, delta_b - delta_a lies in [-D[b, a], D[a, b]] whatever the noise did. Errors move
slowly, so this is done per window of some seconds, each fact with slack for what its two clocks' errors may move inside the
window (see `_movement`). Contradictory facts show as a negative cycle: then all slack is doubled until there is none and the
wider interval stands.

A window that says little about a pair may borrow from its neighbours, with what a clock may wander meanwhile on top.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from crossrank.align.knots import WANDER_PER_SQRT_S
from crossrank.align.problem import Fit, Sightings
from crossrank.align.rows import group_medians
from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array

WINDOW_NS = 5e9
MOST_WINDOWS = 64
MOST_CLOCKS = 2000
PATH_WORK = 3e9  # at most so many steps of the shortest-path search, all windows together
ETA_NS = 500.0
RATE_SIGMAS = 3.0
MOST_GROWTH = 2.0**40
WILD_NS = 1e9  # a fact that the fit contradicts by this much is a wrong stamp or match, not a wrong clock,
MOST_WILD = 0.01  # if such facts are no more than this share


@dataclass(frozen=True, slots=True)
class Intervals:
    """distance [W, V, V]: error(b) - error(a) <= distance[w, a, b] in window w; inf where nothing is known. contradicted: [W]."""

    distance: Float64Array
    contradicted: Int64Array
    first_ns: float
    window_ns: float

    def window_of(self, g: Float64Array) -> Int64Array:
        """Window of fitted times."""
        return np.clip((g - self.first_ns) / self.window_ns, 0, len(self.distance) - 1).astype(np.int64)


def intervals(seen: Sightings, fit: Fit, clocks: int) -> Intervals | None:
    """Guaranteed pairwise intervals of the remaining errors, window by window; None for more than MOST_CLOCKS clocks."""
    if clocks > MOST_CLOCKS:  # the square of what a sender may claim is not bounded memory
        return None
    first, length = fit.knots.first_ns, fit.knots.step_ns * (fit.knots.count - 1)
    most = max(1, min(MOST_WINDOWS, int(PATH_WORK / max(clocks, 1) ** 3)))
    windows = int(np.clip(length // WINDOW_NS, 1, most))
    out = Intervals(np.full((windows, clocks, clocks), np.inf), np.zeros(windows, np.int64), first, length / windows)
    end, start = fit.correct(seen.end, seen.end_clock), fit.correct(seen.start, seen.start_clock)
    before, after = fit.correct(seen.before, seen.before_clock), fit.correct(seen.after, seen.after_clock)
    window = out.window_of(end)
    middle = np.repeat(group_medians(seen.ptr, end), np.diff(seen.ptr))
    end = np.where(_wild(end - middle), np.inf, end)
    start = np.where(_wild(middle - start), -np.inf, start)
    _collective_facts(seen.ptr, seen.start_clock, start, seen.end_clock, end, window, out.distance)
    delay = after - before
    delay = np.where(_wild(delay), np.inf, delay)
    np.minimum.at(out.distance, (out.window_of(after), seen.after_clock, seen.before_clock), delay)
    slack = _movement(seen, fit, out)
    for w in range(windows):
        out.contradicted[w] = _close(out.distance[w], slack[w])
    wander = 3.0 * WANDER_PER_SQRT_S * 1e9 * (out.window_ns * 1e-9) ** 1.5
    _borrow(out.distance, slack + wander / 2.0)
    return out


def _movement(seen: Sightings, fit: Fit, between: Intervals) -> Float64Array:
    """[W, V] how far each clock's error may move inside a window.

    The rate of n rows over a time L is wrong by about sigma sqrt(12 / n) / L. A clock that bends between two knots, where the fit
    can only bend at them, is missed by up to a quarter of what the fit bends at both.
    """
    windows, clocks = between.distance.shape[:2]
    rows = np.bincount(seen.end_clock, minlength=clocks) + np.bincount(seen.before_clock, minlength=clocks)
    by_curve = np.bincount(fit.curve, rows)[fit.curve]
    rate = RATE_SIGMAS * fit.sigma_ns * np.sqrt(12.0 / np.maximum(by_curve, 1)) / windows
    corrections = fit.corrections
    bend = np.zeros_like(corrections)
    bend[:, 1:-1] = np.abs(corrections[:, :-2] - 2.0 * corrections[:, 1:-1] + corrections[:, 2:])
    misfit = np.zeros((windows, clocks))
    for end in (fit.knots.at_ns[:-1], fit.knots.at_ns[1:]):  # of each stretch between knots
        np.maximum.at(misfit, between.window_of(end), (bend[:, :-1] + bend[:, 1:]).T / 4.0)
    return ETA_NS + rate[None, :] + misfit


def _wild(slack_ns: Float64Array) -> BoolArray:
    """Facts that speak of seconds where others speak of microseconds, as long as they are few."""
    wild = slack_ns < -WILD_NS
    return wild & (wild.sum() <= MOST_WILD * len(wild) + 1)


def _close(c: Float64Array, slack: Float64Array) -> int:
    """Shortest paths of one window in place; 1 where facts contradict each other and the slack [V] had to grow."""
    np.fill_diagonal(c, np.inf)
    growth = 1.0
    while True:
        d = c + growth * (slack[:, None] + slack[None, :])
        np.fill_diagonal(d, 0.0)
        _shortest_paths(d)
        if (np.diagonal(d) >= 0.0).all() or growth > MOST_GROWTH:
            np.fill_diagonal(d, 0.0)
            c[:] = d
            return int(growth > 1.0)
        growth *= 2.0


def _borrow(distance: Float64Array, slack: Float64Array) -> None:
    """Sweeps what is known forth and back over the windows; every step costs the slack [W, V] of the two clocks."""
    last = len(distance) - 1
    for w, neighbour in [(w, w - 1) for w in range(1, last + 1)] + [(w, w + 1) for w in range(last - 1, -1, -1)]:
        nearer = np.minimum(distance[w], distance[neighbour] + slack[w][:, None] + slack[w][None, :])
        np.fill_diagonal(nearer, 0.0)
        _shortest_paths(nearer)
        # Where the neighbour contradicts this window, a clock did not keep to its wander: nothing is borrowed.
        if (np.diagonal(nearer) >= 0.0).all():
            distance[w] = nearer


@numba.njit(cache=True, nogil=True)
def _collective_facts(
    ptr: Int64Array,
    start_clock: Int32Array,
    start: Float64Array,
    end_clock: Int32Array,
    end: Float64Array,
    window: Int64Array,
    c: Float64Array,
) -> None:
    """Per instance and pair of clocks: earliest end of the one against latest start of the other."""
    clocks = c.shape[1]
    latest, earliest, when = np.full(clocks, -np.inf), np.full(clocks, np.inf), np.zeros(clocks, np.int64)
    starters, enders = np.empty(clocks, np.int32), np.empty(clocks, np.int32)
    for k in range(len(ptr) - 1):
        s = 0
        e = 0
        for r in range(ptr[k], ptr[k + 1]):
            a, b = start_clock[r], end_clock[r]
            if start[r] > -np.inf and latest[a] == -np.inf:
                starters[s] = a
                s += 1
            latest[a] = max(latest[a], start[r])
            if end[r] < np.inf and earliest[b] == np.inf:
                enders[e] = b
                e += 1
            if end[r] < earliest[b]:
                earliest[b] = end[r]
                when[b] = window[r]
        for b in enders[:e]:
            for a in starters[:s]:
                if a != b:
                    c[when[b], b, a] = min(c[when[b], b, a], earliest[b] - latest[a])
        for a in starters[:s]:
            latest[a] = -np.inf
        for b in enders[:e]:
            earliest[b] = np.inf


@numba.njit(cache=True, nogil=True)
def _shortest_paths(d: Float64Array) -> None:
    """Floyd-Warshall in place; stops when a cycle is negative (a diagonal below zero)."""
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            through = d[i, k]
            if through < np.inf:
                for j in range(n):
                    d[i, j] = min(d[i, j], through + d[k, j])
        if d[k, k] < 0.0:
            return
