"""Spans of OTLP/JSON to the same flat arrays as those of `otlp_walk`, compiled.

A span is read here when it looks as exporters write it: known fields in camelCase, texts without escapes, ids in hex, integers as
numbers or as decimal text, attributes as {"key", "value": {one kind}}. Anything else makes it slow. Arrays, lists of pairs and bytes
are interned as the JSON they are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import BOOL, DOUBLE, INT, NULL, TEXT
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import Table, byte_at, intern
from crossrank.ingest.json_kernels import UNUSUAL, Floats, hex_bytes, nested_end, peek, read_number, string_end
from crossrank.ingest.otlp_json_members import (
    F_ARRAY,
    F_ATTRS,
    F_BOOL,
    F_BYTES,
    F_CODE,
    F_DOUBLE,
    F_DROP_E,
    F_DROP_L,
    F_END,
    F_EVENTS,
    F_FLAGS,
    F_INT,
    F_KEY,
    F_KIND,
    F_KVLIST,
    F_LINKS,
    F_NAME,
    F_PARENT,
    F_SPAN,
    F_START,
    F_STATUS,
    F_STRING,
    F_TRACE,
    F_VALUE,
    IN_PAIR,
    IN_SPAN,
    IN_STATUS,
    IN_VALUE,
    VALUES,
    Names,
    empty_list,
    integer,
    member,
    plain_text,
    truth,
)
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
        after = UNUSUAL
        if end[s] - begin[s] <= event_bytes:
            after = _span(buf, begin[s], s, used, spans, attrs, floats, keys, values, names, attrs_most)
        if after == UNUSUAL:
            spans.slow[s] = True
        else:
            used = after
    spans.first[begin.size] = used
    return begin.size, used


@njit(cache=True, nogil=True)
def _id(buf: np.ndarray, at: int, field: int, s: int, spans: Spans) -> Any:
    """Takes an id in hex; the place after it, or UNUSUAL when it is not one, or zero and not a parent's."""
    if byte_at(buf, at) != 34:
        return UNUSUAL
    if field == F_PARENT and at + 1 < buf.size and byte_at(buf, at + 1) == 34:
        spans.has_parent[s] = False
        return at + 2
    end = at + 1 + (32 if field == F_TRACE else 16)
    if end >= buf.size or byte_at(buf, end) != 34:
        return UNUSUAL
    out = spans.trace_id if field == F_TRACE else spans.span_id if field == F_SPAN else spans.parent_id
    verdict = hex_bytes(buf, at + 1, end - at - 1, out, s)
    if field == F_PARENT:
        spans.has_parent[s] = verdict == 1
        return end + 1 if verdict >= 0 else UNUSUAL
    return end + 1 if verdict == 1 else UNUSUAL


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
    """Reads one span; the number of attributes used so far, or UNUSUAL."""
    seen, state = 0, IN_SPAN
    c, at = peek(buf, at)
    if c != 123:
        return UNUSUAL
    at += 1
    while True:
        field, at = member(buf, at, state, names)
        state = field
        if field == -1:
            return used if seen & 3 == 3 and spans.start_ns[s] > 0 else UNUSUAL
        if field < 0 or field >= F_KEY or seen >> field & 1:
            return UNUSUAL
        seen |= 1 << field
        if field <= F_PARENT:
            at = _id(buf, at, field, s, spans)
        elif field == F_NAME:
            code, at = plain_text(buf, at, values)
            spans.name[s] = code if at < 0 or values.size[code] > 0 else -1
        elif field == F_ATTRS:
            used, at = _attributes(buf, at, s, used, attrs, floats, keys, values, names, attrs_most)
        elif field in (F_EVENTS, F_LINKS):
            at = empty_list(buf, at)
        elif field == F_STATUS:
            at = _status(buf, at, s, spans, floats, names)
        else:
            number, at = integer(buf, at, floats)
            if at < 0 or not _take(field, number, s, spans):
                return UNUSUAL
        if at < 0:
            return UNUSUAL


@njit(cache=True, nogil=True)
def _take(field: int, number: int, s: int, spans: Spans) -> bool:
    """Takes an integer field; false when it is out of its range."""
    if number < 0:
        return False
    if field == F_START:
        spans.start_ns[s] = number
    elif field == F_END:
        spans.end_ns[s] = number
    elif number > _INT32_MAX:
        return False
    else:
        column = KIND if field == F_KIND else FLAGS if field == F_FLAGS else STATUS if field == F_CODE else DROPPED_ATTRIBUTES
        if field == F_DROP_E:
            column = DROPPED_EVENTS
        elif field == F_DROP_L:
            column = DROPPED_LINKS
        spans.head[s, column] = number
    return True


@njit(cache=True, nogil=True)
def _status(buf: np.ndarray, at: int, s: int, spans: Spans, floats: Floats, names: Names) -> Any:
    """Reads {} or {"code": n}."""
    if byte_at(buf, at) != 123:
        return UNUSUAL
    field, at = member(buf, at + 1, IN_STATUS, names)
    if field == -1:
        return at
    if field != F_CODE:
        return UNUSUAL
    number, at = integer(buf, at, floats)
    if at < 0 or not _take(field, number, s, spans):
        return UNUSUAL
    field, at = member(buf, at, F_CODE, names)
    return at if field == -1 else UNUSUAL


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
        return used, UNUSUAL
    at += 1
    while True:
        c, at = peek(buf, at)
        if c == 93:
            return used, at + 1
        if used > first:
            if c != 44:
                return used, UNUSUAL
            c, at = peek(buf, at + 1)
        if c != 123 or used - first >= attrs_most:
            return used, UNUSUAL
        field, at = member(buf, at + 1, IN_PAIR, names)
        if field != F_KEY:
            return used, UNUSUAL
        key, at = plain_text(buf, at, keys)
        if at < 0 or keys.mark[key] == s + 1:
            return used, UNUSUAL
        keys.mark[key] = s + 1
        field, at = member(buf, at, F_KEY, names)
        if field != F_VALUE or byte_at(buf, at) != 123:
            return used, UNUSUAL
        kind, value, at = _value(buf, at + 1, IN_VALUE + (key & (VALUES - 1)), floats, values, names)
        if at < 0:
            return used, UNUSUAL
        c, at = peek(buf, at)
        if c != 125:
            return used, UNUSUAL
        at += 1
        attrs.key[used], attrs.kind[used], attrs.value[used] = key, kind, value
        used += 1


@njit(cache=True, nogil=True, forceinline=True)
def _value(buf: np.ndarray, at: int, state: int, floats: Floats, values: Table, names: Names) -> tuple[Any, Any, Any]:
    """(kind, number, place after it) of an AnyValue, its opening bracket read; a negative place when it is unusual.

    A double is the place of its text among `floats`.
    """
    field, at = member(buf, at, state, names)
    if field == -1:
        return NULL, 0, at
    if field < F_STRING:
        return NULL, 0, UNUSUAL
    kind, value = NULL, 0
    c = byte_at(buf, at)
    if field == F_STRING:
        kind = TEXT
        value, at = plain_text(buf, at, values)
    elif field == F_INT:
        kind = INT
        value, at = integer(buf, at, floats)
    elif field == F_BOOL:
        kind = BOOL
        value, at = truth(buf, at)
    elif field == F_DOUBLE:
        kind = DOUBLE
        if c != 45 and not 48 <= c <= 57:
            return kind, value, UNUSUAL
        found, value, at = read_number(buf, at, floats)
        if found != DOUBLE:
            return kind, value, UNUSUAL
    else:
        kind = ARRAY if field == F_ARRAY else KVLIST if field == F_KVLIST else BYTES
        end = nested_end(buf, at) if c == 123 else string_end(buf, at + 1)[0] + 1
        if (c == 123) == (field == F_BYTES) or (c not in (123, 34)) or end <= at:
            return kind, value, UNUSUAL
        value = intern(buf, at, end - at, kind, values)
        at = end if value >= 0 else UNUSUAL
    if at < 0:
        return kind, value, UNUSUAL
    c, at = peek(buf, at)
    return kind, value, (at + 1 if c == 125 else UNUSUAL)
