"""Runs of steps in which a row of cells exceeds more than chance allows: the scan statistic behind every accusation.

Noise of real machines has heavy tails: one cell of 50 ms says nothing where every rank now and then has one. So excess is not
measured in standard deviations. For a threshold x, let q0 be the share of all *other* rows' cells that exceed x (the empirical
null), and suppose that in a run of steps the row exceeds with probability q1. Each cell then adds the log likelihood ratio

    exceeds: log(q1 / q0)        does not: log((1 - q1) / (1 - q0))

and the run with the largest sum S is found in one pass (Kadane). Under the null, P(S >= s) <= (steps) * e^-s for each threshold
(Karlin & Altschul 1990: the ratio has mean one). q1 = 0.9 finds a rank that is slow in every step of a run, q1 = 0.3 one that
stops now and then. A single long step never gets far: it adds log(1/q0) once, and q0 is never below 1/(cells + 1).

Noise also comes in bursts: a machine that was slow in one step is likely to be slow in the next. If P(exceed | exceeded before)
= q0^g with g < 1 then all cells of a run after its first are worth only g times their ratio; g is measured on the null cells, and
held down where there are too few of them to know.

All rows and phases looked at are corrected for together (false discovery rate, Benjamini & Hochberg 1995).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.model.arrays import Float64Array, Int64Array

_DENSE, _SPARSE = 0.9, 0.3  # probability to exceed, within a run
_PRIOR_BURSTINESS = 0.6  # g, where nothing is known
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


def best_runs(excess: Float64Array, least: float) -> list[Run]:
    """Best run of every row of excess [r, s] (NaN: no cell) over thresholds of at least `least`; rows without one are left out."""
    rows, columns = excess.shape
    values = np.nan_to_num(excess, nan=-np.inf)
    null = np.sort(excess[~np.isnan(excess)])
    levels = _levels(values, null, least)
    share = _null_share(values, null, levels)
    best = _scan(np.isnan(excess), values, levels, share, burstiness(excess))
    return [
        Run(
            r, int(best[r, 1]), int(best[r, 2]), float(levels[r, int(best[r, 3])]), best[r, 4] > 0, float(best[r, 0]),
            float(min(1.0, columns * _VARIANTS * np.exp(-best[r, 0]))),
        )
        for r in range(rows)
        if best[r, 0] > 0
    ]  # fmt: skip


def burstiness(excess: Float64Array) -> Float64Array:
    """[r] g as the other rows show it: 1 where exceeding is independent from step to step, less where it comes in bursts."""
    present = ~np.isnan(excess)
    if not present.any():
        return np.full(len(excess), _PRIOR_BURSTINESS)
    over = np.where(present, excess > np.quantile(excess[present], 0.85), False)
    cells, hit = present.sum(axis=1).astype(np.float64), over.sum(axis=1).astype(np.float64)
    after = (over[:, :-1] & present[:, 1:]).sum(axis=1).astype(np.float64)
    both = (over[:, :-1] & over[:, 1:]).sum(axis=1).astype(np.float64)
    cells, hit, after, both = (v.sum() - v for v in (cells, hit, after, both))
    q = np.clip(hit / np.maximum(cells, 1.0), 0.01, 0.5)
    p = (both + _PRIOR_PAIRS * q**_PRIOR_BURSTINESS) / (after + _PRIOR_PAIRS)
    return np.clip(np.log(np.minimum(p, 0.999)) / np.log(q), 0.3, 1.0)


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


def _null_share(values: Float64Array, null: Float64Array, levels: Float64Array) -> Float64Array:
    """[r, l] share of the other rows' cells above each threshold, never 0: (above + 1) / (cells + 1)."""
    above = len(null) - np.searchsorted(null, levels, side="right")
    mine = (values[:, None, :] > levels[:, :, None]).sum(axis=2)
    own_cells = np.isfinite(values).sum(axis=1)[:, None]
    return (np.maximum(above - mine, 0) + 1.0) / (np.maximum(len(null) - own_cells, 0) + 1.0)


@njit(cache=True, nogil=True)
def _scan(absent: np.ndarray, values: Float64Array, levels: Float64Array, share: Float64Array, burst: Float64Array) -> Float64Array:
    """[r, 5] score, first, last, level and sparseness of each row's best run. A run starts and ends on a cell that exceeds."""
    best = np.zeros((len(values), 5))
    for r in range(len(values)):
        g = burst[r]
        for level in range(levels.shape[1]):
            q0 = share[r, level]
            for sparse in range(2):
                q1 = _SPARSE if sparse else _DENSE
                if q0 >= q1 / 2:
                    continue
                hit, miss = np.log(q1 / q0), np.log((1 - q1) / (1 - q0))
                score, first = 0.0, 0
                for c in range(values.shape[1]):
                    if absent[r, c]:
                        continue
                    if values[r, c] > levels[r, level]:
                        if score + g * hit > hit:
                            score += g * hit
                        else:
                            score, first = hit, c
                        if score > best[r, 0]:
                            best[r, 0], best[r, 1], best[r, 2], best[r, 3], best[r, 4] = score, first, c, level, sparse
                    else:
                        score = max(score + g * miss, 0.0)
    return best


def hits(row: Float64Array, run: Run) -> Int64Array:
    """Columns of the run in which the row exceeds its threshold."""
    inside = np.arange(run.first, run.last + 1)
    return inside[np.nan_to_num(row[inside], nan=-np.inf) > run.threshold]
