"""Where the time of the ranks went, in the mean: of every step over its ranks, or of every rank over the steps asked about."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, Literal

import numpy as np

from crossrank.analysis.breakdown import CATEGORIES, Breakdown, breakdown
from crossrank.model.timeline import Timeline
from crossrank.query.answers.steps import chosen_steps
from crossrank.query.derive import Derived
from crossrank.query.jobview import JobView, carried

By = Literal["step", "rank"]
_KEPT: Final = 4
_lock = Lock()
_last: list[tuple[Timeline, Breakdown]] = []


def breakdown_means(view: JobView, *, by: By, first: int | None, last: int | None, most: int) -> dict[str, Any]:
    """Mean parts in ns, columns by category; neighbours are put together (mean) where there are more than `most`."""
    table = view.derived.steps
    chosen = chosen_steps(view, first, last)
    rows = np.arange(table.ptr[chosen[0]], table.ptr[chosen[-1] + 1]) if len(chosen) else np.empty(0, dtype=np.int64)
    key = np.repeat(table.step, np.diff(table.ptr))[rows] if by == "step" else table.rank[rows].astype(np.int64)
    keys, place = np.unique(key, return_inverse=True)
    pieces = max(1, min(len(keys), most))
    place = place * pieces // max(len(keys), 1)
    first_of = np.unique(np.arange(len(keys)) * pieces // max(len(keys), 1), return_index=True)[1]
    parts = kept_breakdown(view.derived).time_ns[rows]
    count = np.maximum(np.bincount(place, minlength=pieces), 1)
    means = {
        name: np.rint(np.bincount(place, weights=parts[:, i], minlength=pieces) / count).astype(np.int64)[: len(first_of)]
        for i, name in enumerate(CATEGORIES)
    }
    return {
        "by": by,
        "keys": keys[first_of].tolist(),
        "mean_ns": {name: values.tolist() for name, values in means.items() if values.any()},
        **carried(view),
    }


def kept_breakdown(derived: Derived) -> Breakdown:
    """Breakdown of all steps of a job, made once for the jobs asked about last."""
    with _lock:
        for held in _last:
            if held[0] is derived.timeline:
                return held[1]
        made = breakdown(derived.timeline, derived.steps)
        _last.insert(0, (derived.timeline, made))
        del _last[_KEPT:]
        return made
