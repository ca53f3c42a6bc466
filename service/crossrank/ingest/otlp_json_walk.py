"""Spans of OTLP/JSON to the same flat arrays as those of `otlp_walk`, compiled.

A span is read here when it looks as exporters write it: known fields in camelCase, texts without escapes, ids in hex, integers as
numbers or as decimal text, attributes as {"key", "value": {one kind}}. Anything else makes it slow. Arrays, lists of pairs and bytes
are interned as the JSON they are.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import BOOL, DOUBLE, INT, NULL, TEXT
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import Table, byte_at, equal, intern, is_utf8
from crossrank.ingest.json_kernels import Floats, hex_bytes, nested_end, peek, read_number, string_end
from crossrank.ingest.otlp_walk import (
    ARRAY,
    ATTRS_MAX,
    BYTES,
    DROPPED_ATTRIBUTES,
    DROPPED_EVENTS,
    DROPPED_LINKS,
    FLAGS,
    KIND,
    KVLIST,
    STATUS,
    TEXTS_MAX,
    Attrs,
    Spans,
)

_SLOW: Final = -1
_FIELDS: Final = (
    "traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano", "kind", "flags", "droppedAttributesCount",
    "droppedEventsCount", "droppedLinksCount", "attributes", "status", "events", "links", "key", "value", "code",
    "stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue",
)  # fmt: skip
(
    _TRACE, _SPAN, _PARENT, _NAME, _START, _END, _KIND, _FLAGS, _DROP_A, _DROP_E, _DROP_L, _ATTRS, _STATUS, _EVENTS, _LINKS, _KEY, _VALUE, _CODE,
    _STRING, _BOOL, _INT, _DOUBLE, _ARRAY, _KVLIST, _BYTES,
) = range(len(_FIELDS))  # fmt: skip
_SIZES: Final = np.array([len(name) for name in _FIELDS], np.int64)


class Names(NamedTuple):
    """The known fields' names, one after another."""

    text: np.ndarray  # uint8
    starts: np.ndarray  # int64
    sizes: np.ndarray  # int64
    gap_start: np.ndarray  # int64 [states], what stood before the member that came after a state the last time
    gap_size: np.ndarray  # int64 [states], 0 for nothing yet
    gap_field: np.ndarray  # int64 [states], which field it was


def new_names() -> Names:
    """The names, nothing remembered yet."""
    text = np.frombuffer("".join(_FIELDS).encode(), np.uint8).copy()
    return Names(text, np.cumsum(_SIZES) - _SIZES, _SIZES, *np.zeros((3, _STATES), np.int64))


_IN_SPAN, _IN_PAIR, _IN_STATUS, _IN_VALUE = (len(_FIELDS) + i for i in range(4))  # states that objects begin in
_VALUES: Final = 32  # values of different keys begin in states of their own
_STATES: Final = _IN_VALUE + _VALUES
_INT32_MAX: Final = 2**31 - 1


@njit(cache=True, nogil=True)
def walk_json(
    buf: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    first: int,
    used: int,
    spans: Spans,
    attrs: Attrs,
    floats: Floats,
    keys: Table,
    values: Table,
    names: Names,
    attrs_most: int,
    event_bytes: int,
) -> tuple[Any, Any]:
    """Reads spans until all are done or a table is too full for another; (spans done, attributes used)."""
    buf, begin, end, spans, attrs = borrowed(buf), borrowed(begin), borrowed(end), borrowed(spans), borrowed(attrs)
    floats, keys, values, names = borrowed(floats), borrowed(keys), borrowed(values), borrowed(names)
    for s in range(first, begin.size):
        spans.first[s] = used
        if (
            attrs.key.size - used <= ATTRS_MAX
            or floats.start.size - floats.found[0] <= ATTRS_MAX
            or keys.start.size - keys.found[0] <= ATTRS_MAX
            or values.start.size - values.found[0] <= TEXTS_MAX
        ):
            return s, used
        after = _SLOW
        if end[s] - begin[s] <= event_bytes:
            after = _span(buf, begin[s], s, used, spans, attrs, floats, keys, values, names, attrs_most)
        if after == _SLOW:
            spans.slow[s] = True
        else:
            used = after
    spans.first[begin.size] = used
    return begin.size, used


@njit(cache=True, nogil=True, forceinline=True)
def _member(buf: np.ndarray, at: int, state: int, names: Names) -> tuple[Any, Any]:
    """(which of the known fields comes next, place of its value); -1 at the object's end (place after it), -2 for unknown ones.

    state: the field before, or one of the states that objects begin in. Most members follow the same one in the same way as the
    last time: then only that text is compared.
    """
    size = names.gap_size[state]
    if at + size < buf.size and size > 0 and equal(buf, names.gap_start[state], at, size):
        return names.gap_field[state], at + size
    return _other_member(buf, at, state, names)


@njit(cache=True, nogil=True)
def _other_member(buf: np.ndarray, start: int, state: int, names: Names) -> tuple[Any, Any]:
    c, at = peek(buf, start)
    if c == 125:
        return -1, at + 1
    if state < names.sizes.size:
        if c != 44:
            return -2, at
        c, at = peek(buf, at + 1)
    if c != 34:
        return -2, at
    end, escaped = string_end(buf, at + 1)
    if end < 0 or escaped:
        return -2, at
    size = end - at - 1
    found = -2
    for field in range(names.sizes.size):
        if names.sizes[field] == size:
            same = True
            for i in range(size):
                same &= byte_at(buf, at + 1 + i) == names.text[names.starts[field] + i]
            if same:
                found = field
                break
    c, at = peek(buf, end + 1)
    if c != 58 or found < 0:
        return -2, at
    _, at = peek(buf, at + 1)
    if at >= buf.size:
        return -2, at
    names.gap_start[state], names.gap_size[state], names.gap_field[state] = start, at - start, found
    return found, at


@njit(cache=True, nogil=True, forceinline=True)
def _integer(buf: np.ndarray, at: int, floats: Floats) -> tuple[Any, Any]:
    """(integer, place after it) from a number or its decimal text; a negative place when it is neither."""
    quoted = byte_at(buf, at) == 34
    start = at + 1 if quoted else at
    if start >= buf.size or not (byte_at(buf, start) == 45 or 48 <= byte_at(buf, start) <= 57):
        return 0, _SLOW
    before = floats.found[0]
    kind, number, at = read_number(buf, start, floats)
    floats.found[0] = before
    if kind != INT:
        return 0, _SLOW
    if quoted:
        if at >= buf.size or byte_at(buf, at) != 34:
            return 0, _SLOW
        at += 1
    return number, at


@njit(cache=True, nogil=True, forceinline=True)
def _text(buf: np.ndarray, at: int, table: Table) -> tuple[Any, Any]:
    """(code, place after it) of a string without escapes; a negative place for any other value."""
    if byte_at(buf, at) != 34:
        return 0, _SLOW
    end, escaped = string_end(buf, at + 1)
    if end < 0 or escaped:
        return 0, _SLOW
    before = table.found[0]
    code = intern(buf, at + 1, end - at - 1, TEXT, table)
    if code < 0:
        return 0, _SLOW
    if code == before and not is_utf8(buf, at + 1, end - at - 1):
        table.kind[code] = -1  # never found again: the next like it is looked at again
        return 0, _SLOW
    return code, end + 1


@njit(cache=True, nogil=True)
def _id(buf: np.ndarray, at: int, field: int, s: int, spans: Spans) -> Any:
    """Takes an id in hex; the place after it, or _SLOW when it is not one, or zero and not a parent's."""
    if byte_at(buf, at) != 34:
        return _SLOW
    if field == _PARENT and at + 1 < buf.size and byte_at(buf, at + 1) == 34:
        spans.has_parent[s] = False
        return at + 2
    end = at + 1 + (32 if field == _TRACE else 16)
    if end >= buf.size or byte_at(buf, end) != 34:
        return _SLOW
    out = spans.trace_id if field == _TRACE else spans.span_id if field == _SPAN else spans.parent_id
    verdict = hex_bytes(buf, at + 1, end - at - 1, out, s)
    if field == _PARENT:
        spans.has_parent[s] = verdict == 1
        return end + 1 if verdict >= 0 else _SLOW
    return end + 1 if verdict == 1 else _SLOW


@njit(cache=True, nogil=True)
def _span(
    buf: np.ndarray,
    at: int,
    s: int,
    used: int,
    spans: Spans,
    attrs: Attrs,
    floats: Floats,
    keys: Table,
    values: Table,
    names: Names,
    attrs_most: int,
) -> Any:
    """Reads one span; the number of attributes used so far, or _SLOW."""
    seen, state = 0, _IN_SPAN
    c, at = peek(buf, at)
    if c != 123:
        return _SLOW
    at += 1
    while True:
        field, at = _member(buf, at, state, names)
        state = field
        if field == -1:
            return used if seen & 3 == 3 and spans.start_ns[s] > 0 else _SLOW
        if field < 0 or field >= _KEY or seen >> field & 1:
            return _SLOW
        seen |= 1 << field
        if field <= _PARENT:
            at = _id(buf, at, field, s, spans)
        elif field == _NAME:
            code, at = _text(buf, at, values)
            spans.name[s] = code if at < 0 or values.size[code] > 0 else -1
        elif field == _ATTRS:
            used, at = _attributes(buf, at, s, used, attrs, floats, keys, values, names, attrs_most)
        elif field in (_EVENTS, _LINKS):
            at = _empty_list(buf, at)
        elif field == _STATUS:
            at = _status(buf, at, s, spans, floats, names)
        else:
            number, at = _integer(buf, at, floats)
            if at < 0 or not _take(field, number, s, spans):
                return _SLOW
        if at < 0:
            return _SLOW


@njit(cache=True, nogil=True)
def _take(field: int, number: int, s: int, spans: Spans) -> bool:
    """Takes an integer field; false when it is out of its range."""
    if number < 0:
        return False
    if field == _START:
        spans.start_ns[s] = number
    elif field == _END:
        spans.end_ns[s] = number
    elif number > _INT32_MAX:
        return False
    else:
        column = KIND if field == _KIND else FLAGS if field == _FLAGS else STATUS if field == _CODE else DROPPED_ATTRIBUTES
        if field == _DROP_E:
            column = DROPPED_EVENTS
        elif field == _DROP_L:
            column = DROPPED_LINKS
        spans.head[s, column] = number
    return True


@njit(cache=True, nogil=True)
def _empty_list(buf: np.ndarray, at: int) -> Any:
    """The place after an empty array, _SLOW for any other value."""
    if byte_at(buf, at) != 91:
        return _SLOW
    c, at = peek(buf, at + 1)
    return at + 1 if c == 93 else _SLOW


@njit(cache=True, nogil=True)
def _status(buf: np.ndarray, at: int, s: int, spans: Spans, floats: Floats, names: Names) -> Any:
    """Reads {} or {"code": n}."""
    if byte_at(buf, at) != 123:
        return _SLOW
    field, at = _member(buf, at + 1, _IN_STATUS, names)
    if field == -1:
        return at
    if field != _CODE:
        return _SLOW
    number, at = _integer(buf, at, floats)
    if at < 0 or not _take(field, number, s, spans):
        return _SLOW
    field, at = _member(buf, at, _CODE, names)
    return at if field == -1 else _SLOW


@njit(cache=True, nogil=True, forceinline=True)
def _attributes(
    buf: np.ndarray,
    at: int,
    s: int,
    used: int,
    attrs: Attrs,
    floats: Floats,
    keys: Table,
    values: Table,
    names: Names,
    attrs_most: int,
) -> tuple[Any, Any]:
    """Reads an array of attributes; (attributes used so far, place after it), a negative place when one is unusual."""
    first = used
    if byte_at(buf, at) != 91:
        return used, _SLOW
    at += 1
    while True:
        c, at = peek(buf, at)
        if c == 93:
            return used, at + 1
        if used > first:
            if c != 44:
                return used, _SLOW
            c, at = peek(buf, at + 1)
        if c != 123 or used - first >= attrs_most:
            return used, _SLOW
        field, at = _member(buf, at + 1, _IN_PAIR, names)
        if field != _KEY:
            return used, _SLOW
        key, at = _text(buf, at, keys)
        if at < 0 or keys.mark[key] == s + 1:
            return used, _SLOW
        keys.mark[key] = s + 1
        field, at = _member(buf, at, _KEY, names)
        if field != _VALUE or byte_at(buf, at) != 123:
            return used, _SLOW
        kind, value, at = _value(buf, at + 1, _IN_VALUE + (key & (_VALUES - 1)), floats, values, names)
        if at < 0:
            return used, _SLOW
        c, at = peek(buf, at)
        if c != 125:
            return used, _SLOW
        at += 1
        attrs.key[used], attrs.kind[used], attrs.value[used] = key, kind, value
        used += 1


@njit(cache=True, nogil=True, forceinline=True)
def _value(buf: np.ndarray, at: int, state: int, floats: Floats, values: Table, names: Names) -> tuple[Any, Any, Any]:
    """(kind, number, place after it) of an AnyValue, its opening bracket read; a negative place when it is unusual.

    A double is the place of its text among `floats`.
    """
    field, at = _member(buf, at, state, names)
    if field == -1:
        return NULL, 0, at
    if field < _STRING:
        return NULL, 0, _SLOW
    kind, value = NULL, 0
    c = byte_at(buf, at)
    if field == _STRING:
        kind = TEXT
        value, at = _text(buf, at, values)
    elif field == _INT:
        kind = INT
        value, at = _integer(buf, at, floats)
    elif field == _BOOL:
        kind = BOOL
        value, at = _truth(buf, at)
    elif field == _DOUBLE:
        kind = DOUBLE
        if c != 45 and not 48 <= c <= 57:
            return kind, value, _SLOW
        found, value, at = read_number(buf, at, floats)
        if found != DOUBLE:
            return kind, value, _SLOW
    else:
        kind = ARRAY if field == _ARRAY else KVLIST if field == _KVLIST else BYTES
        end = nested_end(buf, at) if c == 123 else string_end(buf, at + 1)[0] + 1
        if (c == 123) == (field == _BYTES) or (c not in (123, 34)) or end <= at:
            return kind, value, _SLOW
        value = intern(buf, at, end - at, kind, values)
        at = end if value >= 0 else _SLOW
    if at < 0:
        return kind, value, _SLOW
    c, at = peek(buf, at)
    return kind, value, (at + 1 if c == 125 else _SLOW)


@njit(cache=True, nogil=True)
def _truth(buf: np.ndarray, at: int) -> tuple[Any, Any]:
    if buf.size - at >= 5:
        if byte_at(buf, at) == 116 and byte_at(buf, at + 1) == 114 and byte_at(buf, at + 2) == 117 and byte_at(buf, at + 3) == 101:
            return 1, at + 4
        if byte_at(buf, at) == 102 and byte_at(buf, at + 1) == 97 and byte_at(buf, at + 2) == 108 and byte_at(buf, at + 3) == 115:
            return 0, (at + 5 if byte_at(buf, at + 4) == 101 else _SLOW)
    return 0, _SLOW
