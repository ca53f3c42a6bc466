"""The aligned events as files that anyone can read without us: raw and aligned times side by side.

Parquet row groups and Arrow batches are produced for a share of the ranks at a time, so memory does not grow with the job; within
a rank rows are in order of aligned start.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.query.aligned import ALIGNED_COLUMNS, with_alignment
from crossrank.query.jobview import JobView
from crossrank.store.filter import EventFilter

ROWS_AT_ONCE: Final = 500_000
EXPORT_SCHEMA: Final = pa.schema(
    [
        *(
            pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type, f.nullable, f.metadata)
            for f in EVENT_SCHEMA
        ),
        *(pa.field(n, t, metadata={"unit": u, "meaning": m}) for n, t, u, m in ALIGNED_COLUMNS),
    ]
)


def aligned_batches(view: JobView, *, first_step: int | None = None, last_step: int | None = None) -> Iterator[pa.Table]:
    """The job's aligned events as tables of EXPORT_SCHEMA, ascending by rank; only the given steps when named."""
    attempt = view.derived.timeline.trace.attempt
    for ranks in _shares(view):
        rows = with_alignment(view.snapshot.events(where=EventFilter(attempt=attempt, ranks=ranks)), view.derived)
        if first_step is not None:
            rows = rows.filter(pc.greater_equal(rows["step_inferred"], first_step))
        if last_step is not None:
            rows = rows.filter(pc.less_equal(rows["step_inferred"], last_step))
        order = pc.sort_indices(
            rows, sort_keys=[("rank", "ascending"), ("aligned_start_ns", "ascending"), ("span_id", "ascending")]
        )
        yield rows.take(order).cast(EXPORT_SCHEMA)


def _shares(view: JobView) -> Iterator[tuple[int, ...]]:
    """The ranks in consecutive shares of about ROWS_AT_ONCE events."""
    seen = view.derived.topology.seen
    shares = max(1, -(-view.derived.events // ROWS_AT_ONCE))
    size = max(1, -(-len(seen) // shares))
    return (seen[i : i + size] for i in range(0, len(seen), size))


def parquet_stream(batches: Iterator[pa.Table]) -> Iterator[bytes]:
    """One Parquet file as chunks of bytes."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, EXPORT_SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(batch)
            yield _drain(sink)
    yield _drain(sink)


def arrow_stream(batches: Iterator[pa.Table]) -> Iterator[bytes]:
    """One Arrow IPC stream as chunks of bytes."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, EXPORT_SCHEMA) as writer:
        for batch in batches:
            writer.write_table(batch)
            yield _drain(sink)
    yield _drain(sink)


def _drain(sink: io.BytesIO) -> bytes:
    """Takes what was written; the writer counts positions by its own writes, not by this buffer's."""
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
