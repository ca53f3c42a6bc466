"""What every rank did with every step: parts that sum to the rank's step to the nanosecond."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.analysis.breakdown import CATEGORIES, breakdown
from crossrank.query.answers.steps import chosen_steps
from crossrank.query.jobview import JobView, carried


def breakdown_of(view: JobView, *, first: int | None, last: int | None, rank: int | None, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/breakdown: rows by (step, rank)."""
    derived = view.derived
    table = derived.steps
    chosen = chosen_steps(view, first, last)
    rows = np.arange(table.ptr[chosen[0]], table.ptr[chosen[-1] + 1]) if len(chosen) else np.empty(0, dtype=np.int64)
    if rank is not None:
        rows = rows[table.rank[rows] == rank]
    parts = breakdown(derived.timeline, table)
    step = np.repeat(table.step, np.diff(table.ptr))
    answer = [
        {
            "step": int(step[i]),
            "rank": int(table.rank[i]),
            "total_ns": int(table.rank_end_ns[i] - table.rank_start_ns[i]),
            "parts_ns": {name: int(ns) for name, ns in zip(CATEGORIES, parts.time_ns[i].tolist(), strict=True) if ns},
            "overlapped_ns": int(parts.overlapped_ns[i]),
            "closed": bool(table.rank_closed[i]),
        }
        for i in rows[:limit].tolist()
    ]
    return {"rows": answer, "total": len(rows), **carried(view, truncated=len(rows) > limit)}
