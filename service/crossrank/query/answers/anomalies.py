"""Values of posted metrics that should not be, with step, rank and batch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from crossrank.analysis.anomalies import Anomaly, find_anomalies
from crossrank.analysis.series import metric_series
from crossrank.model.timeline import NO_STEP
from crossrank.query.jobview import JobView, carried
from crossrank.store.filter import EventFilter

_BATCH = ("batch_id", "batch")


def anomalies(view: JobView, *, sigmas: float, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/anomalies, by time."""
    found = find_anomalies(metric_series(view.derived.timeline), sigmas=sigmas)
    batches = _batches(view, found[:limit])
    rows = [
        {
            "class": a.class_,
            "metric": a.name,
            "rank": a.rank,
            "step": None if a.step == NO_STEP else a.step,
            "at_ns": a.at_ns,
            "value": a.value if np.isfinite(a.value) else None,
            "usual": a.usual,
            "limit": a.limit,
            "batch": batches.get(a.span),
        }
        for a in found[:limit]
    ]
    return {"anomalies": rows, "total": len(found), **carried(view, truncated=len(found) > limit)}


def _batches(view: JobView, found: list[Anomaly]) -> dict[int, str]:
    """Batch ids by span: of the metric event itself, where its attrs have one."""
    if not found:
        return {}
    trace = view.derived.timeline.trace
    where = EventFilter(attempt=trace.attempt, ranks=sorted({a.rank for a in found}), kinds=["metric"])
    events = view.snapshot.events(["rank", "span_id", "attrs"], where)
    named: dict[tuple[int, int], str] = {}
    for rank, span_id, text in zip(*(events[c].to_pylist() for c in ("rank", "span_id", "attrs")), strict=True):
        attrs = json.loads(text) if text else {}
        batch = next((attrs[k] for k in _BATCH if k in attrs), None)
        if batch is not None:
            named[rank, int.from_bytes(span_id, "big", signed=True)] = str(batch)
    keys = {a.span: (a.rank, int(trace.span_id[a.span])) for a in found}
    return {span: named[key] for span, key in keys.items() if key in named}
