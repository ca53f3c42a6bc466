"""The column `otel` as it waits in memory: codes into its distinct texts.

What OpenTelemetry says about a span beside its columns is mostly what it says about the span before: the same resource and scope, some
hundred bytes. As plain text it is half of a row's memory, and joining and sorting memtables would copy it again and again. So it is
packed when rows enter the memtable, by comparing neighbours, and unpacked when they leave it, for readers or for a segment.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store.content import neighbours_differ, one_chunk, text_buffers, valid_rows

_NAME: Final = "otel"
_AT: Final = EVENT_SCHEMA.get_field_index(_NAME)
PACKED_SCHEMA: Final = EVENT_SCHEMA.set(_AT, EVENT_SCHEMA.field(_AT).with_type(pa.dictionary(pa.int32(), pa.string())))


def packed(events: pa.Table) -> pa.Table:
    """Rows of EVENT_SCHEMA as rows of PACKED_SCHEMA."""
    column = one_chunk(events.column(_NAME))
    if column.null_count == len(column):
        codes, words = pa.array(np.zeros(len(column), np.int32), mask=np.ones(len(column), np.bool_)), pa.array([""], pa.string())
    else:
        offsets, data = text_buffers(column)
        starts = np.empty(len(column), np.bool_)
        neighbours_differ(offsets, data, starts)
        absent = ~valid_rows(column) if column.null_count else None
        codes = pa.array(np.cumsum(starts, dtype=np.int32) - np.int32(1), mask=absent)
        plain = pa.StringArray.from_buffers(len(column), *column.buffers()[1:], None, 0, column.offset)
        words = plain.filter(pa.array(starts))
    # Joining dictionaries looks up the codes of null places too; they lie inside of the words here.
    return events.set_column(_AT, PACKED_SCHEMA.field(_AT), pa.DictionaryArray.from_arrays(codes, words, safe=False))


def unpacked(rows: pa.Table) -> pa.Table:
    """Rows of PACKED_SCHEMA as rows of EVENT_SCHEMA."""
    return rows.set_column(_AT, EVENT_SCHEMA.field(_AT), rows.column(_NAME).cast(pa.string()))


def saved_bytes(events: pa.Table, rows: pa.Table) -> int:
    """How many bytes the packed rows take less."""
    return int(one_chunk(events.column(_NAME)).nbytes - one_chunk(rows.column(_NAME)).nbytes)
