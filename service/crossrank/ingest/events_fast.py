"""NDJSON to columns by compiled code; the same columns as `events_json.decode_lines`, several times faster.

    walk     lines into flat arrays                             (compiled)
    values   escaped texts, arrays, objects and decimal numbers, by the JSON library: each distinct one once, numbers all at once
    columns  words, numbers, ids and attribute texts as Arrow arrays

Lines that are unusual in any way are read one by one by the plain decoder and put back in their places.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numba import njit

from crossrank.errors import BodyTooLarge
from crossrank.ingest import attr_texts, events_json
from crossrank.ingest.attr_texts import BOOL, DOUBLE, INT, TEXT, Texts
from crossrank.ingest.body_words import BodyWords, nullable
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import Table
from crossrank.ingest.decimal_numbers import float_bits
from crossrank.ingest.event_fields import ESCAPED, FIELDS, NESTED
from crossrank.ingest.event_form import INT64
from crossrank.ingest.events_json import BOM, link_ids, not_json, read_items
from crossrank.ingest.json_kernels import Floats
from crossrank.ingest.ndjson_walk import Attrs, Lines, walk
from crossrank.ingest.slow_rows import merge
from crossrank.limits import Limits
from crossrank.model.arrays import Int64Array
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import RAW_SCHEMA, Decoded

_SHORTEST_LIMIT: Final = 64  # below it even a number's text may have to be cut
_TEXTS: Final = msgspec.json.Decoder(list[str])
_INTEGERS: Final = msgspec.json.Decoder(list[INT64])
_PLACE: Final = {name: place for place, name in enumerate(FIELDS)}
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError, TooDeep)


def decode_lines(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """NDJSON: one object a line; blank lines are skipped. Raises UndecodableBody when not one line is JSON, BodyTooLarge."""
    body = body.removeprefix(BOM)
    if not body:
        return read_items((), job, limits)
    walked = walk(body, limits)
    if walked is None:
        raise BodyTooLarge(f"The body holds more than {limits.events_per_body} events", limit_events=limits.events_per_body)
    lines, attrs, floats, keys, values = walked
    if limits.value_bytes < _SHORTEST_LIMIT:
        lines.slow[:] = True
    maker = _Columns(body, lines, attrs, floats, keys, values, limits)
    fast = maker.table()
    slow = np.flatnonzero(lines.slow)
    places = zip(slow.tolist(), lines.begin[slow].tolist(), lines.end[slow].tolist(), strict=True)
    decoded = read_items(((row, body[begin:end]) for row, begin, end in places), job, limits)
    if fast.num_rows == 0:
        not_json(decoded, lines.begin.size)
    merge(decoded, fast, np.flatnonzero(~lines.slow))
    return decoded


def decode_json(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """As `events_json.decode_json`; NDJSON that comes as application/json is read by compiled code."""
    return events_json.decode_json(body, job, limits, decode_lines)


class _Columns:
    """Columns of walked lines. Values that need the plain decoder make their lines slow."""

    def __init__(self, body: bytes, lines: Lines, attrs: Attrs, floats: Floats, keys: Table, values: Table, limits: Limits) -> None:
        self._body, self._lines, self._attrs, self._limits = body, lines, attrs, limits
        n = int(values.found[0])
        self._start, self._size, self._kind = values.start[:n], values.size[:n], values.kind[:n]
        self._words = BodyWords(body, self._start, self._size)
        self._key_names = [body[at : at + size].decode(errors="replace") for at, size in zip(*_stretches(keys), strict=True)]
        self._key_stretches = _stretches(keys)
        self._floats = float_bits(body, floats)

    def table(self) -> pa.Table:
        """The rows of all lines that are not slow."""
        self._read_escaped()
        lists = {name: self._lists(name) for name in ("group_ranks", "links")}
        values = self._value_texts()
        self._mark_long()
        columns = {name: self._column(name) for name in RAW_SCHEMA.names if name in _PLACE}
        columns |= {name: self._list_column(name, *lists[name]) for name in lists}
        columns["attrs"] = self._attrs_column(values)
        columns["flags"] = pa.array(np.zeros(self._lines.begin.size, np.int32))
        table = pa.table({f.name: columns[f.name] for f in RAW_SCHEMA})
        return table.filter(pa.array(~self._lines.slow)) if self._lines.slow.any() else table

    def _given(self, name: str) -> tuple[np.ndarray, Int64Array]:
        place = _PLACE[name]
        return self._lines.given[place], self._lines.number[place]

    def _column(self, name: str) -> pa.Array:
        kind, n = RAW_SCHEMA.field(name).type, self._lines.begin.size
        given, number = self._given(name)
        if name in ("trace_id", "span_id", "parent_span_id"):
            ids = {"trace_id": self._lines.trace_id, "span_id": self._lines.span_id, "parent_span_id": self._lines.parent_id}[name]
            valid = pa.py_buffer(np.packbits(given == TEXT, bitorder="little"))
            return pa.FixedSizeBinaryArray.from_buffers(kind, n, [valid, pa.py_buffer(ids)])
        if not (given > 0).any() or name in ("attrs", "otel", "group_ranks", "links"):
            return pa.nulls(n, kind)
        if kind == pa.string():
            return self._words.column(np.where(given > 0, number, -1), n)
        if kind == pa.bool_():
            return nullable(number != 0, given != BOOL)
        if kind == pa.float64():
            decimals, number = number, np.where(given == INT, number, 0)
            decimal = self._floats.view(np.float64)[np.where(given == DOUBLE, decimals, 0)] if self._floats.size else 0.0
            return nullable(np.where(given == DOUBLE, decimal, number.astype(np.float64)), given <= 0)
        return nullable(number, given != INT)

    def _read_escaped(self) -> None:
        """Reads texts with escapes; lines with one that cannot be read are slow."""
        bad = []
        for code in np.flatnonzero(self._kind == ESCAPED).tolist():
            try:
                self._words.reads_as(code, msgspec.json.decode(b'"' + self._raw(code) + b'"'))
            except _UNREADABLE:
                bad.append(code)
        if bad:
            of_lines = np.isin(self._lines.number, bad) & (self._lines.given == ESCAPED)
            self._lines.slow[of_lines.any(axis=0)] = True
            self._mark_attrs(np.isin(self._attrs.value, bad) & (self._attrs.kind == ESCAPED))

    def _raw(self, code: int) -> bytes:
        at = int(self._start[code])
        return self._body[at : at + int(self._size[code])]

    def _mark_attrs(self, mask: np.ndarray) -> None:
        """Makes the lines of these attributes slow."""
        self._lines.slow[np.searchsorted(self._lines.first, np.flatnonzero(mask), side="right") - 1] = True

    def _mark_long(self) -> None:
        """Lines with a key or a text beyond its limit are slow."""
        key, kind, value = self._attrs
        long = np.array([len(name.encode()) > self._limits.key_bytes for name in self._key_names], np.bool_)
        texts = np.flatnonzero(kind == TEXT)
        mask = np.zeros(key.size, np.bool_) if not long.any() else long[key]
        mask[texts] |= self._size[value[texts]] > self._limits.value_bytes
        if mask.any():
            self._mark_attrs(mask)

    def _lists(self, name: str) -> tuple[list[Any], Int64Array]:
        """(distinct lists of a column, place of each value code among them); lines with one that is none are slow."""
        place = np.full(self._start.size + 1, -1, np.int64)
        given, number = self._given(name)
        lists: list[Any] = []
        if not (given == NESTED).any():
            return lists, place
        decoder: Any = _TEXTS if name == "links" else _INTEGERS
        for code in np.unique(number[given == NESTED]).tolist():
            try:
                found = decoder.decode(self._raw(code))
            except _UNREADABLE:
                self._lines.slow[(given == NESTED) & (number == code)] = True
                continue
            place[code] = len(lists)
            lists.append(link_ids(found, self._limits) if name == "links" else found)
        return lists, place

    def _list_column(self, name: str, lists: list[Any], place: Int64Array) -> pa.Array:
        kind = RAW_SCHEMA.field(name).type
        if not lists:
            return pa.nulls(self._lines.begin.size, kind)
        given, number = self._given(name)
        codes = place[np.where(given == NESTED, number, -1)]
        return pa.array(lists, kind).take(pa.array(codes, mask=codes < 0))

    def _value_texts(self) -> Texts:
        """JSON texts of the values of attributes, by code."""
        _, kind, value = self._attrs
        used = np.zeros(self._start.size, np.bool_)
        used[value[(kind == TEXT) | (kind > DOUBLE)]] = True
        texts = np.flatnonzero(used & (self._kind == TEXT))
        others = np.flatnonzero(used & (self._kind > DOUBLE))
        encoded = [self._other_text(code) for code in others.tolist()]
        buf = np.frombuffer(self._body, np.uint8)
        parts = attr_texts.joined(
            attr_texts.quoted(buf, self._start[texts], self._size[texts]), attr_texts.texts_of([text or b"" for text in encoded])
        )
        start, size = np.zeros(self._start.size, np.int64), np.zeros(self._start.size, np.int64)
        codes = np.concatenate([texts, others])
        start[codes], size[codes] = parts.start, parts.size
        unusual = others[[text is None for text in encoded]]
        if unusual.size:
            self._mark_attrs(np.isin(value, unusual) & (kind > DOUBLE))
        return Texts(start, size, parts.bytes)

    def _other_text(self, code: int) -> bytes | None:
        """The text of an escaped or nested value; None when it cannot be read or is beyond a limit."""
        raw = self._raw(code)
        try:
            value = msgspec.json.decode(b'"' + raw + b'"' if self._kind[code] == ESCAPED else raw)
            text, cut = attrs_text({"": value}, self._limits)
        except _UNREADABLE:
            return None
        return None if cut or text is None else text[len('{"":') : -1].encode()

    def _attrs_column(self, values: Texts) -> pa.Array:
        key, kind, value = self._attrs
        order = np.empty(len(self._key_names), np.int64)
        order[np.array(sorted(range(order.size), key=self._key_names.__getitem__), np.int64)] = np.arange(order.size)
        _sort(self._lines.first, key, kind, value, order)
        decimals = kind == DOUBLE
        value[decimals] = self._floats[value[decimals]]
        buf = np.frombuffer(self._body, np.uint8)
        return attr_texts.objects(self._lines.first, key, kind, value, attr_texts.quoted(buf, *self._key_stretches), values)


def _stretches(table: Table) -> tuple[Int64Array, Int64Array]:
    n = int(table.found[0])
    return table.start[:n], table.size[:n]


@njit(cache=True, nogil=True)
def _sort(first: np.ndarray, key: np.ndarray, kind: np.ndarray, value: np.ndarray, order: np.ndarray) -> None:
    """Sorts the attributes of each line by their keys."""
    first, key, kind, value, order = borrowed(first), borrowed(key), borrowed(kind), borrowed(value), borrowed(order)
    for row in range(first.size - 1):
        for a in range(first[row] + 1, first[row + 1]):
            k, t, v = key[a], kind[a], value[a]
            i = a
            while i > first[row] and order[key[i - 1]] > order[k]:
                key[i], kind[i], value[i] = key[i - 1], kind[i - 1], value[i - 1]
                i -= 1
            key[i], kind[i], value[i] = k, t, v
