"""Arrows of a timeline: from whom others waited for to those who waited, most costly first.

collective   the last arriver's start -> the end of every member that waited; only where it is beyond doubt who came last
message      the send's start -> the end of a receive that waited for it
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.query.jobview import JobView
from crossrank.query.timeline_index import TimelineIndex

MOST_ARROWS: Final = 200
_MOST_HEADS: Final = 32  # waiters drawn for one operation


def arrows_of(view: JobView, index: TimelineIndex, row_of_lane: Int64Array, lo: int, hi: int) -> list[dict[str, Any]]:
    """Arrows that touch the window and have at least one waiter on a row shown."""
    found = _collectives(view, index, row_of_lane, lo, hi) + _messages(view, index, row_of_lane, lo, hi)
    found.sort(key=lambda arrow: -arrow["wait_ns"])
    return found[:MOST_ARROWS]


def _collectives(view: JobView, index: TimelineIndex, row_of_lane: Int64Array, lo: int, hi: int) -> list[dict[str, Any]]:
    derived = view.derived
    trace, found, times = derived.timeline.trace, derived.timeline.matches.collectives, derived.collectives
    at = times.last_arrival_ns - index.base_ns
    is_shown = np.zeros(len(found), dtype=bool)
    is_shown[found.instance[(times.wait_ns > 0) & (row_of_lane[trace.lane[found.member]] >= 0)]] = True
    chosen = np.flatnonzero(times.decided & is_shown & (at >= lo) & (at < hi))
    chosen = chosen[np.argsort(-index.collective_wait_ns[chosen], kind="stable")]
    arrows: list[dict[str, Any]] = []
    for k in chosen[:MOST_ARROWS].tolist():
        members = found.member[found.ptr[k] : found.ptr[k + 1]]
        waits = times.wait_ns[found.ptr[k] : found.ptr[k + 1]]
        last = int(members[np.argmax(trace.rank[members] == times.last_arriver[k])])
        waiting = members[(waits > 0) & (members != last)]
        to = _heads(view, index, row_of_lane, waiting)
        if to:
            arrows.append(_arrow(view, index, row_of_lane, last, to, int(index.collective_wait_ns[k])))
    return arrows


def _messages(view: JobView, index: TimelineIndex, row_of_lane: Int64Array, lo: int, hi: int) -> list[dict[str, Any]]:
    messages, trace = view.derived.timeline.matches.messages, view.derived.timeline.trace
    at, shown = index.span_start[messages.send], row_of_lane[trace.lane[messages.recv]] >= 0
    chosen = np.flatnonzero(shown & (index.message_wait_ns > 0) & (at >= lo) & (at < hi))
    chosen = chosen[np.argsort(-index.message_wait_ns[chosen], kind="stable")][:MOST_ARROWS]
    return [
        _arrow(
            view, index, row_of_lane, int(messages.send[i]), _heads(view, index, row_of_lane, messages.recv[i : i + 1]),
            int(index.message_wait_ns[i]),
        )
        for i in chosen.tolist()
    ]  # fmt: skip


def _heads(view: JobView, index: TimelineIndex, row_of_lane: Int64Array, spans: Int64Array) -> list[dict[str, int]]:
    trace = view.derived.timeline.trace
    rows = row_of_lane[trace.lane[spans]]
    spans, rows = spans[rows >= 0][:_MOST_HEADS], rows[rows >= 0]
    return [
        {"row": row, "rank": int(trace.rank[i]), "at": int(index.span_stop[i])}
        for i, row in zip(spans.tolist(), rows.tolist(), strict=False)
    ]


def _arrow(
    view: JobView, index: TimelineIndex, row_of_lane: Int64Array, cause: int, to: list[dict[str, int]], wait_ns: int
) -> dict[str, Any]:
    trace, pairs = view.derived.timeline.trace, view.derived.timeline.clocks.pairs
    row = int(row_of_lane[trace.lane[cause]])
    domains = {int(trace.domain[cause]), *(int(d) for d in _domains(view, to))}
    bound = pairs.widest(np.array(sorted(domains)))
    return {
        "group": trace.groups[trace.group[cause]] if trace.group[cause] >= 0 else None,
        "seq": int(trace.seq[cause]) if trace.has_seq[cause] else None,
        "op": trace.ops[trace.op[cause]] if trace.op[cause] >= 0 else None,
        "from": {"row": None if row < 0 else row, "rank": int(trace.rank[cause]), "at": int(index.span_start[cause])},
        "to": to,
        "bound_ns": bound if bound < UNALIGNED_NS else None,
        "wait_ns": wait_ns,
    }


def _domains(view: JobView, heads: list[dict[str, int]]) -> list[int]:
    trace = view.derived.timeline.trace
    first = np.searchsorted(trace.rank, np.array([h["rank"] for h in heads], dtype=trace.rank.dtype))
    return [int(d) for d in trace.domain[first]]
