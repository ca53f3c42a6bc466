"""Small traces written by hand: rows of a few fields become a JobTrace."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.trace import JobTrace, trace_from_arrow

_DEFAULTS: dict[str, Any] = {
    "job": "j", "attempt": 0, "rank": 0, "lane": "main", "kind": "compute", "is_async": False, "flags": 0, "received_ns": 0,
}  # fmt: skip


def event_table(*rows: dict[str, Any]) -> pa.Table:
    """Rows in the event schema. `at` = (start, end or None); span ids count up from 1; host and clock default to `h<rank>`."""
    full = []
    for i, row in enumerate(rows):
        values = {**_DEFAULTS, **row}
        if "at" in values:
            values["start_ns"], values["end_ns"] = values.pop("at")
        values.setdefault("host", f"h{values['rank']}")
        values.setdefault("clock", values["host"])
        values.setdefault("name", values.get("op") or values["kind"])
        values["span_id"] = int(values.get("span_id", i + 1)).to_bytes(8, "big")
        full.append(values)
    return pa.Table.from_pylist(full, schema=EVENT_SCHEMA)


def trace_of(*rows: dict[str, Any]) -> JobTrace:
    """The trace of hand-written rows (see `event_table`)."""
    return trace_from_arrow(event_table(*rows), job="j", attempt=0)


def collective(rank: int, seq: int | None, at: tuple[int, int | None], group: str = "g", **more: Any) -> dict[str, Any]:
    """One rank's span of an all_reduce (unless `op` says otherwise)."""
    return {"rank": rank, "kind": "collective", "op": "all_reduce", "group": group, "seq": seq, "at": at, **more}


def message(kind: str, rank: int, peer: int, seq: int | None, at: tuple[int, int | None], **more: Any) -> dict[str, Any]:
    """A send or recv of one rank."""
    return {"rank": rank, "kind": kind, "op": kind, "peer": peer, "group": "p", "seq": seq, "at": at, **more}
