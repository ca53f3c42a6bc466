"""A picture in the Chrome trace event format (JSON), for chrome://tracing, Perfetto and the many tools that read it.

`ts` and `dur` are microseconds. They are written as decimals with exactly three places from the integers, and count from
`otherData.base_ns` (a string): epoch nanoseconds do not fit the doubles that JavaScript reads numbers into.

    X   a slice (dur)      B   one that has not ended      i   an instant      C   a sample      s, f   both ends of an arrow
    M   names of processes (with host and clock bound) and threads

Text is put together by columns; names are quoted once each, attributes are JSON already.
Source: the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.exporters.picture import COUNTER, SLICE, Arrows, Picture, Sheet, Words
from crossrank.exporters.tracks import Layout, lay_out
from crossrank.model.arrays import Int64Array

MEDIA_TYPE: Final = "application/json"
_ROWS_AT_ONCE: Final = 1 << 15
_FIRST_TID: Final = 1
_PHASES: Final = ('"X"', '"B"', '"i","s":"t"', '"C"')  # by shape


def chrome_stream(picture: Picture) -> Iterator[bytes]:
    """The JSON document in pieces; memory for one sheet at a time."""
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    yield b",\n".join(_processes(picture))
    next_tid, left_out = _FIRST_TID, 0
    for sheet in picture.sheets:
        layout = lay_out(sheet, next_tid)
        names = [_thread(layout, i, next_tid + i) for i in range(len(layout.names)) if not layout.is_counter[i]]
        yield b"".join(b",\n" + name for name in names)
        next_tid += len(layout.names)
        left_out += layout.left_out
        kept = np.flatnonzero(layout.track >= 0)
        for at in range(0, len(kept), _ROWS_AT_ONCE):
            yield _rows(sheet, layout, kept[at : at + _ROWS_AT_ONCE], picture.base_ns)
        yield _arrows(sheet, layout, sheet.begins, b"s", picture.base_ns)
        yield _arrows(sheet, layout, sheet.ends, b"f", picture.base_ns)
    notes = {"title": picture.title, "base_ns": str(picture.base_ns), **picture.notes(), "left_out_overlapping": left_out}
    yield b'\n],"otherData":' + msgspec.json.encode(notes) + b"}\n"


def _processes(picture: Picture) -> Iterator[bytes]:
    for number, process in enumerate(picture.processes):
        pid = number + 1
        yield _meta(pid, 0, "process_name", {"name": process.name})
        yield _meta(pid, 0, "process_labels", {"labels": ", ".join((*process.labels, process.description))})
        yield _meta(pid, 0, "process_sort_index", {"sort_index": number})


def _thread(layout: Layout, track: int, tid: int) -> bytes:
    pid = int(layout.owner[track]) + 1
    name = _meta(pid, tid, "thread_name", {"name": layout.names[track]})
    return name + b",\n" + _meta(pid, tid, "thread_sort_index", {"sort_index": tid})


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": name, "args": args})


def _rows(sheet: Sheet, layout: Layout, rows: Int64Array, base_ns: int) -> bytes:
    shape = sheet.shape[rows]
    phase = np.array(_PHASES, dtype=object)[shape]
    dur = pc.if_else(pa.array(shape == SLICE), _joined(',"dur":', _microseconds(sheet.end_ns[rows] - sheet.start_ns[rows])), "")
    args = pc.if_else(pa.array(shape == COUNTER), _joined('"value":', _numbers(sheet.value[rows])), _args(sheet, rows))
    text = _joined(
        ',\n{"ph":', pa.array(phase, pa.string()),
        ',"pid":', _text(sheet.process[rows].astype(np.int64) + 1),
        ',"tid":', _text(layout.track[rows]),
        ',"ts":', _microseconds(sheet.start_ns[rows] - base_ns),
        dur,
        ',"name":', _quoted(sheet.name, rows),
        ',"cat":', _quoted(sheet.kind, rows),
        ',"args":{', args, "}}",
    )  # fmt: skip
    return _bytes(text)


def _args(sheet: Sheet, rows: Int64Array) -> pa.Array:
    """The inside of `args`: every attribute present, with commas between."""
    parts: list[pa.Array] = []
    for name, ints in sheet.ints.items():
        shown = _joined(f',"{name}":', _exact(ints.value[rows]))
        parts.append(pc.if_else(pa.array(ints.known[rows]), shown, ""))
    for name, words in sheet.words.items():
        parts.append(pc.if_else(pa.array(words.code[rows] >= 0), _joined(f',"{name}":', _quoted(words, rows)), ""))
    for name, texts in sheet.texts.items():
        text = texts.take(pa.array(rows))
        parts.append(pc.if_else(text.is_valid(), _joined(f',"{name}":', text.fill_null("")), ""))
    return pc.utf8_slice_codeunits(_joined(*parts), 1) if parts else pa.array([""] * len(rows))


def _arrows(sheet: Sheet, layout: Layout, arrows: Arrows, phase: bytes, base_ns: int) -> bytes:
    """One end of every arrow of the sheet, each inside the slice it belongs to."""
    kept = layout.track[arrows.row] >= 0
    row = arrows.row[kept]
    text = _joined(
        f',\n{{"ph":"{phase.decode()}","bp":"e","name":"waited for","cat":"flow","id":', _text(arrows.id[kept]),
        ',"pid":', _text(sheet.process[row].astype(np.int64) + 1),
        ',"tid":', _text(layout.track[row]),
        ',"ts":', _microseconds(arrows.at_ns[kept] - base_ns), "}",
    )  # fmt: skip
    return _bytes(text)


def _microseconds(ns: Int64Array) -> pa.Array:
    """Nanoseconds as microseconds with three decimals, exactly."""
    whole, rest = np.divmod(np.abs(ns), 1000)
    sign = pc.if_else(pa.array(ns < 0), "-", "")
    return _joined(sign, _text(whole), ".", pc.utf8_lpad(_text(rest), 3, "0"))


def _exact(values: Int64Array) -> pa.Array:
    """Integers as JSON; those that a double cannot hold as strings."""
    text = _text(values)
    return pc.if_else(pa.array((values > 2**53) | (values < -(2**53))), _joined('"', text, '"'), text)


def _numbers(values: np.ndarray) -> pa.Array:
    """Finite numbers as JSON, the shortest text that reads back as the same double."""
    return pa.array([repr(v) for v in values.tolist()], pa.string())


def _text(values: np.ndarray) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _quoted(words: Words, rows: Int64Array) -> pa.Array:
    """Words as JSON strings; `""` where absent."""
    quoted = pa.array([msgspec.json.encode(w).decode() for w in (*words.words, "")], pa.string())
    code = words.code[rows]
    return quoted.take(pa.array(np.where(code < 0, len(words.words), code)))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _bytes(text: pa.Array) -> bytes:
    return "".join(text.to_pylist()).encode()
