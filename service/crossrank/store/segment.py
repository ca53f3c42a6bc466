"""Writes one segment: an immutable Parquet file with the events of one job, sorted by start time.

Anyone can read the file without us: plain columns of the event schema, each with its unit and meaning in the field metadata,
and in the footer the job, row count, ranks, time range and format. One column is ours: `marks` (see `content`), by which resends
are recognised after a restart.

Times and sequence numbers are delta-packed, words and small numbers dictionary-coded, pages zstd-compressed; trace ids have a
Bloom filter in each row group (see `bloom`). Parquet readers do not verify what they read, so the CRC-32C of the whole file
stands in the catalog and is checked before the first use.

The footer also holds what a lost catalog has to be built from again: everything in `SegmentInfo` that is not a property of the
file itself, and the facts of the job as of the time of sealing (`crossrank.facts`).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store.condense import MARKS
from crossrank.store.content import one_chunk
from crossrank.store.facts import JobFacts
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
_SAMPLE_ROWS: Final = 4096
_READ_BYTES: Final = 1 << 20
_FALSE_POSITIVES: Final = 0.001  # of the filters on trace ids: a row group is read in vain that often
_MANY_TRACES: Final = 20_000  # in a row group; then its filter would take more room than it saves
_FALSE_POSITIVES_OF_MANY: Final = 0.02
_FOOTER: Final = "crossrank."
_FACTS: Final = "facts"


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One row of the catalog's `segments` table, whose columns these are.

    covers_from, covers_to: the numbers of the segments whose rows these are; its own number twice unless it was compacted. A file
    whose numbers lie within those of a later file of the job has been replaced by it. They also give the order of the segments.
    received_min_ns, received_max_ns: oldest and newest time of receipt, None where not known.
    """

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
    covers_from: int = 0
    covers_to: int = 0
    received_min_ns: int | None = None
    received_max_ns: int | None = None


def segment_path(number: int) -> str:
    """Path of segment `number` below the lake folder. Numbers are never used twice."""
    return f"{SEGMENT_FOLDER}/{number:08d}.parquet"


def write_segment(
    lake: Path, number: int, rows: pa.Table, facts: JobFacts, *, covers: tuple[int, int] | None = None
) -> SegmentInfo:
    """Writes condensed rows as a file that is complete and durable under its name, or not there at all.

    rows: SEGMENT_SCHEMA, as `condense` returns them. facts: of the job as of now. covers: first and last number of the segments
    that it replaces. Raises OSError.
    """
    path = lake / segment_path(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    covers_from, covers_to = covers or (number, number)
    about = {**about_rows(rows), "covers_from": covers_from, "covers_to": covers_to}
    temporary = path.with_suffix(".tmp")
    try:
        _write_parquet(rows.cast(SEGMENT_SCHEMA), temporary, _footer(facts, about))
        size = _sync(temporary)
        crc = file_crc(temporary)
        temporary.rename(path)
        sync_folder(path.parent)
    except BaseException:
        for left in (temporary, path):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
        raise
    return SegmentInfo(path=segment_path(number), job=facts.job, size_bytes=size, crc32c=crc, **about)


def _footer(facts: JobFacts, about: dict[str, Any]) -> dict[str, str]:
    """What stands in the file's footer: plain text for the job, JSON for the rest."""
    said = {_FACTS: facts, "format": SEGMENT_FORMAT, **about}
    return {f"{_FOOTER}job": facts.job} | {f"{_FOOTER}{k}": msgspec.json.encode(v).decode() for k, v in said.items()}


def read_footer(path: str, metadata: pq.FileMetaData, *, size_bytes: int, crc32c: int) -> tuple[SegmentInfo, JobFacts]:
    """What a file says about itself. Raises ValueError when that is not what a segment says."""
    said = {k.decode(): v for k, v in (metadata.metadata or {}).items()}
    named = {k.removeprefix(_FOOTER): v for k, v in said.items() if k.startswith(_FOOTER)}
    if "job" not in named or _FACTS not in named:
        raise ValueError("it is not a segment of this service")
    job = named.pop("job").decode()
    facts = msgspec.json.decode(named.pop(_FACTS), type=JobFacts)
    about = {k: msgspec.json.decode(v) for k, v in named.items()}
    return msgspec.convert({"path": path, "job": job, "size_bytes": size_bytes, "crc32c": crc32c, **about}, SegmentInfo), facts


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


def _write_parquet(rows: pa.Table, path: Path, footer: dict[str, str]) -> None:
    traces = _most_traces(rows)
    wrong = _FALSE_POSITIVES if traces < _MANY_TRACES else _FALSE_POSITIVES_OF_MANY
    with pq.ParquetWriter(
        path,
        rows.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_repeating(rows),
        column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
        bloom_filter_options={"trace_id": {"ndv": traces, "fpp": wrong}} if traces else None,
    ) as writer:
        writer.write_table(rows, row_group_size=_ROW_GROUP_ROWS)
        writer.add_key_value_metadata(footer)


def _repeating(rows: pa.Table) -> list[str]:
    """Columns worth a dictionary: where most values are new, it only takes room and time. Judged by rows from the middle."""
    middle = rows.slice(max(0, len(rows) - _SAMPLE_ROWS) // 2, _SAMPLE_ROWS)
    leaves = []
    for field in rows.schema:
        values = one_chunk(middle.column(field.name))
        if pa.types.is_dictionary(field.type):
            values = values.indices
        leaf = field.name + (".list.element" if pa.types.is_list(field.type) else "")
        if leaf in _PLAIN:
            continue
        if pa.types.is_list(field.type) or 2 * len(pc.unique(values)) <= max(2, len(values) - values.null_count):
            leaves.append(leaf)
    return leaves


def _most_traces(rows: pa.Table) -> int:
    """The greatest number of distinct trace ids in a row group: what its filter has to hold."""
    ids = rows.column("trace_id")
    if ids.null_count == len(ids):
        return 0
    return max(pc.count_distinct(ids.slice(at, _ROW_GROUP_ROWS)).as_py() for at in range(0, len(ids), _ROW_GROUP_ROWS))


def about_rows(rows: pa.Table) -> dict[str, Any]:
    """What the footer and the catalog say about the rows."""
    ranks, attempts = column_values(rows, "rank"), column_values(rows, "attempt")
    start, end = pc.min_max(rows.column("start_ns")).as_py(), pc.max(rows.column("end_ns")).as_py()
    received = pc.min_max(rows.column("received_ns")).as_py()
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
        "received_min_ns": received["min"],
        "received_max_ns": received["max"],
    }
