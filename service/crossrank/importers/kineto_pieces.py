"""Pieces of a Kineto trace to columns, before anything that is only known at the end of the file.

The parser makes one typed object an event; everything after it works on whole columns or once per distinct name. Times are read
from the digits of the text, since a float64 holds epoch microseconds only to a quarter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

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
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.flags import EventFlag
from crossrank.model.post import Rejection

_BRACKETS: Final = 64
_KNOWN_KEYS: Final = 4096
_TEXT_BYTES: Final = 4096
NO_CORRELATION: Final = -1

COLUMNS: Final = pa.schema(
    [
        ("role", pa.uint8()),
        ("name", pa.string()),
        ("lane", pa.string()),
        ("ts_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("index", pa.int64()),
        ("correlation", pa.int64()),  # of work on the device; NO_CORRELATION elsewhere
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
    args: dict[str, Any] | None = None


_EVENTS: Final = msgspec.json.Decoder(list[Event])
_EVENT: Final = msgspec.json.Decoder(Event)
_ATTRS: Final = msgspec.json.Encoder(order="sorted")


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
    NO_CORRELATION. operator: it is an operator of the host. thread: hash of its lane.
    """

    rows: pa.RecordBatch
    digest: np.ndarray
    launch: Int64Array
    operator: BoolArray
    thread: Int64Array


class _Words(dict[str, int]):
    """Stable 63-bit hashes of distinct words."""

    def __missing__(self, word: str) -> int:
        value = int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1
        self[word] = value
        return value


class _Roles(dict[tuple[str, str], Role]):
    def __missing__(self, key: tuple[str, str]) -> Role:
        value = role_of(*key)
        self[key] = value
        return value


class _Lanes(dict[Any, Any]):
    """Lanes by category, then pid, then tid: nested, because a key of three would be made anew for every event.

    On the device the pid is the device's number and the tid the stream's.
    """

    def __init__(self, *outer: Any) -> None:
        super().__init__()
        self._outer = outer

    def __missing__(self, key: Any) -> Any:
        found = _lane(*self._outer, key) if len(self._outer) == 2 else _Lanes(*self._outer, key)
        self[key] = found
        return found


def _lane(category: str, pid: Any, tid: Any) -> str:
    if category in DEVICE_CATEGORIES:
        return f"cuda:{pid}:{tid}"
    if category in ("gpu_user_annotation", "cuda_sync"):
        return f"cuda:{pid}:{tid} {category}"  # lies over the stream's own work
    return tid if isinstance(tid, str) else f"cpu:{tid}"


class PieceReader:
    """Turns pieces into columns and keeps what is counted on the way."""

    def __init__(self, limits: Limits) -> None:
        self.rejections: list[Rejection] = []
        self.starts, self.ends = Flows(), Flows()
        self.spans = 0
        self.number_words = 0
        self.bad_durations = 0
        self._limits = limits
        self._hashes, self._roles, self._lanes = _Words(), _Roles(), _Lanes()
        self._keys: set[str] = set()

    def read(self, text: bytes) -> Piece | None:
        """The complete spans in a piece; None when it has none."""
        spans, index = self._spans(text)
        if not spans:
            return None
        names = [e.name if type(e.name) is str else str(e.name) for e in spans]
        cats = [e.cat for e in spans]
        args = [e.args or {} for e in spans]
        ts, timed = thousandths([e.ts for e in spans])
        dur, lasting = thousandths([e.dur for e in spans])
        lasting &= dur >= 0
        dur[~lasting] = 0
        self.bad_durations += int(np.count_nonzero(timed & ~lasting))
        kept = self._quarantine(ts, timed, index)
        roles = list(map(self._roles.__getitem__, zip(cats, names, strict=True)))
        lanes = [self._lanes[e.cat][e.pid][e.tid] for e in spans]
        communications = _communications(roles, names, args)
        thread = np.array(list(map(self._hashes.__getitem__, lanes)), dtype=np.int64)
        title = np.array(list(map(self._hashes.__getitem__, names)), dtype=np.int64)
        correlation = _correlations(args)
        on_device = np.array([c in DEVICE_CATEGORIES for c in cats], dtype=np.bool_)
        launches = np.array([c in LAUNCH_CATEGORIES for c in cats], dtype=np.bool_)
        attrs, flags = self._attributes(args, cats)
        columns = communications | {
            "role": np.array(roles, dtype=np.uint8),
            "name": names,
            "lane": lanes,
            "ts_ns": ts,
            "dur_ns": dur,
            "index": index,
            "correlation": np.where(on_device, correlation, NO_CORRELATION),
            "step": _sparse(len(spans), {i: step_of(names[i]) for i, role in enumerate(roles) if role is Role.STEP}, pa.int64()),
            "attrs": attrs,
            "flags": flags,
        }
        rows = pa.record_batch([pa.array(columns[f.name], type=f.type) for f in COLUMNS], schema=COLUMNS)
        piece = Piece(
            rows=rows,
            digest=_mixed(thread, title, ts, dur),
            launch=np.where(launches, correlation, NO_CORRELATION),
            operator=np.array([c == "cpu_op" for c in cats], dtype=np.bool_),
            thread=thread,
        )
        return piece if kept.all() else _filtered(piece, kept)

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
            flows.thread.append(self._hashes[self._lanes["cpu_op"][event.pid][event.tid]])
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

    def _attributes(self, args: list[dict[str, Any]], cats: list[str]) -> tuple[list[bytes | None], Int32Array]:
        """Bounded canonical JSON of the arguments with the category. Only what is unusual is looked at one by one."""
        for said, category in zip(args, cats, strict=True):
            said.setdefault("cat", category)
        encoded = list(map(_ATTRS.encode, args))
        texts: list[bytes | None] = [*encoded]
        flags = np.zeros(len(args), dtype=np.int32)
        length = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        unusual = length > min(self._limits.value_bytes, _TEXT_BYTES)
        for i in np.flatnonzero(length > 2 * _BRACKETS).tolist():
            unusual[i] |= encoded[i].count(b"[") + encoded[i].count(b"{") > _BRACKETS
        if self._are_known(set().union(*args)):
            unusual |= np.fromiter(map(len, args), dtype=np.int64, count=len(args)) > self._limits.attrs_per_event
        else:
            unusual[:] = True
        for i in np.flatnonzero(unusual).tolist():
            texts[i] = self._checked(args[i], i, flags)
        return texts, flags

    def _are_known(self, keys: set[str]) -> bool:
        """Whether all keys are short; those seen are remembered."""
        new = keys - self._keys
        if any(len(key) * 4 > self._limits.key_bytes and len(key.encode()) > self._limits.key_bytes for key in new):
            return False
        if len(self._keys) < _KNOWN_KEYS:
            self._keys |= new
        return True

    def _checked(self, args: dict[str, Any], row: int, flags: Int32Array) -> bytes | None:
        """The bounded text of unusual arguments."""
        try:
            text, cut = attrs_text(args, self._limits)
        except TooDeep:
            flags[row] |= int(EventFlag.TRUNCATED)
            return b'{"cut":"nested too deeply"}'
        if cut:
            flags[row] |= int(EventFlag.TRUNCATED)
        return text.encode() if text is not None else None


_COMMUNICATION_COLUMNS: Final = (
    ("op", "op"),
    ("group", "group"),
    ("ranks_text", "ranks_text"),
    ("seq", "seq"),
    ("peer", "peer"),
    ("bytes", "size_bytes"),
    ("dtype", "dtype"),
)


def _communications(roles: list[Role], names: list[str], args: list[dict[str, Any]]) -> dict[str, Any]:
    """The columns of communications, null for all other spans; corrects their roles in place."""
    found: dict[int, Communication] = {}
    for i, role in enumerate(roles):
        if role in COMMUNICATION:
            roles[i], found[i] = communication(role, names[i], args[i])
    return {
        column: _sparse(len(roles), {i: getattr(said, attribute) for i, said in found.items()}, COLUMNS.field(column).type)
        for column, attribute in _COMMUNICATION_COLUMNS
    }


def _sparse(rows: int, values: dict[int, Any], kind: pa.DataType) -> pa.Array:
    """A column that is null almost everywhere."""
    if not values:
        return pa.nulls(rows, kind)
    column: list[Any] = [None] * rows
    for row, value in values.items():
        column[row] = value
    return pa.array(column, type=kind)


def _correlations(args: list[dict[str, Any]]) -> Int64Array:
    found = [said.get("correlation", NO_CORRELATION) for said in args]
    try:
        numbers = np.array(found)
    except (ValueError, OverflowError):  # lists of odd lengths
        numbers = np.empty(0)
    if numbers.dtype == np.int64 and numbers.shape == (len(args),):
        return np.where(numbers < 0, NO_CORRELATION, numbers)
    return np.array([n if type(n) is int and 0 <= n < 2**63 else NO_CORRELATION for n in found], dtype=np.int64)


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
        piece.rows.filter(pa.array(kept)), piece.digest[kept], piece.launch[kept], piece.operator[kept], piece.thread[kept]
    )
