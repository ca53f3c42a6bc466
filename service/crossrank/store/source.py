"""Where a snapshot's rows come from: one protocol for rows in memory and rows in a segment file.

A source gives tables (row groups of a file, or the memtable) that may hold rows of interest; `select` then takes the rows of one
table. Rows of identities with several versions are left to the caller, who merges them before filtering: a filter applied to
single versions would hide one of them and show another that was replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store.bloom import may_hold, xxh64
from crossrank.store.content import KEY_COLUMNS, identity_keys, one_chunk
from crossrank.store.filter import EventFilter
from crossrank.store.merge import AMENDS, column_values
from crossrank.store.segment import SEGMENT_FORMAT, SEGMENT_SCHEMA, SegmentInfo, file_crc

_NO_KEYS: Final[Int64Array] = np.zeros(0, np.int64)
_ANY_TIME: Final = (-(2**63), 2**63 - 1)


class Source(Protocol):
    """Rows of one job that do not change."""

    def amended_keys(self) -> Int64Array:
        """Sorted identity keys (unsalted) of the rows that replace or complete an earlier one."""
        ...

    def tables(self, columns: Sequence[str], where: EventFilter) -> Iterator[pa.Table]:
        """All tables that may hold rows matching `where`, with these columns."""
        ...

    def versions(self, keys: Int64Array) -> Iterator[pa.Table]:
        """All rows, with all event columns, of these identities (sorted unsalted keys)."""
        ...


def is_among(values: Int64Array, keys: Int64Array) -> np.ndarray:
    """[n] whether each value is one of the sorted keys."""
    if not len(keys):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return keys[place] == values


class TableSource:
    """Rows in memory."""

    def __init__(self, table: Callable[[], pa.Table], amends: int) -> None:
        """table: gives the rows when they are needed; amends: how many of them are marked AMENDS."""
        self._table = table
        self._amends = amends

    def amended_keys(self) -> Int64Array:
        """See `Source`."""
        return _amended(self._table()) if self._amends else _NO_KEYS

    def tables(self, columns: Sequence[str], where: EventFilter) -> Iterator[pa.Table]:
        """See `Source`."""
        del where
        yield self._table().select(list(columns))

    def versions(self, keys: Int64Array) -> Iterator[pa.Table]:
        """See `Source`."""
        table = self._table()
        yield table.filter(pa.array(is_among(identity_keys(table, 0), keys)))


class DamagedSegment(Exception):
    """A segment file that is gone or not what was written; the message says which and why."""


class SegmentFile:
    """A segment as a source. Its checksum is verified before the first row is read; a bad file stays out for good."""

    def __init__(self, lake: Path, info: SegmentInfo, damaged: Callable[[str], None]) -> None:
        """damaged: called once, with the reason, when the file turns out to be unusable."""
        self.info = info
        self.path = lake / info.path
        self.fault: str | None = None
        self._damaged = damaged
        self._lock = threading.Lock()
        self._metadata: pq.FileMetaData | None = None
        self._amended: Int64Array | None = None

    def amended_keys(self) -> Int64Array:
        """See `Source`. Raises DamagedSegment, as every reading method does."""
        if not self.info.amends:
            return _NO_KEYS
        if self._amended is None:
            found = [_amended(t) for t in self._groups([*KEY_COLUMNS, "flags"], EventFilter())]
            self._amended = np.unique(np.concatenate(found))
        return self._amended

    def tables(self, columns: Sequence[str], where: EventFilter) -> Iterator[pa.Table]:
        """See `Source`. Row groups whose statistics rule out a match are not read."""
        i = self.info
        low = {"attempt": i.attempt_min, "rank": i.rank_min, "start_ns": None if i.has_open else i.start_min_ns}
        high = {"attempt": i.attempt_max, "rank": i.rank_max, "end_ns": None if i.has_open else i.end_max_ns}
        if where.may_match(low, high):
            yield from self._groups(columns, where)

    def versions(self, keys: Int64Array) -> Iterator[pa.Table]:
        """See `Source`."""
        with _Reading(self) as file:
            for group in range(file.num_row_groups):
                hit = is_among(identity_keys(file.read_row_group(group, columns=list(KEY_COLUMNS)), 0), keys)
                if hit.any():
                    yield file.read_row_group(group, columns=EVENT_SCHEMA.names).filter(pa.array(hit))

    def whole(self) -> Iterator[pa.Table]:
        """Everything in the file, as it stands there."""
        return self._groups(SEGMENT_SCHEMA.names, EventFilter())

    def group_starts(self) -> list[tuple[int, int]]:
        """Earliest and latest start in each row group, in order; (1, 0) where no row has one."""
        with _Reading(self) as file:
            return [_starts(file.metadata.row_group(group)) for group in range(file.num_row_groups)]

    def identities(self, group: int, salt: int) -> tuple[Int64Array, Int32Array]:
        """Keys and marks of all versions in a row group."""
        with _Reading(self) as file:
            table = file.read_row_group(group, columns=[*KEY_COLUMNS, "marks"])
        lists = one_chunk(table.column("marks"))
        versions = lists.value_lengths().to_numpy(zero_copy_only=False)
        return np.repeat(identity_keys(table, salt), versions), lists.flatten().to_numpy(zero_copy_only=False)

    def _groups(self, columns: Sequence[str], where: EventFilter) -> Iterator[pa.Table]:
        with _Reading(self) as file:
            groups = [g for g in range(file.num_row_groups) if where.may_match(*_bounds(file.metadata.row_group(g)))]
            if where.trace_id is not None and groups:
                groups = self._holding_trace(file, groups, where.trace_id)
            decides = where.columns()
            deciding, others = [c for c in columns if c in decides], [c for c in columns if c not in decides]
            for group in groups:
                if not deciding or not others:
                    yield file.read_row_group(group, columns=list(columns))
                    continue
                decided = file.read_row_group(group, columns=deciding)
                keep = where.mask(decided)
                if keep is None or keep.any():  # most row groups hold nothing: their other columns are not read
                    rest = file.read_row_group(group, columns=others)
                    yield pa.table({c: (decided if c in decides else rest).column(c) for c in columns}, _schema_of(columns))

    def _holding_trace(self, file: pq.ParquetFile, groups: Sequence[int], trace_id: bytes) -> list[int]:
        """The row groups that may hold spans of a trace, by their Bloom filters."""
        leaf, hashed = SEGMENT_SCHEMA.get_field_index("trace_id"), xxh64(trace_id)  # lists before it have one leaf each
        with self.path.open("rb", buffering=0) as raw:
            return [g for g in groups if may_hold(raw.fileno(), file.metadata.row_group(g).column(leaf), hashed)]

    def open_verified(self) -> pq.ParquetFile:
        """The file, verified once per process. Raises DamagedSegment."""
        with self._lock:
            if self.fault is not None:
                raise DamagedSegment(self.fault)
            if self._metadata is None:
                self._verify()
            return pq.ParquetFile(self.path, metadata=self._metadata, page_checksum_verification=True)

    def _verify(self) -> None:
        if self.info.format > SEGMENT_FORMAT:
            raise DamagedSegment(f"{self.info.path}: written by a newer release (segment format {self.info.format})")
        if self.path.stat().st_size != self.info.size_bytes:
            raise DamagedSegment(f"{self.info.path}: has another size than when it was written")
        if file_crc(self.path) != self.info.crc32c:
            raise DamagedSegment(f"{self.info.path}: checksum does not match")
        with pq.ParquetFile(self.path) as file:
            if not file.schema_arrow.equals(SEGMENT_SCHEMA):
                raise DamagedSegment(f"{self.info.path}: has other columns than a segment")
            self._metadata = file.metadata

    def report(self, reason: str) -> None:
        """Leaves the file out from now on."""
        with self._lock:
            first, self.fault = self.fault is None, self.fault or reason
        if first:
            self._damaged(reason)


class _Reading:
    """While a segment is read, every way in which its file can fail becomes one DamagedSegment."""

    def __init__(self, segment: SegmentFile) -> None:
        self._segment = segment
        self._file: pq.ParquetFile | None = None

    def __enter__(self) -> pq.ParquetFile:
        try:
            self._file = self._segment.open_verified()
        except (DamagedSegment, OSError, pa.ArrowException) as fault:
            raise self._damage(fault) from fault
        return self._file

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        if self._file is not None:
            self._file.close()
        if isinstance(fault, (OSError, pa.ArrowException)):
            raise self._damage(fault) from fault

    def _damage(self, fault: BaseException) -> DamagedSegment:
        path = self._segment.info.path
        reason = str(fault) if isinstance(fault, DamagedSegment) else f"{path}: cannot be read ({type(fault).__name__})"
        if isinstance(fault, FileNotFoundError):
            reason = f"{path}: is missing"
        self._segment.report(reason)
        return DamagedSegment(reason)


def _schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([SEGMENT_SCHEMA.field(c) for c in columns])


def _amended(table: pa.Table) -> Int64Array:
    rows = column_values(table, "flags") & AMENDS != 0
    keys: Int64Array = np.unique(identity_keys(table, 0)[rows])
    return keys


def _starts(group: Any) -> tuple[int, int]:
    stats = group.column(SEGMENT_SCHEMA.get_field_index("start_ns")).statistics  # the columns before it have one leaf each
    if stats is None:
        return _ANY_TIME
    return (stats.min, stats.max) if stats.has_min_max else (1, 0)


def _bounds(group: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Least and greatest values of a row group; an end-time bound only where no end is null, and alike for the start."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for k in range(group.num_columns):
        column = group.column(k)
        if column.path_in_schema not in {"attempt", "rank", "step", "start_ns", "end_ns"} or not column.is_stats_set:
            continue
        stats = column.statistics
        unbounded = column.path_in_schema in {"start_ns", "end_ns"} and (stats.null_count or not stats.has_null_count)
        if stats.has_min_max and not unbounded:
            low[column.path_in_schema], high[column.path_in_schema] = stats.min, stats.max
    return low, high
