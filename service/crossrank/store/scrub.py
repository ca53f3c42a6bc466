"""Reads whole files to find out whether they are what was written: the work of `crossrank verify` and `crossrank rebuild`.

A segment is held against its size and checksum in the catalog and, because a rebuilt catalog has neither, against itself: pages
against their checksums, the footer's claims against the rows, and the statistics and filters that reads rely on to skip row
groups against the values they speak of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossrank.store.bloom import may_hold, xxh64
from crossrank.store.content import one_chunk
from crossrank.store.facts import JobFacts
from crossrank.store.segment import SEGMENT_FORMAT, SEGMENT_SCHEMA, SegmentInfo, about_rows, file_crc, read_footer

_SKIPPED_BY: Final = ("attempt", "rank", "step", "start_ns", "end_ns")  # columns whose statistics decide what is read


class NewerSegment(Exception):
    """The file was written by a newer release; it is not damaged."""


def scrub(lake: Path, path: str) -> tuple[SegmentInfo, JobFacts]:
    """Reads a segment from end to end; returns what it is and what it knows of its job.

    Raises ValueError, with the reason, when anything is not as it was written, and NewerSegment.
    """
    file_path = lake / path
    try:
        size, crc = file_path.stat().st_size, file_crc(file_path)
        with pq.ParquetFile(file_path, page_checksum_verification=True) as file:
            info, facts = read_footer(path, file.metadata, size_bytes=size, crc32c=crc)
            if info.format > SEGMENT_FORMAT:
                raise NewerSegment(f"{path}: segment format {info.format}, this release reads up to {SEGMENT_FORMAT}")
            if not file.schema_arrow.equals(SEGMENT_SCHEMA):
                raise ValueError("it has other columns than a segment")
            with file_path.open("rb", buffering=0) as raw:
                groups = [_checked_group(file, g, raw.fileno()) for g in range(file.num_row_groups)]
    except (OSError, pa.ArrowException) as fault:
        raise ValueError(f"it cannot be read ({fault})") from fault
    rows = pa.concat_tables(groups).unify_dictionaries().combine_chunks()
    for name, value in about_rows(rows).items():
        if getattr(info, name) != value:
            raise ValueError(f"its footer says {name} = {getattr(info, name)}, its rows say {value}")
    return info, facts


def _checked_group(file: pq.ParquetFile, number: int, fd: int) -> pa.Table:
    """The columns of a row group that `about_rows` needs; all of them are read."""
    group, rows = file.metadata.row_group(number), file.read_row_group(number)
    for k in range(group.num_columns):
        column = group.column(k)
        if column.path_in_schema in _SKIPPED_BY:
            _check_statistics(column, rows.column(column.path_in_schema))
        if column.path_in_schema == "trace_id":
            for trace in pc.unique(one_chunk(rows.column("trace_id")).drop_null()).to_pylist():
                if not may_hold(fd, column, xxh64(trace)):
                    raise ValueError(f"the filter of row group {number} denies a trace that it has")
    return rows.select(["attempt", "rank", "start_ns", "end_ns", "received_ns", "flags"])


def _check_statistics(column: Any, values: pa.ChunkedArray) -> None:
    stats = column.statistics
    if stats is None or not stats.has_min_max:
        return
    ends = pc.min_max(values).as_py()
    nulls = values.null_count if not stats.has_null_count else stats.null_count
    if (ends["min"], ends["max"], values.null_count) != (stats.min, stats.max, nulls):
        raise ValueError(f"statistics of {column.path_in_schema} do not fit its values")


def is_replaced(info: SegmentInfo, others: list[SegmentInfo]) -> bool:
    """Whether a later segment of the job was made of this one: both are there only after a kill in the middle of a compaction."""
    return any(
        o.job == info.job and o.path > info.path and o.covers_from <= info.covers_from and info.covers_to <= o.covers_to
        for o in others
    )


def move_away(path: Path, folder: Path) -> Path:
    """Moves a file into a folder, under a name that is free there; both are on one disk."""
    folder.mkdir(exist_ok=True)
    target, number = folder / path.name, 1
    while target.exists():
        target, number = folder / f"{path.stem}-{number}{path.suffix}", number + 1
    return path.rename(target)
