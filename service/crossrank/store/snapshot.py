"""A job's events at one moment: stable while sealing, deletion and new posts go on, and merged to one row per identity.

Taking one is O(1) in the number of events: it holds references to immutable segments and to a prefix of the memtable. The files
it refers to stay on disk until it is gone (`Pins`), even if the job is deleted meanwhile.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import Int64Array
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store.content import KEY_COLUMNS, identity_keys
from crossrank.store.filter import EventFilter
from crossrank.store.merge import cleared, merge
from crossrank.store.source import DamagedSegment, SegmentFile, Source, TableSource, is_among

__all__ = ["EventFilter", "Hold", "Pins", "Snapshot"]

_EVERYTHING: Final = EventFilter()


class Hold:
    """Keeps the files it is pinned to for as long as it lives."""


class Pins:
    """Counts the snapshots that use a file, and deletes doomed files when the last one is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[Path] = Counter()
        self._doomed: set[Path] = set()
        # Snapshots die wherever the garbage collector finds them, even inside this class: their files are only queued there.
        self._released: queue.SimpleQueue[tuple[Path, ...]] = queue.SimpleQueue()

    def pin(self, owner: object, paths: tuple[Path, ...]) -> None:
        """Keeps the files as long as `owner` lives."""
        with self._lock:
            self._users.update(paths)
        weakref.finalize(owner, self._released.put, paths).atexit = False

    def doom(self, paths: Iterable[Path]) -> None:
        """Deletes the files as soon as nobody uses them."""
        with self._lock:
            self._doomed.update(paths)
        self.sweep()

    def sweep(self) -> None:
        """Deletes what has been doomed and released."""
        with self._lock:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._users.subtract(self._released.get_nowait())
            self._users += Counter()  # drops the zeros
            for path in [p for p in self._doomed if p not in self._users]:
                with contextlib.suppress(OSError):  # what is left is an orphan, removed at the next start
                    path.unlink(missing_ok=True)
                self._doomed.discard(path)


class Snapshot:
    """The events of one job at the moment it was taken."""

    def __init__(
        self,
        job: str,
        version: int,
        segments: Sequence[SegmentFile],
        memory: Sequence[TableSource],
        *,
        attempts: tuple[int, ...],
        merge_all: bool,
    ) -> None:
        """attempts: those seen, ascending.

        merge_all: identities were forgotten, so the AMENDS marks cannot be relied on and every row takes part in merging.
        """
        self.job = job
        self.version = version
        self.attempts = attempts
        self._segments = tuple(segments)
        self._memory = tuple(memory)
        self._merge_all = merge_all

    @property
    def partial(self) -> tuple[str, ...]:
        """Why events are missing: one reason for each damaged file met so far, by this snapshot or an earlier one."""
        return tuple(s.fault for s in self._segments if s.fault is not None)

    def events(self, columns: Sequence[str] | None = None, where: EventFilter = _EVERYTHING) -> pa.Table:
        """One row per identity that matches `where`, in no particular order.

        columns: names of event columns (default all); the result has them in the order of EVENT_SCHEMA, as single chunks.
        A segment that turns out to be damaged is left out as a whole and named in `partial`.
        """
        unknown = set(columns or ()) - set(EVENT_SCHEMA.names)
        if unknown:
            raise ValueError(f"not event columns: {sorted(unknown)}")
        schema = pa.schema([f for f in EVENT_SCHEMA if columns is None or f.name in columns])
        while True:
            usable: list[Source] = [s for s in self._segments if s.fault is None]
            try:
                parts = self._read([*usable, *self._memory], schema, where)
            except DamagedSegment:
                continue  # it has a fault now; without it the others may merge differently
            return _concat([p.select(schema.names) for p in parts], schema)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        where: EventFilter = _EVERYTHING,
        done_before: Callable[[int | None], bool] | None = None,
    ) -> Iterator[pa.Table]:
        """The same rows as `events`, a bounded number at a time; the order is that of the segments, each by start time.

        done_before: asked before a segment is read, with the first start in it (None: not known), whether it need not be; segments
        then come by that start, and what is in memory before them.
        Memory does not grow with the job, except where identities were forgotten and everything has to be merged. A segment found
        damaged on the way is left out from there on and named in `partial`.
        """
        schema = pa.schema([f for f in EVENT_SCHEMA if columns is None or f.name in columns])
        if self._merge_all:
            yield self.events(columns, where)
            return
        amended = self._amended()
        wanted = {*schema.names, *where.columns(), *(KEY_COLUMNS if len(amended) else ())}
        read = [name for name in EVENT_SCHEMA.names if name in wanted]
        versions = []
        sources = self._sources()
        if done_before is not None:
            known = [s for s in self._segments if _first_place(s) is not None]
            first = [s for s in sources if s not in known]
            sources = [*first, *sorted(known, key=lambda s: (_first_place(s) or 0, s.info.path))]
        for source in sources:
            if isinstance(source, SegmentFile) and source.fault is not None:
                continue
            if done_before is not None and isinstance(source, SegmentFile) and done_before(_first_place(source)):
                continue
            try:
                for table in source.tables(read, where):
                    rows = _single(table, amended, where)
                    if len(rows):
                        yield _concat([(cleared(rows) if "flags" in schema.names else rows).select(schema.names)], schema)
            except DamagedSegment:
                continue
        for source in sources if len(amended) else ():
            with contextlib.suppress(DamagedSegment):
                versions += list(source.versions(amended))
        if versions:
            yield _concat([_filtered(merge(_concat(versions, EVENT_SCHEMA)), where).select(schema.names)], schema)

    def _sources(self) -> list[Source]:
        return [*self._segments, *self._memory]

    def _amended(self) -> Int64Array:
        """Sorted keys of the identities that have several versions, of all sources that can be read."""
        keys = [np.zeros(0, np.int64)]
        for source in self._sources():
            with contextlib.suppress(DamagedSegment):
                keys.append(source.amended_keys())
        return np.unique(np.concatenate(keys))

    def _read(self, sources: Sequence[Source], schema: pa.Schema, where: EventFilter) -> list[pa.Table]:
        if self._merge_all:
            every = [t for s in sources for t in s.tables(EVENT_SCHEMA.names, _EVERYTHING)]
            return [_filtered(merge(_concat(every, EVENT_SCHEMA)), where)]
        amended = np.unique(np.concatenate([np.zeros(0, np.int64), *(s.amended_keys() for s in sources)]))
        wanted = {*schema.names, *where.columns(), *(KEY_COLUMNS if len(amended) else ())}
        columns = [name for name in EVENT_SCHEMA.names if name in wanted]
        parts = [_single(t, amended, where) for s in sources for t in s.tables(columns, where)]
        if "flags" in columns:
            parts = [cleared(p) for p in parts]
        if len(amended):
            versions = [t for s in sources for t in s.versions(amended)]
            parts.append(_filtered(merge(_concat(versions, EVENT_SCHEMA)), where))
        return parts


def _first_place(segment: SegmentFile) -> int | None:
    """The earliest start in a segment; None where some row has none, so that its end may be earlier."""
    return None if segment.info.has_open else segment.info.start_min_ns


def _single(table: pa.Table, amended: Int64Array, where: EventFilter) -> pa.Table:
    """The wanted rows among those that are their identity's only version."""
    keep = where.mask(table)
    if len(amended):
        alone = ~is_among(identity_keys(table, 0), amended)
        keep = alone if keep is None else keep & alone
    return table if keep is None or keep.all() else table.filter(pa.array(keep))


def _filtered(table: pa.Table, where: EventFilter) -> pa.Table:
    keep = where.mask(table)
    return table if keep is None else table.filter(pa.array(keep))


def _concat(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """All rows in one table of contiguous columns; dictionaries are unified."""
    kept = [t.cast(schema) for t in tables if len(t)]
    if not kept:
        return schema.empty_table()
    return pa.concat_tables(kept).unify_dictionaries().combine_chunks()
