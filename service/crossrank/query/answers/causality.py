"""Whether one span happened before another, and through which chain of spans."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.errors import BadParameter, NotFound
from crossrank.query.causal_indexes import causal_index_of
from crossrank.query.jobview import JobView, carried
from crossrank.reconstruct.causality import cone as forward_cone
from crossrank.reconstruct.causality import relation

_ID_DIGITS = 16


def causality(view: JobView, a: str, b: str) -> dict[str, Any]:
    """GET /v1/jobs/{job}/causality. a, b: `span_id` or `rank:span_id`. Raises BadParameter, NotFound."""
    first, second = _span(view, a, "a"), _span(view, b, "b")
    timeline = view.derived.timeline
    found = relation(causal_index_of(timeline), first, second)
    spans = [_step(view, span) for span in found.path]
    return {"relation": found.relation, "path": [s["span_id"] for s in spans], "spans": spans, **carried(view)}


def cone(view: JobView, of: str, *, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/causality/cone: where each lane first depends on the end of a span, earliest in causal order first."""
    span = _span(view, of, "of")
    timeline = view.derived.timeline
    found = forward_cone(causal_index_of(timeline), span)
    entries = found.entry[found.entry >= 0]
    entries = entries[np.lexsort((entries, timeline.order.lamport[entries]))]
    shown = [{"lane": timeline.trace.lanes[timeline.trace.lane[e // 2]], "at": "end" if e % 2 else "start", **_step(view, e // 2)}
             for e in entries[:limit].tolist()]  # fmt: skip
    ranks = np.unique(timeline.trace.rank[entries // 2]).tolist()
    truncated = len(entries) > limit
    return {"of": _step(view, span), "stamps": found.stamps, "ranks": ranks, "entries": shown, **carried(view, truncated=truncated)}


def _span(view: JobView, given: str, field: str) -> int:
    trace = view.derived.timeline.trace
    where, _, digits = given.rpartition(":")
    try:
        span_id = int.from_bytes(bytes.fromhex(digits), "big", signed=True) if len(digits) == _ID_DIGITS else None
        rank = int(where) if where else None
    except ValueError:
        span_id, rank = None, None
    if span_id is None:
        raise BadParameter(f"{field} must be a span id of 16 hexadecimal digits, or rank:span_id", field=field)
    rows = np.flatnonzero(trace.span_id == span_id)
    if rank is not None:
        rows = rows[trace.rank[rows] == rank]
    if len(rows) == 0:
        raise NotFound(f"job {view.snapshot.job!r} has no span {given} on its timeline", field=field)
    if len(rows) > 1:
        ranks = trace.rank[rows[:4]].tolist()
        raise BadParameter(f"span {given} is on several ranks (such as {ranks}); give {field} as rank:span_id", field=field)
    return int(rows[0])


def _step(view: JobView, span: int) -> dict[str, Any]:
    timeline = view.derived.timeline
    trace = timeline.trace
    return {
        "rank": int(trace.rank[span]),
        "span_id": int(trace.span_id[span]).to_bytes(8, "big", signed=True).hex(),
        "name": trace.names[trace.name[span]],
        "start_ns": int(timeline.start_ns[span]),
        "end_ns": None if trace.is_open[span] else int(timeline.end_ns[span]),
    }
