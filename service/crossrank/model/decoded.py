"""What a decoder or an importer hands to `admit`: columns as sent, not yet checked.

The columns are those of the event schema that senders fill, all nullable, integers as int64 (their ranges are checked in one
place, `admit`) and words as plain or dictionary-coded strings. A decoder drops only what it cannot represent at all and says so
in `rejections`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import Int64Array
from crossrank.model.columns import EVENT_COLUMNS
from crossrank.model.post import Rejection

CHUNK_ROWS: Final = 8192  # Python objects of at most so many events exist at once


def _raw_type(column_type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(column_type):
        return pa.string()
    if column_type == pa.int32():
        return pa.int64()
    if column_type == pa.list_(pa.int32()):
        return pa.list_(pa.int64())
    return column_type


RAW_SCHEMA: Final = pa.schema([pa.field(c.name, _raw_type(c.type)) for c in EVENT_COLUMNS if c.name != "received_ns"])


@dataclass(slots=True)
class Decoded:
    """Rows of RAW_SCHEMA, the place of each row's event in the request, and what could not be read."""

    rows: pa.Table
    index: Int64Array  # [rows]
    rejections: list[Rejection] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def raw_batch(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    """One batch of RAW_SCHEMA from Python lists of equal length."""
    return pa.record_batch([pa.array(columns[f.name], type=f.type) for f in RAW_SCHEMA], schema=RAW_SCHEMA)


def raw_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """All batches as one table."""
    return pa.Table.from_batches(batches, schema=RAW_SCHEMA)


def places(index: Sequence[int]) -> Int64Array:
    """Places in the request as an array."""
    return np.array(index, dtype=np.int64)
