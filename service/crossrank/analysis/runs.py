"""Runs of steps in which a row of cells exceeds more than chance allows: the scan statistic behind every accusation.

Noise of real machines has heavy tails: one cell of 50 ms says nothing where every rank now and then has one. So excess is not
measured in standard deviations. For a threshold x, let q0 be the share of all *other* rows' cells that exceed x (the empirical
null), and suppose that in a run of steps the row exceeds with probability q1. Each cell then adds the log likelihood ratio

    exceeds: log(q1 / q0)        does not: log((1 - q1) / (1 - q0))

and the run with the largest sum S is found in one pass (Kadane). Under the null, P(S >= s) <= (steps) * e^-s for each threshold
(Karlin & Altschul 1990: the ratio has mean one). q1 = 0.9 finds a rank that is slow in every step of a run, q1 = 0.3 one that
stops now and then. A single long step never gets far: it adds log(1/q0) once, and q0 is never below 1/(cells + 1).

Noise also comes in bursts: a machine that was slow in one step is likely to be slow in the next. If P(exceed | exceeded before)
= q0^g with g < 1 then a cell that exceeds right after another is worth only g times its ratio; g is measured on the null cells,
and held down where there are too few of them to know.

All rows and phases looked at are corrected for together (false discovery rate, Benjamini & Hochberg 1995).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.model.arrays import Float64Array, Int64Array

_DENSE, _SPARSE = 0.9, 0.3  # probability to exceed, within a run
_PRIOR_BURSTINESS = 0.6  # g, where nothing is known
_BURST_QUANTILES = (0.85, 0.95, 0.98)
_PRIOR_PAIRS = 6.0  # how many observed pairs the prior is worth
_VARIANTS = 4.0  # thresholds and kinds of runs tried for a row, as independent ones: they overlap much


@dataclass(frozen=True, slots=True)
class Run:
    """The most unlikely run of one row. Column numbers are inclusive."""

    row: int
    first: int
    last: int
    threshold: float
    is_sparse: bool
    score: float  # S, natural log units
    p_value: float  # of this row, over all its runs


@dataclass(frozen=True, slots=True)
class Null:
    """What chance looks like in a table of excess [r, s]: thresholds and how often the other rows exceed them."""

    levels: Float64Array  # [r, l]
    share: Float64Array  # [r, l] q0
    loose: Float64Array  # [r, l] q0 for pauses now and then, see `_null_share`
    burst: Float64Array  # [r] g


def null_of(excess: Float64Array, least: float) -> Null:
    """The null of a table (NaN: no cell), with thresholds of at least `least`."""
    values = np.nan_to_num(excess, nan=-np.inf)
    levels = _levels(values, excess[~np.isnan(excess)], least)
    return Null(levels, *_null_share(values, levels), burstiness(excess))


def best_runs(excess: Float64Array, null: Null, rows: Int64Array | None = None) -> list[Run]:
    """Best run of every row (or of `rows`) that has one. O(cells x thresholds)."""
    rows = np.arange(len(excess)) if rows is None else rows
    best = _scan(excess[rows], null.levels[rows], null.share[rows], null.loose[rows], null.burst[rows])
    return [
        Run(
            int(r), int(b[1]), int(b[2]), float(null.levels[r, int(b[3])]), bool(b[4] > 0), float(b[0]),
            float(min(1.0, excess.shape[1] * _VARIANTS * np.exp(-b[0]))),
        )
        for r, b in zip(rows.tolist(), best, strict=True)
        if b[0] > 0
    ]  # fmt: skip


def burstiness(excess: Float64Array) -> Float64Array:
    """[r] g as the other rows show it: 1 where exceeding is independent from step to step, less where it comes in bursts.

    The least of several thresholds, because bursts may be of long cells only.
    """
    present = ~np.isnan(excess)
    if not present.any():
        return np.full(len(excess), _PRIOR_BURSTINESS)
    least = np.ones(len(excess))
    for x in np.quantile(excess[present], _BURST_QUANTILES).tolist():
        over = np.where(present, excess > x, False)
        parts = (present, over, over[:, :-1] & present[:, 1:], over[:, :-1] & over[:, 1:])
        counts = np.array([part.sum(axis=1) for part in parts], dtype=np.float64)
        cells, hit, after, both = counts.sum(axis=1, keepdims=True) - counts
        q = np.clip(hit / np.maximum(cells, 1.0), 0.001, 0.5)
        p = (both + _PRIOR_PAIRS * q**_PRIOR_BURSTINESS) / (after + _PRIOR_PAIRS)
        least = np.minimum(least, np.log(np.minimum(p, 0.999)) / np.log(q))
    return np.clip(least, 0.3, 1.0)


def adjust(p_values: Float64Array) -> Float64Array:
    """Benjamini-Hochberg: the false discovery rate at which each would just be accepted."""
    n = len(p_values)
    order = np.argsort(p_values)
    scaled = p_values[order] * n / np.arange(1, n + 1)
    out = np.empty(n)
    out[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return out


def _levels(values: Float64Array, null: Float64Array, least: float) -> Float64Array:
    """[r, l] thresholds per row: upper quantiles 1 - 2^-k of all cells, and the largest cell of all other rows."""
    k = np.arange(1, int(np.log2(max(len(null), 2))) + 1)
    shared = np.quantile(null, 1 - 0.5**k) if len(null) else np.zeros(len(k))
    top = values.max(axis=1)
    order = np.argsort(top)
    others = np.full(len(values), top[order[-1]])
    others[order[-1]] = top[order[-2]] if len(values) > 1 else 0.0
    levels = np.concatenate((np.tile(shared, (len(values), 1)), others[:, None]), axis=1)
    return np.maximum(np.nan_to_num(levels, neginf=0.0), least)


def _null_share(values: Float64Array, levels: Float64Array) -> tuple[Float64Array, Float64Array]:
    """[r, l] share of the other rows' cells above each threshold, never 0: (above + 1) / (cells + 1).

    And the share that a row may have without being unlike the others: two standard deviations (of the other rows' shares) more.
    """
    cells = np.isfinite(values).sum(axis=1).astype(np.float64)
    share, spread = np.empty(levels.shape), np.empty(levels.shape)
    for level in range(levels.shape[1]):
        # Rows have the same thresholds except the last one, so one count per column of `levels` is not enough there.
        shared = np.unique(levels[:, level])
        for x in shared.tolist():
            above = (values > x).sum(axis=1).astype(np.float64)
            rows = np.flatnonzero(levels[:, level] == x)
            others, total = above.sum() - above[rows], cells.sum() - cells[rows]
            share[rows, level] = (others + 1) / (total + 1)
            rate = above / np.maximum(cells, 1)
            n = max(len(rate) - 1, 1)
            mean, square = (rate.sum() - rate[rows]) / n, ((rate**2).sum() - rate[rows] ** 2) / n
            spread[rows, level] = np.sqrt(np.maximum(square - mean**2, 0.0))
    return share, np.minimum(share + 2 * spread, 1.0)


@njit(cache=True, nogil=True)
def _scan(
    values: Float64Array, levels: Float64Array, share: Float64Array, loose: Float64Array, burst: Float64Array
) -> Float64Array:
    """[r, 5] score, first, last, level and sparseness of each row's best run. A run starts and ends on a cell that exceeds."""
    best = np.zeros((len(values), 5))
    for r in range(len(values)):
        g = burst[r]
        for level in range(levels.shape[1]):
            for sparse in range(2):
                q0 = loose[r, level] if sparse else share[r, level]
                q1 = _SPARSE if sparse else _DENSE
                if q0 >= q1 / 2:
                    continue
                hit, miss = np.log(q1 / q0), np.log((1 - q1) / (1 - q0))
                score, first, again = 0.0, 0, False
                for c in range(values.shape[1]):
                    if np.isnan(values[r, c]):
                        continue
                    if values[r, c] > levels[r, level]:
                        gain = g * hit if again else hit
                        if score + gain > hit:
                            score += gain
                        else:
                            score, first = hit, c
                        again = True
                        if score > best[r, 0]:
                            best[r, 0], best[r, 1], best[r, 2], best[r, 3], best[r, 4] = score, first, c, level, sparse
                    else:
                        score = max(score + miss, 0.0)
                        again = False
    return best


def hits(row: Float64Array, run: Run) -> Int64Array:
    """Columns of the run in which the row exceeds its threshold."""
    inside = np.arange(run.first, run.last + 1)
    return inside[np.nan_to_num(row[inside], nan=-np.inf) > run.threshold]
