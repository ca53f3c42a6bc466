"""The events themselves, aligned, page by page.

Pages run in the order (raw start, rank, span id), which no later event or derivation changes for the rows already there, so a
cursor stays good while events come in. The cursor holds the last row's place in that order.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.errors import BadParameter, NotFound
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.query.aligned import How, with_alignment
from crossrank.query.jobview import JobView, carried
from crossrank.store.filter import EventFilter

ORDER: Final = [("at_ns", "ascending"), ("rank", "ascending"), ("span_id", "ascending")]
_INT64_MAX: Final = 2**63 - 1
DECIDING: Final = ("rank", "clock", "start_ns", "end_ns", "step", "span_id")


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
    aligned: How = "repaired"


class _Place(msgspec.Struct, array_like=True):
    at_ns: int
    rank: int
    span_id: str


def events_page(view: JobView, query: EventQuery) -> tuple[pa.Table, str | None]:
    """One page of aligned events and the cursor of the next page, None at the end. Raises BadParameter for a bad cursor.

    Two passes: the first reads only what decides and orders, the second all columns of the rows on the page.
    """
    after = _read_cursor(query.cursor) if query.cursor else None
    where = EventFilter(
        attempt=view.derived.timeline.trace.attempt,
        ranks=None if query.rank is None else (query.rank,),
        kinds=None if query.kind is None else (query.kind,),
        groups=None if query.group is None else (query.group,),
    )
    first = _first_rows(view, query, where, after)
    on_page = first.slice(0, query.limit).select(["rank", "span_id", "start_ns", "end_ns"])
    page = _placed(with_alignment(_whole_rows(view, on_page, where), view.derived, query.aligned))
    page = page.take(pc.sort_indices(page, sort_keys=ORDER))
    return page.drop_columns("at_ns"), _cursor_after(page) if first.num_rows > query.limit else None


def _first_rows(view: JobView, query: EventQuery, where: EventFilter, after: _Place | None) -> pa.Table:
    """The rows of the page and one more if there is one, in order; a bounded number of rows is held at any time.

    Segments come by their first start, so once the page is full those that begin later are not read.
    """
    first = _placed(pa.schema([f for f in EVENT_SCHEMA if f.name in DECIDING]).empty_table())

    def is_full_before(start_ns: int | None) -> bool:
        full = first.num_rows > query.limit and start_ns is not None
        return full and first["at_ns"][query.limit].as_py() < start_ns

    placed = where if after is None else replace(where, place_from_ns=after.at_ns)
    for batch in view.snapshot.batches(DECIDING, placed, done_before=is_full_before):
        rows = _placed(batch)
        rows = rows.filter(_chosen(_with_alignment_if(rows, view, query), query, after))
        if rows.num_rows:
            both = pa.concat_tables([first, rows.select(first.column_names)]).unify_dictionaries()
            first = both.take(pc.sort_indices(both, sort_keys=ORDER)[: query.limit + 1])
    return first


def _placed(rows: pa.Table) -> pa.Table:
    """With `at_ns`, the stamp that orders: the start, or the end of a half whose start has not come."""
    return rows.append_column("at_ns", pc.coalesce(rows["start_ns"], rows["end_ns"]))


def _with_alignment_if(rows: pa.Table, view: JobView, query: EventQuery) -> pa.Table:
    """Aligned columns only when the question is about them."""
    asked = query.step is not None or query.from_ns is not None or query.to_ns is not None
    return with_alignment(rows, view.derived, query.aligned) if asked else rows


def _whole_rows(view: JobView, on_page: pa.Table, where: EventFilter) -> pa.Table:
    """All columns of the rows named by (rank, span_id); a span id of one rank may also occur at another."""
    if on_page.num_rows == 0:
        return EVENT_SCHEMA.empty_table()
    ranks, ids = pc.unique(on_page["rank"]).to_pylist(), on_page["span_id"].to_pylist()
    # The page's own stretch of time keeps row groups elsewhere from being read.
    stamps = [pc.min_max(on_page[name]).as_py() for name in ("start_ns", "end_ns")]
    least = [s["min"] for s in stamps if s["min"] is not None]
    most = [s["max"] for s in stamps if s["max"] is not None]
    found = view.snapshot.events(
        where=replace(where, ranks=ranks, span_ids=ids, from_ns=min(least), to_ns=min(max(most), _INT64_MAX - 1) + 1)
    )
    wanted = set(zip(on_page["rank"].to_pylist(), ids, strict=True))
    keep = [pair in wanted for pair in zip(found["rank"].to_pylist(), found["span_id"].to_pylist(), strict=True)]
    return found.filter(pa.array(keep, pa.bool_()))


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
    if query.from_ns is not None:  # an open span reaches into every later time
        keep &= rows["aligned_end_ns"].fill_null(np.iinfo(np.int64).max).to_numpy() >= query.from_ns
    if query.to_ns is not None:
        keep &= pc.coalesce(rows["aligned_start_ns"], rows["aligned_end_ns"]).to_numpy() < query.to_ns
    if after is not None:
        raw, rank = rows["at_ns"].to_numpy(), rows["rank"].to_numpy()
        later_id = np.array([i.hex() > after.span_id for i in rows["span_id"].to_pylist()], dtype=bool)
        keep &= (raw > after.at_ns) | ((raw == after.at_ns) & ((rank > after.rank) | ((rank == after.rank) & later_id)))
    return pa.array(keep)


def _cursor_after(page: pa.Table) -> str:
    last = page.slice(page.num_rows - 1).select(["at_ns", "rank", "span_id"]).to_pylist()[0]
    place = _Place(last["at_ns"], last["rank"], last["span_id"].hex())
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _read_cursor(cursor: str) -> _Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=_Place)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise BadParameter(
            "cursor is not one that this service gave; take next_cursor of the page before", field="cursor"
        ) from error
