"""A job's events that are not yet in a segment: decoded tables in log order.

Rows are only ever added, so a reader's view is a count. Readers want one table with unified dictionaries; it is built on demand
and kept, so that the next reader only adds what is new.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import Int32Array
from crossrank.store.packed import PACKED_SCHEMA, packed, saved_bytes, unpacked
from crossrank.store.source import TableSource


class Memtable:
    """Rows of one job in log order. `add` is for one thread at a time; views may be read from any."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._marks: list[Int32Array] = []
        self.rows = 0
        self.amends = 0
        self.size_bytes = 0
        self._lock = threading.Lock()
        self._built = (0, PACKED_SCHEMA.empty_table())

    def add(self, events: pa.Table, marks: Int32Array, amends: int, row_bytes: float) -> int:
        """Appends flagged rows and their marks; `amends` of them are marked AMENDS. Returns the bytes counted."""
        rows = packed(events)
        size = max(0, int(len(events) * row_bytes) - saved_bytes(events, rows)) + marks.nbytes
        self._marks.append(marks)
        self._tables.append(rows)
        self.rows += len(events)
        self.amends += amends
        self.size_bytes += size
        return size

    def view(self) -> TableSource:
        """The rows added so far, as a source that later additions do not change."""
        count = len(self._tables)
        return TableSource(lambda: self.table(count), self.amends)

    def table(self, count: int | None = None) -> pa.Table:
        """The first `count` additions (default all) as one table of contiguous columns."""
        return unpacked(self.packed_table(count))

    def packed_table(self, count: int | None = None) -> pa.Table:
        """The same with `otel` packed, see `packed`."""
        count = len(self._tables) if count is None else count
        with self._lock:
            built, table = self._built
            if built > count:
                return _joined(self._tables[:count])
            if built < count:
                table = _joined([table, *self._tables[built:count]])
                self._built = (count, table)
            return table

    def marks(self) -> Int32Array:
        """[rows] the marks of all rows."""
        return np.concatenate([np.zeros(0, np.int32), *self._marks])


def _joined(tables: list[pa.Table]) -> pa.Table:
    kept = [t for t in tables if len(t)]
    if not kept:
        return PACKED_SCHEMA.empty_table()
    return kept[0].combine_chunks() if len(kept) == 1 else pa.concat_tables(kept).unify_dictionaries().combine_chunks()
