"""Joins the spans of one trace: an id for each, and the edges between them.

Rows are numbered in file order. Flat arrays hold what the joins need, some 40 bytes a span, so a file of gigabytes joins in
memory. The id of a span is a hash of its lane, name, start and duration: the same trace read again gives the same ids, and two
windows of one rank never collide. Spans that agree in all of that are told apart by their order in the file.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from crossrank.importers.canonical_args import NO_NUMBER
from crossrank.importers.json_stream import thousandths
from crossrank.importers.kineto_names import Role
from crossrank.importers.kineto_overlong import OVERLONG_NS, DeviceSpans
from crossrank.importers.kineto_pieces import Flows, Piece, remixed
from crossrank.model.arrays import BoolArray, Int64Array

_NOWHERE: Final = -1


class SpanTable:
    """Filled with `add`, closed with `finish`; then `span_ids` and `links` answer for ranges of rows."""

    def __init__(self) -> None:
        self.roles = np.zeros(len(Role), dtype=np.int64)  # how many spans have each role
        self.first_ns, self.last_ns = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        self.overlong = DeviceSpans()
        self.clipped = 0  # spans of the device that were shortened
        self._rows = 0
        self._digests: list[np.ndarray] = []
        self._launch: list[tuple[Int64Array, Int64Array]] = []  # correlation, row
        self._device: list[tuple[Int64Array, Int64Array]] = []
        self._operators: list[tuple[Int64Array, Int64Array, Int64Array]] = []  # thread, start, row
        self._id = np.empty(0, dtype=np.uint64)
        self._cause = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._rows

    def add(self, piece: Piece) -> None:
        """The next rows of the file."""
        rows = np.arange(self._rows, self._rows + len(piece.rows), dtype=np.int64)
        self._rows += len(rows)
        start = piece.rows.column("ts_ns").to_numpy()
        correlation = piece.rows.column("correlation").to_numpy()
        self.roles += np.bincount(piece.rows.column("role").to_numpy(), minlength=len(self.roles))
        end = start + piece.rows.column("dur_ns").to_numpy()
        self.first_ns = min(self.first_ns, int(start.min(initial=self.first_ns)))
        self.overlong.add(piece.thread, start, end, rows, piece.device)
        fits = ~piece.device | (end - start <= OVERLONG_NS)
        self.last_ns = max(self.last_ns, int(end[fits].max(initial=self.last_ns)))
        self._digests.append(piece.digest)
        launches, device = piece.launch != NO_NUMBER, correlation != NO_NUMBER
        self._launch.append((piece.launch[launches], rows[launches]))
        self._device.append((correlation[device], rows[device]))
        self._operators.append((piece.thread[piece.operator], start[piece.operator], rows[piece.operator]))

    def finish(self, starts: Flows, ends: Flows) -> None:
        """Settles ids, edges and ends."""
        self.clipped = self.overlong.settle()
        self.last_ns = max(self.last_ns, self.overlong.last_ns)
        self._id = _distinct(np.concatenate([np.empty(0, dtype=np.uint64), *self._digests]))
        self._digests.clear()
        self._cause = np.full(self._rows, _NOWHERE, dtype=np.int64)
        launch, row = _joined(self._launch, 2)
        correlation, target = _joined(self._device, 2)
        found = _rows_of(launch, row, correlation)
        self._cause[target] = found
        self._launch.clear()
        self._device.clear()
        if starts.ids and ends.ids:
            self._draw(starts, ends)
        self._operators.clear()

    def _draw(self, starts: Flows, ends: Flows) -> None:
        """Arrows from forward to backward operators."""
        thread, start, row = _joined(self._operators, 3)
        order = np.lexsort((row, start, thread))
        thread, start, row = thread[order], start[order], row[order]
        ids = {id_: i for i, id_ in enumerate(dict.fromkeys([*starts.ids, *ends.ids]))}
        forward = np.full(len(ids), _NOWHERE, dtype=np.int64)
        forward[[ids[i] for i in starts.ids]] = _at(thread, start, row, starts)
        backward = _at(thread, start, row, ends)
        cause = forward[[ids[i] for i in ends.ids]]
        both = (backward >= 0) & (cause >= 0) & (backward != cause)
        self._cause[backward[both]] = cause[both]

    def span_ids(self, rows: slice) -> pa.Array:
        """Ids of rows."""
        return _binary(self._id[rows])

    def links(self, rows: slice) -> pa.Array:
        """At most one cause a row, as the lists of ids that the column wants."""
        cause = self._cause[rows]
        linked: BoolArray = cause >= 0
        offsets = np.concatenate(([0], np.cumsum(linked))).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), _binary(self._id[cause[linked]]), mask=pa.array(~linked))
        return lists.cast(pa.list_(pa.binary(8)))


def _binary(ids: np.ndarray) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(ids).astype(">u8").tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(ids), [None, data])


def _joined(parts: list[Any], columns: int) -> list[Int64Array]:
    return [np.concatenate([np.empty(0, dtype=np.int64), *(part[c] for part in parts)]) for c in range(columns)]


def _rows_of(known: Int64Array, row: Int64Array, wanted: Int64Array) -> Int64Array:
    """The first row with each wanted number, _NOWHERE without one."""
    if len(known) == 0:
        return np.full(len(wanted), _NOWHERE, dtype=np.int64)
    order = np.lexsort((row, known))
    known, row = known[order], row[order]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, row[place], _NOWHERE)


def _at(thread: Int64Array, start: Int64Array, row: Int64Array, flows: Flows) -> Int64Array:
    """The operator that starts on the thread at the time of each arrow's end: the innermost (last written) of several."""
    ts, good = thousandths(flows.ts)
    if len(row) == 0:
        return np.full(len(ts), _NOWHERE, dtype=np.int64)
    on = np.array(flows.thread, dtype=np.int64)
    out = np.full(len(ts), _NOWHERE, dtype=np.int64)
    for t in np.unique(on).tolist():
        low, high = np.searchsorted(thread, t), np.searchsorted(thread, t, side="right")
        mine = np.flatnonzero((on == t) & good)
        place = np.searchsorted(start[low:high], ts[mine], side="right") - 1 + low
        hit = (place >= low) & (place < high)
        hit[hit] = start[place[hit]] == ts[mine[hit]]
        out[mine[hit]] = row[place[hit]]
    return out


def _distinct(digest: np.ndarray) -> np.ndarray:
    """Non-zero ids, equal digests told apart by their order."""
    out = np.where(digest == 0, np.uint64(1), digest)
    while True:
        order = np.argsort(out, kind="stable")
        again = np.zeros(len(out), dtype=np.bool_)
        again[order[1:]] = out[order[1:]] == out[order[:-1]]
        if not again.any():
            return out
        out[again] = remixed(out[again], np.cumsum(again)[again].astype(np.int64))
