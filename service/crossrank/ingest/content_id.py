"""Span ids for events that came without one: the first 8 bytes of a hash of everything the event says.

The same event sent again gives the same id and is recognised as a duplicate; any difference gives another id. Two events that
are equal in every column count as one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.ingest.ids import SPAN_ID_BYTES
from crossrank.model.columns import EVENT_SCHEMA

_NOT_CONTENT: Final = ("span_id", "received_ns")
_CONTENT: Final = tuple(f.name for f in EVENT_SCHEMA if f.name not in _NOT_CONTENT)


def with_content_ids(events: pa.Table) -> pa.Table:
    """The events with every absent span_id filled."""
    missing = pc.is_null(events.column("span_id")).to_numpy()
    if not missing.any():
        return events
    rows = events.filter(pa.array(missing)).select(_CONTENT)
    ids = [_content_id(values) for values in zip(*(rows.column(name).to_pylist() for name in _CONTENT), strict=True)]
    place = np.zeros(len(events), dtype=np.int64)
    place[missing] = np.arange(len(ids))
    filled = pa.array(ids, type=pa.binary(SPAN_ID_BYTES)).take(pa.array(place))
    column = pc.coalesce(events.column("span_id").combine_chunks(), filled)
    at = events.schema.get_field_index("span_id")
    return events.set_column(at, events.schema.field(at), column)


def _content_id(values: tuple[object, ...]) -> bytes:
    digest = blake2b(msgspec.msgpack.encode(values), digest_size=SPAN_ID_BYTES).digest()
    return digest if any(digest) else b"\1" * SPAN_ID_BYTES
