"""Writes one segment: an immutable Parquet file with the events of one job, sorted by start time.

Anyone can read the file without us: plain columns of the event schema, each with its unit and meaning in the field metadata,
and in the footer the job, row count, ranks, time range and format. One column is ours: `marks` (see `content`), by which resends
are recognised after a restart.

Times and sequence numbers are delta-packed, words and small numbers dictionary-coded, pages zstd-compressed. Parquet readers do
not verify what they read, so the CRC-32C of the whole file stands in the catalog and is checked before the first use.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store.condense import MARKS
from crossrank.store.merge import AMENDS, column_values
from crossrank.store.wal import sync_folder

SEGMENT_FORMAT: Final = 1
SEGMENT_FOLDER: Final = "main/events"  # below the lake folder; where DuckLake has table main.events, so that its paths are relative
SEGMENT_SCHEMA: Final = EVENT_SCHEMA.append(
    pa.field("marks", MARKS, nullable=False, metadata={"unit": "", "meaning": "Content hashes of all versions received."})
)
_ROW_GROUP_ROWS: Final = 122_880
_DELTA: Final = ("start_ns", "end_ns", "received_ns", "seq")
_PLAIN: Final = {*_DELTA, "span_id", "value", "is_async", "marks.list.element", "links.list.element"}
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One row of the catalog's `segments` table, whose columns these are."""

    path: str
    job: str
    rows: int
    amends: int
    attempt_min: int
    attempt_max: int
    rank_min: int
    rank_max: int
    ranks: int
    start_min_ns: int | None
    start_max_ns: int | None
    end_max_ns: int | None
    has_open: bool
    size_bytes: int
    crc32c: int
    format: int = SEGMENT_FORMAT


def segment_path(number: int) -> str:
    """Path of segment `number` below the lake folder. Numbers are never used twice."""
    return f"{SEGMENT_FOLDER}/{number:08d}.parquet"


def write_segment(lake: Path, number: int, job: str, rows: pa.Table) -> SegmentInfo:
    """Writes condensed rows as a file that is complete and durable under its name, or not there at all.

    rows: SEGMENT_SCHEMA, as `condense` returns them. Raises OSError.
    """
    path = lake / segment_path(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = _about(rows)
    footer = {f"crossrank.{k}": str(v) for k, v in {"job": job, "format": SEGMENT_FORMAT, **about}.items()}
    temporary = path.with_suffix(".tmp")
    try:
        _write_parquet(rows.cast(SEGMENT_SCHEMA).replace_schema_metadata(footer), temporary)
        size = _sync(temporary)
        crc = file_crc(temporary)
        temporary.rename(path)
        sync_folder(path.parent)
    except BaseException:
        for left in (temporary, path):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
        raise
    return SegmentInfo(path=segment_path(number), job=job, size_bytes=size, crc32c=crc, **about)


def _sync(path: Path) -> int:
    """Makes the file's content durable; returns its size in bytes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def file_crc(path: Path) -> int:
    """CRC-32C of a whole file. Raises OSError."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_READ_BYTES):
            crc = google_crc32c.extend(crc, block)
    return crc


def columns_of(info: SegmentInfo) -> dict[str, object]:
    """The row as column -> value, in the order of the catalog table."""
    return asdict(info)


def _write_parquet(rows: pa.Table, path: Path) -> None:
    leaves = [name + (".list.element" if pa.types.is_list(rows.schema.field(name).type) else "") for name in rows.schema.names]
    pq.write_table(
        rows,
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=_ROW_GROUP_ROWS,
        use_dictionary=[leaf for leaf in leaves if leaf not in _PLAIN],
        column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    )


def _about(rows: pa.Table) -> dict[str, Any]:
    """What the footer and the catalog say about the rows."""
    ranks, attempts = column_values(rows, "rank"), column_values(rows, "attempt")
    start, end = pc.min_max(rows.column("start_ns")).as_py(), pc.max(rows.column("end_ns")).as_py()
    return {
        "rows": len(rows),
        "amends": int(np.count_nonzero(column_values(rows, "flags") & AMENDS)),
        "attempt_min": int(attempts.min()),
        "attempt_max": int(attempts.max()),
        "rank_min": int(ranks.min()),
        "rank_max": int(ranks.max()),
        "ranks": len(np.unique(ranks)),
        "start_min_ns": start["min"],
        "start_max_ns": start["max"],
        "end_max_ns": end,
        "has_open": bool(rows.column("start_ns").null_count or rows.column("end_ns").null_count),
    }
