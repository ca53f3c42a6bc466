"""Which rank was late by its own work in which step: rank x step, reduced by the maximum to what a screen can show."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.query.jobview import JobView, carried


def heatmap(view: JobView, *, first: int | None, last: int | None, rows: int, columns: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/heatmap: `z` is a typed array as plotly reads it, ns; NaN where a rank was not seen in a step.

    A cell holds the largest delay of the ranks and steps it stands for, so a single late one is never averaged away.
    """
    found = view.derived.delays
    lo = 0 if first is None else int(np.searchsorted(found.steps, first))
    hi = len(found.steps) if last is None else int(np.searchsorted(found.steps, last, side="right"))
    chosen = np.arange(lo, max(lo, hi))
    delay = found.delay_ns[:, lo : max(lo, hi)]
    edges = _edges(len(found.ranks), rows), _edges(len(chosen), columns)
    seen = delay.size > 0 and not np.isnan(delay).all()
    hottest = np.unravel_index(int(np.nanargmax(delay)), delay.shape) if seen else None
    total = np.nansum(delay, axis=1, dtype=np.float64)
    return {
        "ranks": found.ranks[edges[0]].tolist(),
        "steps": found.steps[chosen][edges[1]].tolist(),
        "last_rank": int(found.ranks[-1]) if len(found.ranks) else None,
        "last_step": int(found.steps[chosen[-1]]) if len(chosen) else None,
        "unit": "ns",
        "z": typed_array(_reduced(delay, *edges)),
        "max_ns": float(delay[hottest]) if hottest is not None else None,
        "hottest_rank": int(found.ranks[int(np.argmax(total))]) if seen and total.max() > 0 else None,
        **carried(view, truncated=len(found.steps) < len(view.derived.steps)),
    }


def typed_array(values: np.ndarray) -> dict[str, str]:
    """Numbers as plotly reads them: base64 of little-endian float32 and the shape."""
    data = base64.b64encode(values.astype("<f4").tobytes()).decode()
    return {"dtype": "f4", "bdata": data, "shape": ", ".join(map(str, values.shape))}


def _edges(size: int, most: int) -> Int64Array:
    """First index of each of at most `most` nearly equal pieces."""
    pieces = min(size, most)
    return (np.arange(pieces, dtype=np.int64) * size) // max(pieces, 1)


def _reduced(delay: np.ndarray, row_edges: Int64Array, column_edges: Int64Array) -> np.ndarray:
    """The largest of each block; NaN is smaller than anything."""
    if delay.size == 0:
        return np.zeros((len(row_edges), len(column_edges)), dtype=np.float32)
    reduced: np.ndarray = np.fmax.reduceat(np.fmax.reduceat(delay, column_edges, axis=1), row_edges, axis=0)
    return reduced
