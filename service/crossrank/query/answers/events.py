"""The events themselves, aligned, page by page.

Pages run in the order (raw start, rank, span id), which no later event or derivation changes for the rows already there, so a
cursor stays good while events come in. The cursor holds the last row's place in that order.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.errors import BadParameter, NotFound
from crossrank.query.aligned import with_alignment
from crossrank.query.jobview import JobView, carried
from crossrank.store.filter import EventFilter


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events; times are aligned. limit is already within bounds."""

    rank: int | None
    step: int | None
    kind: str | None
    group: str | None
    from_ns: int | None
    to_ns: int | None
    limit: int
    cursor: str | None


class _Place(msgspec.Struct, array_like=True):
    start_ns: int
    rank: int
    span_id: str


def events_page(view: JobView, query: EventQuery) -> tuple[pa.Table, str | None]:
    """One page of aligned events and the cursor of the next page, None at the end. Raises BadParameter for a bad cursor."""
    after = _read_cursor(query.cursor) if query.cursor else None
    where = EventFilter(
        attempt=view.derived.timeline.trace.attempt,
        ranks=None if query.rank is None else (query.rank,),
        kinds=None if query.kind is None else (query.kind,),
        groups=None if query.group is None else (query.group,),
        from_ns=after.start_ns if after else None,
    )
    rows = with_alignment(view.snapshot.events(where=where), view.derived)
    rows = rows.filter(_chosen(rows, query, after))
    order = pc.sort_indices(rows, sort_keys=[("start_ns", "ascending"), ("rank", "ascending"), ("span_id", "ascending")])
    page = rows.take(order[: query.limit])
    return page, _cursor_after(page) if rows.num_rows > query.limit else None


def events(view: JobView, query: EventQuery) -> dict[str, Any]:
    """GET /v1/jobs/{job}/events as JSON."""
    page, cursor = events_page(view, query)
    return {"events": event_rows(page), "next_cursor": cursor, **carried(view, truncated=cursor is not None)}


def trace(view: JobView, trace_id: bytes, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/traces/{trace_id}: every span of one trace, however late it came. Raises NotFound."""
    rows = with_alignment(view.snapshot.events(where=EventFilter(trace_id=trace_id)), view.derived)
    if rows.num_rows == 0:
        raise NotFound(f"job {view.snapshot.job!r} has no trace {trace_id.hex()}", field="trace_id")
    order = pc.sort_indices(rows, sort_keys=[("aligned_start_ns", "ascending"), ("rank", "ascending"), ("span_id", "ascending")])
    page = rows.take(order[:limit])
    return {"trace_id": trace_id.hex(), "events": event_rows(page), **carried(view, truncated=rows.num_rows > limit)}


def event_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON-ready values: ids in hex, attrs and otel as the JSON they are, nulls left out."""
    rows = []
    for row in table.to_pylist():
        shown = {name: value for name, value in row.items() if value is not None}
        for name in ("trace_id", "span_id", "parent_span_id"):
            if name in shown:
                shown[name] = shown[name].hex()
        if "links" in shown:
            shown["links"] = [link.hex() for link in shown["links"]]
        for name in ("attrs", "otel"):
            if name in shown:
                shown[name] = msgspec.Raw(shown[name].encode())
        shown.setdefault("end_ns", None)
        rows.append(shown)
    return rows


def _chosen(rows: pa.Table, query: EventQuery, after: _Place | None) -> pa.Array:
    keep = np.ones(rows.num_rows, dtype=bool)
    if query.step is not None:
        keep &= (rows["step_inferred"].fill_null(-1).to_numpy() == query.step) | (
            rows["step"].fill_null(-1).to_numpy() == query.step
        )
    start = rows["aligned_start_ns"].fill_null(0).to_numpy()
    end = np.where(
        pc.is_valid(rows["aligned_end_ns"]).to_numpy(), rows["aligned_end_ns"].fill_null(0).to_numpy(), np.iinfo(np.int64).max
    )
    if query.from_ns is not None:
        keep &= end >= query.from_ns
    if query.to_ns is not None:
        keep &= start < query.to_ns
    if after is not None:
        raw, rank = rows["start_ns"].fill_null(0).to_numpy(), rows["rank"].to_numpy()
        later_id = np.array([i.hex() > after.span_id for i in rows["span_id"].to_pylist()], dtype=bool)
        keep &= (raw > after.start_ns) | ((raw == after.start_ns) & ((rank > after.rank) | ((rank == after.rank) & later_id)))
    return pa.array(keep)


def _cursor_after(page: pa.Table) -> str:
    last = page.slice(page.num_rows - 1).select(["start_ns", "rank", "span_id"]).to_pylist()[0]
    place = _Place(last["start_ns"] or 0, last["rank"], last["span_id"].hex())
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _read_cursor(cursor: str) -> _Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=_Place)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise BadParameter(
            "cursor is not one that this service gave; take next_cursor of the page before", field="cursor"
        ) from error
