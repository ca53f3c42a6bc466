"""The aligned events as files that anyone can read without us: raw and aligned times side by side.

Rows are streamed as they are stored, a row group at a time, so memory does not grow with the job and every segment is read once.
Whoever wants another order sorts by `aligned_start_ns`, `rank` and `span_id`. Each column carries its unit and meaning.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.query.ahead import ahead
from crossrank.query.aligned import ALIGNED_COLUMNS, How, with_alignment
from crossrank.query.jobview import JobView
from crossrank.store.filter import EventFilter

_DELTA: Final = ("start_ns", "end_ns", "received_ns", "seq", "aligned_start_ns", "aligned_end_ns", "lamport")
_PLAIN: Final = {*_DELTA, "span_id", "value", "is_async", "links.list.element"}


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type that every reader knows: no dictionaries, which change from batch to batch, no lists of fixed-size ids (pandas)."""
    if pa.types.is_dictionary(kind):
        return pa.string()
    return pa.list_(pa.binary()) if pa.types.is_list(kind) and pa.types.is_fixed_size_binary(kind.value_type) else kind


EXPORT_SCHEMA: Final = pa.schema(
    [
        *(pa.field(f.name, _readable(f.type), f.nullable, f.metadata) for f in EVENT_SCHEMA),
        *(pa.field(n, t, metadata={"unit": u, "meaning": m}) for n, t, u, m in ALIGNED_COLUMNS),
    ]
)


def aligned_batches(
    view: JobView, *, first_step: int | None = None, last_step: int | None = None, how: How = "repaired"
) -> Iterator[pa.Table]:
    """The job's aligned events as tables of EXPORT_SCHEMA in the order they are stored: by time of receipt, then by raw start.

    Only the given steps when named. how: what the aligned times are, see `with_alignment`. Each segment is read once, however large the job is.
    """
    attempt = view.derived.timeline.trace.attempt
    for stored in view.snapshot.batches(where=EventFilter(attempt=attempt)):
        rows = with_alignment(stored, view.derived, how)
        if first_step is not None:
            rows = rows.filter(pc.greater_equal(rows["step_inferred"], first_step))
        if last_step is not None:
            rows = rows.filter(pc.less_equal(rows["step_inferred"], last_step))
        if len(rows):
            yield rows


def parquet_stream(batches: Iterator[pa.Table]) -> Iterator[bytes]:
    """One Parquet file as chunks of bytes."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        EXPORT_SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in _leaves() if name not in _PLAIN],
        column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
    ) as writer:
        for batch in ahead(batches):
            writer.write_table(batch.cast(EXPORT_SCHEMA))
            yield _drain(sink)
    yield _drain(sink)


def arrow_stream(batches: Iterator[pa.Table]) -> Iterator[bytes]:
    """One Arrow IPC stream as chunks of bytes."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, EXPORT_SCHEMA) as writer:
        for batch in ahead(batches):
            writer.write_table(batch.cast(EXPORT_SCHEMA))
            yield _drain(sink)
    yield _drain(sink)


def _leaves() -> list[str]:
    return [f.name + (".list.element" if pa.types.is_list(f.type) else "") for f in EXPORT_SCHEMA]


def _drain(sink: io.BytesIO) -> bytes:
    """Takes what was written; the writer counts positions by its own writes, not by this buffer's."""
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
