"""Our own Parquet export, back to events: what was sent comes back as it was sent.

The columns that an export adds (aligned times, inferred steps, Lamport times) and those the service made (flags, received_ns)
are left out: they are derived again from the events. The job in the file is not taken over: the import says which job it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from crossrank.errors import UndecodableBody
from crossrank.importers.source import Recording, Source
from crossrank.importers.untrusted_parquet import parquet_batches
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import RAW_SCHEMA, Decoded
from crossrank.model.post import Rejection

_TAKEN: Final = tuple(n for n in RAW_SCHEMA.names if n not in ("job", "flags"))
_NEEDED: Final = ("rank", "lane", "name", "start_ns", "end_ns", "span_id")
_JSON: Final = ("attrs", "otel")


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """The events of an export, of whatever ranks. Raises UndecodableBody."""
    batches = parquet_batches(file, _TAKEN, limits.events_per_body)
    first = next(batches, None)
    if first is not None:
        missing = [name for name in _NEEDED if name not in first.schema.names]
        if missing:
            raise UndecodableBody(f"{source.name} is no export of events: it has no column {', '.join(missing)}")
    return Recording(None, None, None, _decoded(chain([first] if first is not None else [], batches), limits))


def _decoded(batches: Iterator[pa.RecordBatch], limits: Limits) -> Iterator[Decoded]:
    at = 0
    for batch in batches:
        index = np.arange(at, at + len(batch), dtype=np.int64)
        at += len(batch)
        yield _rows(batch, index, limits)


def _rows(batch: pa.RecordBatch, index: np.ndarray, limits: Limits) -> Decoded:
    columns: list[pa.Array] = []
    refused: dict[int, str] = {}
    for field in RAW_SCHEMA:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(len(batch), field.type))
            continue
        column = batch.column(field.name)
        if field.name in _JSON:
            column = _checked(column, refused, limits)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as fault:
            raise UndecodableBody(f"Column {field.name!r} has type {column.type}: {str(fault)[:200]}", field=field.name) from fault
    rows = pa.table(columns, schema=RAW_SCHEMA)
    rejections = [Rejection(int(index[row]), reason) for row, reason in sorted(refused.items())]
    if refused:
        kept = np.ones(len(batch), dtype=np.bool_)
        kept[list(refused)] = False
        rows, index = rows.filter(pa.array(kept)), index[kept]
    return Decoded(rows, index, rejections)


def _checked(column: pa.Array, refused: dict[int, str], limits: Limits) -> pa.Array:
    """JSON objects as canonical text; rows whose text is none are refused."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_null(column.type)):
        raise UndecodableBody(f"Attributes have type {column.type}; they are JSON text")
    texts: list[str | None] = []
    for row, text in enumerate(column.to_pylist()):
        if text is not None:
            text, reason = _canonical(text, limits)  # noqa: PLW2901 -- its checked form
            if reason:
                refused.setdefault(row, reason)
        texts.append(text)
    return pa.array(texts, type=pa.string())


def _canonical(text: str, limits: Limits) -> tuple[str | None, str]:
    if len(text) > limits.event_bytes:
        return None, "too_large"
    try:
        found: Any = msgspec.json.decode(text)
        return (attrs_text(found, limits)[0], "") if isinstance(found, dict) else (None, "not_an_object")
    except (RecursionError, TooDeep):
        return None, "too_deep"
    except (msgspec.DecodeError, UnicodeError):
        return None, "bad_json"
