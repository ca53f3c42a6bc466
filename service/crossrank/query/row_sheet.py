"""Stored events with aligned times as a sheet of a picture: sorted, shaped, attributes as columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.exporters.picture import COUNTER, INSTANT, OPEN, SLICE, Ints, Sheet, Words
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.flags import EventFlag
from crossrank.query.aligned import event_ids

_INTS: Final = {
    "step": "step_inferred",
    "seq": "seq",
    "peer": "peer",
    "bytes": "bytes",
    "bound_ns": "bound_ns",
    "lamport": "lamport",
    "raw_start_ns": "start_ns",
    "raw_end_ns": "end_ns",
}
_WORDS: Final = ("group", "op", "dtype")
_FOREVER: Final = np.iinfo(np.int64).max


def row_sheet(rows: pa.Table, ranks: Int32Array, *, first_process: int) -> tuple[Sheet, Int64Array, int]:
    """The sheet, the row that each of its rows was, and how many rows lie before 1970, which no viewer can show.

    rows: events with alignment. ranks: ascending; rank ranks[i] is process first_process + i.
    """
    start, started = _ints(rows["aligned_start_ns"])
    end, ended = _ints(rows["aligned_end_ns"])
    start = np.where(started, start, end)
    shape = _shapes(rows, start, end, started, ended)
    value, _ = _values(rows)
    rank = rows["rank"].to_numpy()
    end = np.where(shape == SLICE, end, start)
    length = np.where(shape == OPEN, _FOREVER, end - start)
    lane = _words(rows["lane"])
    shown = start >= 0
    order = np.lexsort((event_ids(rows), -length, start, lane.code, rank, ~shown))[: int(shown.sum())].astype(np.int64)
    taken = rows.take(pa.array(order))
    sheet = Sheet(
        process=(np.searchsorted(ranks, rank[order]) + first_process).astype(np.int32),
        lane=Words(lane.code[order], lane.words),
        name=_words(taken["name"]),
        kind=_words(taken["kind"]),
        shape=shape[order],
        start_ns=start[order],
        end_ns=end[order],
        value=value[order],
        ints={shown_as: Ints(*_ints(taken[column])) for shown_as, column in _INTS.items()},
        words={name: _words(taken[name]) for name in _WORDS},
        texts=_texts(taken),
    )
    return sheet, order, len(rows) - len(order)


def _shapes(rows: pa.Table, start: Int64Array, end: Int64Array, started: BoolArray, ended: BoolArray) -> np.ndarray:
    flags = rows["flags"].to_numpy()
    reversed_ = (flags & int(EventFlag.END_BEFORE_START)) != 0
    shape = np.full(len(rows), SLICE, dtype=np.int8)
    shape[~ended] = OPEN
    shape[~started | reversed_ | (ended & (end <= start))] = INSTANT
    kind = _words(rows["kind"])
    metric = np.array([word == "metric" for word in (*kind.words, "")], dtype=bool)[kind.code]
    shape[metric & _values(rows)[1]] = COUNTER
    return shape


def _values(rows: pa.Table) -> tuple[np.ndarray, BoolArray]:
    value = rows["value"].fill_null(float("nan")).to_numpy()
    return value, np.isfinite(value)


def _texts(rows: pa.Table) -> dict[str, pa.Array]:
    """JSON text: ids in quotes, attributes as they are."""
    ids = [
        pa.array([None if i is None else f'"{i.hex()}"' for i in rows[c].to_pylist()], pa.string()) for c in ("span_id", "trace_id")
    ]
    return {
        "span_id": ids[0],
        "trace_id": ids[1],
        "attrs": rows["attrs"].combine_chunks(),
        "otel": rows["otel"].combine_chunks(),
    }


def _ints(column: pa.ChunkedArray) -> tuple[Int64Array, BoolArray]:
    return column.fill_null(0).to_numpy().astype(np.int64), pc.is_valid(column).to_numpy()


def _words(column: pa.ChunkedArray) -> Words:
    coded = column.combine_chunks()
    code = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Words(code, tuple(coded.dictionary.to_pylist()))
