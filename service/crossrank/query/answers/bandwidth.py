"""Latency and bandwidth of every group and link, and which fall short of what they can."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from crossrank.analysis.bandwidth import speeds
from crossrank.query.jobview import JobView, carried


def bandwidth(view: JobView, *, peak_gbs: float | None, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/bandwidth: those below their best first."""
    found = speeds(view.derived.timeline, view.derived.collectives, peak_gbs=peak_gbs)
    found.sort(key=lambda s: (s.below is None, s.below or 0.0, s.group is None, s.group or "", s.op, s.ranks))
    rows = [{**asdict(s), "ranks": list(s.ranks)} for s in found[:limit]]
    return {"speeds": rows, "total": len(found), **carried(view, truncated=len(found) > limit)}
