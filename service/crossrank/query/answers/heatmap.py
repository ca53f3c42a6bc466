"""Which rank was late by its own work in which step: rank x step, reduced by the maximum to what a screen can show."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.query.jobview import JobView, carried


def heatmap(view: JobView, *, first: int | None, last: int | None, rows: int, columns: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/heatmap: `z` is a typed array as plotly reads it, ns; NaN where a rank was not seen in a step.

    A cell holds the largest delay of the ranks and steps it stands for, so a single late one is never averaged away; `who` is the rank
    it belongs to, where rows stand for several.
    """
    found = view.derived.delays
    lo = 0 if first is None else int(np.searchsorted(found.steps, first))
    hi = len(found.steps) if last is None else int(np.searchsorted(found.steps, last, side="right"))
    chosen = np.arange(lo, max(lo, hi))
    delay = found.delay_ns[:, lo : max(lo, hi)]
    edges = _edges(len(found.ranks), rows), _edges(len(chosen), columns)
    seen = delay.size > 0 and not np.isnan(delay).all()
    hottest = np.unravel_index(int(np.nanargmax(delay)), delay.shape) if seen else None
    by_column = _reduced(delay, edges[1], axis=1)
    total = np.nansum(delay, axis=1, dtype=np.float64)
    return {
        "ranks": found.ranks[edges[0]].tolist(),
        "steps": found.steps[chosen][edges[1]].tolist(),
        "last_rank": int(found.ranks[-1]) if len(found.ranks) else None,
        "last_step": int(found.steps[chosen[-1]]) if len(chosen) else None,
        "unit": "ns",
        "z": typed_array(_reduced(by_column, edges[0], axis=0)),
        "who": _largest(by_column, found.ranks, edges[0]).tolist() if len(edges[0]) < len(found.ranks) else None,
        "max_ns": float(delay[hottest]) if hottest is not None else None,
        "hottest_rank": int(found.ranks[int(np.argmax(total))]) if seen and total.max() > 0 else None,
        **carried(view, truncated=len(found.steps) < len(view.derived.steps)),
    }


def typed_array(values: np.ndarray) -> dict[str, str]:
    """Numbers as plotly reads them: base64 of little-endian float32 and the shape."""
    data = base64.b64encode(values.astype("<f4").tobytes()).decode()
    return {"dtype": "f4", "bdata": data, "shape": ", ".join(map(str, values.shape))}


def _edges(size: int, most: int) -> Int64Array:
    """First index of each of at most `most` pieces; all but the last are equal, so that cells lie on an even grid."""
    return np.arange(0, size, max(1, -(-size // most)), dtype=np.int64)


def _reduced(delay: np.ndarray, edges: Int64Array, *, axis: int) -> np.ndarray:
    """The largest of each piece; NaN is smaller than anything."""
    if delay.size == 0 or len(edges) == delay.shape[axis]:
        return delay
    reduced: np.ndarray = np.fmax.reduceat(delay, edges, axis=axis)
    return reduced


def _largest(delay: np.ndarray, ranks: np.ndarray, edges: Int64Array) -> np.ndarray:
    """The rank with the largest delay in each piece of rows, for every column; the first one where none was seen."""
    known = np.where(np.isnan(delay), -np.inf, delay)
    ends = [*edges[1:].tolist(), len(ranks)]
    places = [first + known[first:end].argmax(axis=0) for first, end in zip(edges.tolist(), ends, strict=True)]
    largest: np.ndarray = ranks[np.array(places)]
    return largest
