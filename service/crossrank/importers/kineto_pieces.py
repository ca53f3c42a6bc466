"""Pieces of a Kineto trace to columns, before anything that is only known at the end of the file.

The parser makes one typed object an event; everything after it works on whole columns or once per distinct name. Times are read
from the digits of the text, since a float64 holds epoch microseconds only to a quarter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.importers.canonical_args import NO_NUMBER, canonical_args
from crossrank.importers.json_stream import elements, thousandths, without_number_words
from crossrank.importers.kineto_names import (
    COMMUNICATION,
    DEVICE_CATEGORIES,
    LAUNCH_CATEGORIES,
    Communication,
    Role,
    communication,
    role_of,
    step_of,
)
from crossrank.importers.kineto_overlong import LATEST_NS, LONGEST_NS
from crossrank.importers.kineto_words import Lanes, Words
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.flags import EventFlag
from crossrank.model.post import Rejection

_TOO_DEEP: Final = object()
_COMMUNICATES: Final = np.array([role in COMMUNICATION for role in Role])

COLUMNS: Final = pa.schema(
    [
        ("role", pa.uint8()),
        ("name", pa.string()),
        ("lane", pa.string()),
        ("ts_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("index", pa.int64()),
        ("correlation", pa.int64()),  # of work on the device; NO_NUMBER elsewhere
        ("step", pa.int64()),
        ("group", pa.string()),
        ("ranks_text", pa.string()),
        ("seq", pa.int64()),
        ("op", pa.string()),
        ("peer", pa.int64()),
        ("bytes", pa.int64()),
        ("dtype", pa.string()),
        ("attrs", pa.string()),
        ("flags", pa.int32()),
    ]
)


class Event(msgspec.Struct, gc=False):
    """One element of traceEvents as far as it is used; a missing number is an empty text."""

    ph: str = ""
    cat: str = ""
    name: str | int | float | None = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    id: Any = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


_EVENTS: Final = msgspec.json.Decoder(list[Event])
_EVENT: Final = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class Flows:
    """Arrows between operators: id, thread and time of their ends, as in the file."""

    ids: list[Any] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    ts: list[msgspec.Raw] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of COLUMNS, with what only the joining of spans needs: [rows] arrays.

    digest: uint64 of everything that tells the span from others. launch: its correlation where it is a launch, else
    NO_NUMBER. operator: it is an operator of the host. thread: code of its lane. device: it is work of a stream.
    """

    rows: pa.RecordBatch
    digest: np.ndarray
    launch: Int64Array
    operator: BoolArray
    thread: Int64Array
    device: BoolArray


class PieceReader:
    """Turns pieces into columns and keeps what is counted on the way."""

    def __init__(self, limits: Limits) -> None:
        self.rejections: list[Rejection] = []
        self.starts, self.ends = Flows(), Flows()
        self.spans = 0
        self.number_words = 0
        self.bad_durations = 0
        self._limits = limits
        self._names, self._categories, self._lane_names = Words(), Words(), Words()
        self._lanes = Lanes(self._lane_names)
        self._roles: dict[tuple[int, int], Role] = {}

    def read(self, text: bytes) -> Piece | None:
        """The complete spans in a piece; None when it has none."""
        spans, index = self._spans(text)
        if not spans:
            return None
        name = self._names.codes([e.name if type(e.name) is str else str(e.name) for e in spans])
        category = self._categories.codes([e.cat for e in spans])
        lanes = self._lanes
        lane = np.fromiter([lanes[e.cat][e.pid][e.tid] for e in spans], dtype=np.int64, count=len(spans))
        role = self._roles_of(category, name)
        ts, timed = thousandths([e.ts for e in spans])
        dur, lasting = thousandths([e.dur for e in spans])
        lasting &= (dur >= 0) & (dur <= LONGEST_NS)
        timed &= np.abs(ts) <= LATEST_NS
        dur[~lasting] = 0
        self.bad_durations += int(np.count_nonzero(timed & ~lasting))
        kept = self._quarantine(ts, timed, index)
        attrs, correlation, flags = self._attributes(spans, category)
        steps = {i: step_of(self._names.words[name[i]]) for i in np.flatnonzero(role == Role.STEP).tolist()}
        columns = self._communications(spans, role, name) | {
            "role": role,
            "name": self._names.column(name),
            "lane": self._lane_names.column(lane),
            "ts_ns": ts,
            "dur_ns": dur,
            "index": index,
            "correlation": np.where(self._are(category, DEVICE_CATEGORIES), correlation, NO_NUMBER),
            "step": _sparse(len(spans), steps, pa.int64()),
            "attrs": attrs,
            "flags": flags,
        }
        rows = pa.record_batch([_column(columns[f.name], f.type) for f in COLUMNS], schema=COLUMNS)
        piece = Piece(
            rows=rows,
            digest=_mixed(self._lane_names.hashes()[lane], self._names.hashes()[name], ts, dur),
            launch=np.where(self._are(category, LAUNCH_CATEGORIES), correlation, NO_NUMBER),
            operator=self._are(category, frozenset({"cpu_op"})),
            thread=lane,
            device=self._are(category, DEVICE_CATEGORIES),
        )
        return piece if kept.all() else _filtered(piece, kept)

    def _are(self, category: Int64Array, wanted: frozenset[str]) -> BoolArray:
        """[n] whether the category is one of these."""
        return np.array([word in wanted for word in self._categories.words], dtype=np.bool_)[category]

    def _roles_of(self, category: Int64Array, name: Int64Array) -> np.ndarray:
        """[n] uint8 roles, decided once for each category and name."""
        pairs, place = np.unique((category << np.int64(40)) | name, return_inverse=True)
        table = np.zeros(len(pairs), dtype=np.uint8)
        for i, pair in enumerate(pairs.tolist()):
            key = pair >> 40, pair & ((1 << 40) - 1)
            if key not in self._roles:
                self._roles[key] = role_of(self._categories.words[key[0]], self._names.words[key[1]])
            table[i] = self._roles[key]
        return table[place]

    def _communications(self, spans: list[Event], role: np.ndarray, name: Int64Array) -> dict[str, pa.Array]:
        """The columns of communications, null for all other spans; corrects their roles in place."""
        found: dict[int, Communication] = {}
        for i in np.flatnonzero(_COMMUNICATES[role]).tolist():
            args = _decoded(spans[i].args)
            role[i], found[i] = communication(
                Role(int(role[i])), self._names.words[name[i]], args if isinstance(args, dict) else {}
            )
        return {
            column: _sparse(len(spans), {i: getattr(said, attribute) for i, said in found.items()}, COLUMNS.field(column).type)
            for column, attribute in _COMMUNICATION_COLUMNS
        }

    def _spans(self, text: bytes) -> tuple[list[Event], list[int]]:
        """Complete spans and their places; arrows go to `starts` and `ends`."""
        try:
            events = _EVENTS.decode(b"[" + text + b"]")
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return self._mended(text)
        for arrow in [e for e in events if e.cat == "fwdbwd" and e.ph != "X"]:
            self._arrow(arrow)
        spans = [e for e in events if e.ph == "X"]
        self.spans += len(spans)
        return spans, list(range(self.spans - len(spans), self.spans))

    def _mended(self, text: bytes) -> tuple[list[Event], list[int]]:
        """The same for a piece that is not clean JSON."""
        spans: list[Event] = []
        index: list[int] = []
        for event in self._slowly(text):
            if event is None:
                self.spans += 1
            elif event.ph == "X":
                spans.append(event)
                index.append(self.spans)
                self.spans += 1
            elif event.cat == "fwdbwd":
                self._arrow(event)
        return spans, index

    def _arrow(self, event: Event) -> None:
        flows = self.starts if event.ph == "s" else self.ends if event.ph == "f" else None
        if flows is not None and isinstance(event.id, int | str):
            flows.ids.append(event.id)
            flows.thread.append(self._lanes["cpu_op"][event.pid][event.tid])
            flows.ts.append(event.ts)

    def _slowly(self, text: bytes) -> Iterable[Event | None]:
        """Events of a piece that is not clean JSON, one by one: bare `inf` becomes null; None stands for a refused element."""
        at = self.spans
        for element in elements(text):
            event: Event | None = None
            try:
                event = self._read_one(element)
            except RecursionError:
                self.rejections.append(Rejection(at, "too_deep"))
            except msgspec.ValidationError as fault:
                self.rejections.append(Rejection(at, "bad_type", detail=str(fault)[:200]))
            except msgspec.DecodeError as fault:
                self.rejections.append(Rejection(at, "bad_json", detail=str(fault)[:200]))
            at += event is None or event.ph == "X"
            yield event

    def _read_one(self, element: bytes) -> Event:
        try:
            return _EVENT.decode(element)
        except (msgspec.DecodeError, UnicodeError):
            mended, words = without_number_words(element.decode("utf-8", "replace").encode())
            event = _EVENT.decode(mended)
            self.number_words += words
            return event

    def _quarantine(self, ts: Int64Array, timed: BoolArray, index: list[int]) -> BoolArray:
        """Spans whose clock was not read (ts 0) or whose time is no number are refused, by reason."""
        for reason, mask in (("start_zero", timed & (ts == 0)), ("bad_type", ~timed)):
            self.rejections += [Rejection(index[i], reason, detail="ts") for i in np.flatnonzero(mask).tolist()]
        kept: BoolArray = timed & (ts != 0)
        return kept

    def _attributes(self, spans: list[Event], category: Int64Array) -> tuple[pa.Array, Int64Array, Int32Array]:
        """Bounded canonical JSON of the arguments and the category, and the correlation; what is not plain goes one by one."""
        found = canonical_args([e.args for e in spans], self._categories.words, category)
        flags = np.zeros(len(spans), dtype=np.int32)
        if found.plain.all():
            return found.texts, found.number, flags
        slow: list[str | None] = [None] * len(spans)
        for i in np.flatnonzero(~found.plain).tolist():
            slow[i], found.number[i], cut = self._checked(spans[i])
            flags[i] = int(EventFlag.TRUNCATED) if cut else 0
        return pc.if_else(pa.array(found.plain), found.texts, pa.array(slow, type=pa.string())), found.number, flags

    def _checked(self, event: Event) -> tuple[str | None, int, bool]:
        """The bounded text of unusual arguments, their correlation, and whether something was cut."""
        args = _decoded(event.args)
        try:
            if args is _TOO_DEEP:
                raise TooDeep  # noqa: TRY301 -- the parser's depth and ours are one limit to the sender
            args = args if isinstance(args, dict) else {}
            number = args.get("correlation")
            args.setdefault("cat", event.cat)
            text, cut = attrs_text(args, self._limits)
        except TooDeep:
            return '{"cut":"nested too deeply"}', NO_NUMBER, True
        return text, number if type(number) is int and 0 <= number < 2**63 else NO_NUMBER, cut


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.DecodeError, UnicodeError):
        return None


_COMMUNICATION_COLUMNS: Final = (
    ("op", "op"),
    ("group", "group"),
    ("ranks_text", "ranks_text"),
    ("seq", "seq"),
    ("peer", "peer"),
    ("bytes", "size_bytes"),
    ("dtype", "dtype"),
)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, type=kind)


def _sparse(rows: int, values: dict[int, Any], kind: pa.DataType) -> pa.Array:
    """A column that is null almost everywhere."""
    if not values:
        return pa.nulls(rows, kind)
    column: list[Any] = [None] * rows
    for row, value in values.items():
        column[row] = value
    return pa.array(column, type=kind)


def _mixed(*columns: Int64Array) -> np.ndarray:
    """One well-spread uint64 a row from several columns (the finaliser of splitmix64 after each)."""
    out = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        out = (out ^ column.view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out ^= out >> np.uint64(31)
    return out


def remixed(digest: np.ndarray, again: Int64Array) -> np.ndarray:
    """Other digests for spans that are equal to earlier ones: the n-th gets its own."""
    return _mixed(digest.view(np.int64), again)


def _filtered(piece: Piece, kept: BoolArray) -> Piece:
    return Piece(
        piece.rows.filter(pa.array(kept)),
        piece.digest[kept],
        piece.launch[kept],
        piece.operator[kept],
        piece.thread[kept],
        piece.device[kept],
    )
