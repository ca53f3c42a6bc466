"""Spans of an OTLP protobuf body to flat arrays, compiled.

The walk reads what nearly every span looks like: known fields in their usual encoding, attributes of any kind, valid text. For a
span that has anything else (span events, links, an attribute twice, a bad id, broken bytes, unknown fields ...) it only says so in
`slow`; such spans are read one by one by the plain decoder, which decides what they are or whether the body is refused. So the walk
need not know every rule of the format, only be right about what it accepts.

Key and value texts become codes (see `byte_kernels.intern`). Values that hold others (arrays, lists of pairs, bytes) are interned
as the bytes they are; they are few and are read once each, later.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import BOOL, DOUBLE, INT, NULL, TEXT
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import Table, byte_at, grown, intern, is_code, is_utf8, length, new_table, varint, word
from crossrank.ingest.otlp_index import Index
from crossrank.limits import Limits

ARRAY, KVLIST, BYTES = 5, 6, 7  # attribute kinds beside those of `attr_texts`; all are field numbers of AnyValue
ATTRS_MAX: Final = 128  # of a span; one with more is read slowly
TEXTS_MAX: Final = ATTRS_MAX + 3
_SLOW: Final = -1
_SEEN_BITS: Final = 6
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)

# What a span says beside its attributes, zero when it says nothing; texts as code + 1.
KIND, FLAGS, STATUS, MESSAGE, STATE, DROPPED_ATTRIBUTES, DROPPED_EVENTS, DROPPED_LINKS, SCOPE = range(9)
HEAD: Final = 9


class Spans(NamedTuple):
    """One row a span; rows where `slow` is set hold nothing of use."""

    slow: np.ndarray  # bool
    trace_id: np.ndarray  # uint8 [n, 16]
    span_id: np.ndarray  # uint8 [n, 8]
    parent_id: np.ndarray  # uint8 [n, 8]
    has_parent: np.ndarray  # bool
    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64, 0 where not set
    name: np.ndarray  # int64, a value code, -1 where empty
    head: np.ndarray  # int64 [n, HEAD]
    first: np.ndarray  # int64 [n + 1], the span's first attribute


class Attrs(NamedTuple):
    """Attributes of all spans, in their order. `value`: the number, the bits of the double, or a value code."""

    key: np.ndarray  # int64
    kind: np.ndarray  # int8
    value: np.ndarray  # int64


class Guesses(NamedTuple):
    """Codes seen lately at each place among a span's attributes: spans of a sender look alike."""

    key: np.ndarray  # int64 [ATTRS_MAX]
    value: np.ndarray  # int32 [ATTRS_MAX, 2**_SEEN_BITS], by the last bytes of the value


class Walked(NamedTuple):
    """What the walk found. Codes of `keys` and `values` are places of their tables."""

    spans: Spans
    attrs: Attrs
    keys: Table
    values: Table


def walk(buf: np.ndarray, index: Index, limits: Limits) -> Walked:
    """Reads all spans of an indexed body (uint8)."""
    n = index.begin.size
    spans = new_spans(n)
    spans.head[:, SCOPE] = index.scope
    attrs = new_attrs(buf.size // 24 + 2 * ATTRS_MAX)
    keys, values = new_table(2 * ATTRS_MAX), new_table(max(1024, buf.size // 512))
    guesses = Guesses(np.full(ATTRS_MAX, -1, np.int64), np.full((ATTRS_MAX, 1 << _SEEN_BITS), -1, np.int32))
    attrs_most = min(limits.attrs_per_event, ATTRS_MAX)
    done = used = 0
    while True:
        done, used = _walk(buf, index, done, used, spans, attrs, keys, values, guesses, attrs_most, limits.event_bytes)
        if done == n:
            return Walked(spans, Attrs(*(a[:used] for a in attrs)), keys, values)
        if attrs.key.size - used <= ATTRS_MAX:
            attrs = more_attrs(attrs, used)
        keys, values = with_room(keys, ATTRS_MAX), with_room(values, TEXTS_MAX)


def new_spans(n: int) -> Spans:
    """Room for n spans, nothing said yet."""
    return Spans(
        np.zeros(n, np.bool_),
        np.zeros((n, 16), np.uint8),
        np.zeros((n, 8), np.uint8),
        np.zeros((n, 8), np.uint8),
        np.zeros(n, np.bool_),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.full(n, -1, np.int64),
        np.zeros((n, HEAD), np.int64),
        np.zeros(n + 1, np.int64),
    )


def new_attrs(room: int) -> Attrs:
    """Room for attributes."""
    return Attrs(np.empty(room, np.int64), np.empty(room, np.int8), np.empty(room, np.int64))


def more_attrs(attrs: Attrs, used: int) -> Attrs:
    """The same attributes with room for as many again."""
    out = new_attrs(2 * attrs.key.size)
    for old, new in zip(attrs, out, strict=True):
        new[:used] = old[:used]
    return out


def with_room(table: Table, more: int) -> Table:
    """The table, grown if it has no room for `more` strings."""
    return table if table.start.size - table.found[0] > more else grown(table, 4 * table.start.size)


@njit(cache=True, nogil=True)
def _walk(
    buf: np.ndarray,
    index: Index,
    first: int,
    used: int,
    spans: Spans,
    attrs: Attrs,
    keys: Table,
    values: Table,
    guesses: Guesses,
    attrs_most: int,
    event_bytes: int,
) -> tuple[Any, Any]:
    """Reads spans until all are done or a table is too full for another; (spans done, attributes used)."""
    buf, index, spans, attrs = borrowed(buf), borrowed(index), borrowed(spans), borrowed(attrs)
    keys, values, guesses = borrowed(keys), borrowed(values), borrowed(guesses)
    for s in range(first, index.begin.size):
        spans.first[s] = used
        if (
            attrs.key.size - used <= ATTRS_MAX
            or keys.start.size - keys.found[0] <= ATTRS_MAX
            or values.start.size - values.found[0] <= TEXTS_MAX
        ):
            return s, used
        begin, end = index.begin[s], index.end[s]
        after = _SLOW
        if end - begin <= event_bytes:
            after = _span(buf, begin, end, s, used, spans, attrs, keys, values, guesses, attrs_most)
        if after == _SLOW:
            spans.slow[s] = True
        else:
            used = after
    spans.first[index.begin.size] = used
    return index.begin.size, used


@njit(cache=True, nogil=True, forceinline=True)
def _span(
    buf: np.ndarray,
    at: int,
    end: int,
    s: int,
    used: int,
    spans: Spans,
    attrs: Attrs,
    keys: Table,
    values: Table,
    guesses: Guesses,
    attrs_most: int,
) -> Any:
    """Reads one span; the number of attributes used so far, or _SLOW."""
    first = used
    has_ids = 0
    while at < end:
        tag = byte_at(buf, at)
        at += 1
        if tag == 0x4A:  # attributes
            size, at = length(buf, at, end)
            if at < 0 or used - first >= attrs_most:
                return _SLOW
            if not _attribute(buf, at, at + size, s, used, used - first, attrs, keys, values, guesses):
                return _SLOW
            used += 1
            at += size
        elif tag in (0x39, 0x41):  # start and end, fixed64
            if end - at < 8:
                return _SLOW
            time = np.int64(word(buf, at))
            if time < 0:
                return _SLOW
            if tag == 0x39:
                spans.start_ns[s] = time
            else:
                spans.end_ns[s] = time
            at += 8
        elif tag in (0x0A, 0x12, 0x22):  # trace, span and parent id
            size, at = length(buf, at, end)
            if at < 0 or not _id(buf, at, size, tag, s, spans):
                return _SLOW
            has_ids |= tag
            at += size
        elif tag in (0x2A, 0x1A):  # name, trace_state
            size, at = length(buf, at, end)
            if at < 0:
                return _SLOW
            code = _text(buf, at, size, values)
            if code < 0:
                return _SLOW
            if tag == 0x2A:
                spans.name[s] = code if size else -1
            else:
                spans.head[s, STATE] = code + 1 if size else 0
            at += size
        else:
            at = _rare(buf, at, end, tag, s, spans, values)
            if at < 0:
                return _SLOW
    return used if has_ids & 0x1A == 0x1A and spans.start_ns[s] > 0 else _SLOW


@njit(cache=True, nogil=True)
def _id(buf: np.ndarray, at: int, size: int, tag: int, s: int, spans: Spans) -> bool:
    """Takes an id; false when it has a wrong length or is zero and must not be."""
    if tag == 0x22 and size == 0:
        spans.has_parent[s] = False
        return True
    if size != (16 if tag == 0x0A else 8):
        return False
    out = spans.trace_id if tag == 0x0A else spans.span_id if tag == 0x12 else spans.parent_id
    some = np.uint8(0)
    for i in range(size):
        out[s, i] = byte_at(buf, at + i)
        some |= byte_at(buf, at + i)
    if tag == 0x22:
        spans.has_parent[s] = some != 0
        return True
    return some != 0


@njit(cache=True, nogil=True)
def _rare(buf: np.ndarray, at: int, end: int, tag: int, s: int, spans: Spans, values: Table) -> Any:
    """The fields of a span that are few or short; the position after it, or _SLOW."""
    if tag == 0x85 and end - at >= 5 and byte_at(buf, at) == 0x01:  # flags, fixed32
        spans.head[s, FLAGS] = (
            np.int64(byte_at(buf, at + 1))
            | byte_at(buf, at + 2) << 8
            | byte_at(buf, at + 3) << 16
            | np.int64(byte_at(buf, at + 4)) << 24
        )
        return at + 5
    if tag == 0x7A:  # status
        size, at = length(buf, at, end)
        if at < 0 or spans.head[s, STATUS] or spans.head[s, MESSAGE]:
            return _SLOW
        return _status(buf, at, at + size, s, spans, values)
    for number, column in ((0x30, KIND), (0x50, DROPPED_ATTRIBUTES), (0x60, DROPPED_EVENTS), (0x70, DROPPED_LINKS)):
        if tag == number:
            value, at = varint(buf, at, end)
            if at < 0 or value >= np.uint64(1 << 31):
                return _SLOW
            spans.head[s, column] = value
            return at
    return _SLOW


@njit(cache=True, nogil=True)
def _status(buf: np.ndarray, at: int, end: int, s: int, spans: Spans, values: Table) -> Any:
    while at < end:
        tag = byte_at(buf, at)
        at += 1
        if tag == 0x18:
            value, at = varint(buf, at, end)
            if at < 0 or value >= np.uint64(1 << 31):
                return _SLOW
            spans.head[s, STATUS] = value
        elif tag == 0x12:
            size, at = length(buf, at, end)
            if at < 0:
                return _SLOW
            code = _text(buf, at, size, values)
            if code < 0:
                return _SLOW
            spans.head[s, MESSAGE] = code + 1 if size else 0
            at += size
        else:
            return _SLOW
    return at


@njit(cache=True, nogil=True)
def _text(buf: np.ndarray, at: int, size: int, table: Table) -> Any:
    """The code of a text; negative when it is not UTF-8 or the table has no place for it."""
    before = table.found[0]
    code = intern(buf, at, size, TEXT, table)
    if code == before and not is_utf8(buf, at, size):
        table.kind[code] = -1  # never found again: the next like it is looked at again
        return _SLOW
    return code


@njit(cache=True, nogil=True, forceinline=True)
def _attribute(
    buf: np.ndarray,
    at: int,
    end: int,
    s: int,
    a: int,
    place: int,
    attrs: Attrs,
    keys: Table,
    values: Table,
    guesses: Guesses,
) -> bool:
    """Reads a KeyValue {key, value} as attribute `a`; false when it is not a usual one or its key came before in this span."""
    start = size = 0
    if at < end and byte_at(buf, at) == 0x0A:
        size, start = length(buf, at + 1, end)
        if start < 0:
            return False
        at = start + size
    key = guesses.key[place]
    if key < 0 or not is_code(buf, start, size, TEXT, keys, key):
        key = _text(buf, start, size, keys)
        if key < 0:
            return False
        guesses.key[place] = key
    if keys.mark[key] == s + 1:
        return False
    keys.mark[key] = s + 1
    attrs.key[a], attrs.kind[a], attrs.value[a] = key, NULL, 0
    if at < end and byte_at(buf, at) == 0x12:
        size, start = length(buf, at + 1, end)
        if start < 0 or not _value(buf, start, start + size, a, place, attrs, values, guesses):
            return False
        at = start + size
    return at == end


@njit(cache=True, nogil=True, forceinline=True)
def _value(buf: np.ndarray, at: int, end: int, a: int, place: int, attrs: Attrs, values: Table, guesses: Guesses) -> bool:
    """Reads an AnyValue of at most one field."""
    if at >= end:
        return True
    tag = byte_at(buf, at)
    at += 1
    if tag in (0x18, 0x10):  # int, bool
        value, at = varint(buf, at, end)
        attrs.kind[a], attrs.value[a] = (INT, np.int64(value)) if tag == 0x18 else (BOOL, np.int64(value != np.uint64(0)))
        return at == end
    if tag == 0x21:  # double
        if end - at != 8:
            return False
        attrs.kind[a], attrs.value[a] = DOUBLE, np.int64(word(buf, at))
        return True
    if tag not in (0x0A, 0x2A, 0x32, 0x3A):  # text, array, kvlist, bytes
        return False
    size, at = length(buf, at, end)
    if at < 0 or at + size != end:
        return False
    kind = np.int64(tag) >> 3
    tail = word(buf, end - 8) >> np.uint64(max(0, 64 - 8 * size)) if size > 0 and end >= 8 else np.uint64(0)
    seen = np.int64((tail * _MIX) >> np.uint64(64 - _SEEN_BITS))
    code = guesses.value[place, seen]
    if code < 0 or not is_code(buf, at, size, kind, values, code):
        code = _text(buf, at, size, values) if kind == TEXT else intern(buf, at, size, kind, values)
        if code < 0:
            return False
        guesses.value[place, seen] = code
    attrs.kind[a], attrs.value[a] = kind, code
    return True
