"""When did each step begin and end over all ranks, is it complete, and who finished last."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.query.jobview import JobView, carried


def chosen_steps(view: JobView, first: int | None, last: int | None) -> Int64Array:
    """Rows of the step table within [first, last], either end open."""
    step = view.derived.steps.step
    lo = 0 if first is None else int(np.searchsorted(step, first))
    hi = len(step) if last is None else int(np.searchsorted(step, last, side="right"))
    return np.arange(lo, max(lo, hi), dtype=np.int64)


def steps(view: JobView, *, first: int | None, last: int | None, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/steps."""
    table = view.derived.steps
    rows = chosen_steps(view, first, last)
    answer = [
        {
            "step": int(table.step[i]),
            "start_ns": int(table.start_ns[i]),
            "end_ns": int(table.end_ns[i]),
            "duration_ns": int(table.end_ns[i] - table.start_ns[i]),
            "complete": bool(table.complete[i]),
            "ranks": int(table.ranks[i]),
            "last_rank": table.last_rank_of(int(i)),
        }
        for i in rows[:limit].tolist()
    ]
    return {"steps": answer, **carried(view, truncated=len(rows) > limit)}
