"""Lines of NDJSON to flat arrays, compiled.

Like the walk over OTLP spans it reads what nearly every line looks like: one object whose columns have values of their type, with
any attributes beside them or under `attrs`. A line that has anything else (a field twice, a wrong type, a bad id, the seed form,
invalid JSON ...) is only marked `slow` and read by the plain decoder, which decides what it is.

Texts become codes; those with escapes, arrays and objects are interned as the bytes they are and read once each, later. Numbers with
a point or an exponent are collected as stretches of the body and read by the JSON library, all in one call.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import BOOL, NULL, TEXT
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import Table, byte_at, equal, grown, intern, is_code, is_utf8, new_table, word
from crossrank.ingest.event_fields import ATTRS, ESCAPED, FIELDS, ID, NESTED, NO, Fields, fields_for, fits, new_fields
from crossrank.ingest.json_kernels import Floats, hex_bytes, nested_end, peek, read_number, string_end
from crossrank.limits import Limits

ATTRS_MAX: Final = 128
_KEYS_MAX: Final = ATTRS_MAX + len(FIELDS) + 1
_SLOW: Final = -1
_NULL_GIVEN: Final = -1
_SEEN_BITS: Final = 6
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_TRACE, _SPAN, _PARENT = (FIELDS.index(name) for name in ("trace_id", "span_id", "parent_span_id"))


class Lines(NamedTuple):
    """One row a line. `given` is 0 where a field is absent, -1 where it is null; `number`: integer, truth, value code or place among `Floats`."""

    begin: np.ndarray  # int64
    end: np.ndarray  # int64
    slow: np.ndarray  # bool
    given: np.ndarray  # int8 [FIELDS, rows]
    number: np.ndarray  # int64 [FIELDS, rows]
    trace_id: np.ndarray  # uint8 [n, 16]
    span_id: np.ndarray  # uint8 [n, 8]
    parent_id: np.ndarray  # uint8 [n, 8]
    first: np.ndarray  # int64 [n + 1], the line's first attribute


class Attrs(NamedTuple):
    """Attributes of all lines."""

    key: np.ndarray  # int64
    kind: np.ndarray  # int8
    value: np.ndarray  # int64


class Walked(NamedTuple):
    """What the walk found."""

    lines: Lines
    attrs: Attrs
    floats: Floats
    keys: Table
    values: Table


def walk(body: bytes, limits: Limits) -> Walked | None:
    """Reads the lines of a body; None when there are more than a body may have."""
    buf = np.frombuffer(body, np.uint8)
    n = buf.size // 256 + 64
    lines = _lines(n)
    attrs = Attrs(*_room((np.int64, np.int8, np.int64), n * 4 + 2 * ATTRS_MAX))
    floats = Floats._make([*_room((np.int64, np.int64), n + 2 * ATTRS_MAX), np.zeros(1, np.int64)])
    keys, values = new_table(2 * ATTRS_MAX), new_table(max(1024, buf.size // 512))
    fields = new_fields(keys)
    seen = np.full((ATTRS_MAX, 1 << _SEEN_BITS), -1, np.int32)
    at = done = used = 0
    while True:
        at, done, used = _walk(
            buf, at, done, used, lines, attrs, floats, keys, values, fields, seen, min(limits.attrs_per_event, ATTRS_MAX), limits.event_bytes
        )  # fmt: skip
        if done > limits.events_per_body:
            return None
        if at == buf.size:
            kept = Lines._make(a[..., :done] if a.ndim > 1 and a.shape[0] == len(FIELDS) else a[:done] for a in lines)
            lines = kept._replace(first=lines.first[: done + 1])
            return Walked(lines, Attrs(*(a[:used] for a in attrs)), floats, keys, values)
        if done == lines.begin.size:
            lines = _more_lines(lines)
        if attrs.key.size - used <= ATTRS_MAX:
            attrs = Attrs(*_more(attrs, used))
        if floats.start.size - floats.found[0] <= ATTRS_MAX:
            floats = Floats._make([*_more(floats[:2], int(floats.found[0])), floats.found])
        if keys.start.size - keys.found[0] <= _KEYS_MAX:
            keys = grown(keys, 4 * keys.start.size)
            fields = fields_for(keys, fields)
        if values.start.size - values.found[0] <= _KEYS_MAX:
            values = grown(values, 4 * values.start.size)


def _lines(rows: int) -> Lines:
    # Columns whose distance is a multiple of 4 KiB would push each other out of the processor's cache.
    apart = (rows // 512 + 1) * 512 + 24
    return Lines(
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.bool_),
        np.zeros((len(FIELDS), apart), np.int8),
        np.empty((len(FIELDS), apart), np.int64),
        np.zeros((rows, 16), np.uint8),
        np.zeros((rows, 8), np.uint8),
        np.zeros((rows, 8), np.uint8),
        np.zeros(rows + 1, np.int64),
    )


def _more_lines(lines: Lines) -> Lines:
    rows = lines.begin.size
    out = _lines(4 * rows)
    for name, old, new in zip(Lines._fields, lines, out, strict=True):
        if name in ("given", "number"):
            new[:, :rows] = old[:, :rows]
        else:
            new[: old.shape[0]] = old
    return out


def _room(kinds: Any, room: int) -> list[np.ndarray]:
    return [np.empty(room, kind) for kind in kinds]


def _more(arrays: Any, used: int) -> list[np.ndarray]:
    out = _room([a.dtype for a in arrays], 2 * arrays[0].size)
    for old, new in zip(arrays, out, strict=True):
        new[:used] = old[:used]
    return out


@njit(cache=True, nogil=True, forceinline=True)
def _is_space(c: int) -> bool:
    return c == 32 or 9 <= c <= 13


@njit(cache=True, nogil=True)
def _walk(
    buf: np.ndarray,
    at: int,
    done: int,
    used: int,
    lines: Lines,
    attrs: Attrs,
    floats: Floats,
    keys: Table,
    values: Table,
    fields: Fields,
    seen: np.ndarray,
    attrs_most: int,
    event_bytes: int,
) -> tuple[Any, Any, Any]:
    """Reads lines until all are done or something is too full for another; (position, lines done, attributes used)."""
    buf, lines, attrs, floats, keys = borrowed(buf), borrowed(lines), borrowed(attrs), borrowed(floats), borrowed(keys)
    values, fields, seen = borrowed(values), borrowed(fields), borrowed(seen)
    for row in range(done, lines.begin.size):
        lines.first[row] = used
        if (
            attrs.key.size - used <= ATTRS_MAX
            or floats.start.size - floats.found[0] <= ATTRS_MAX
            or keys.start.size - keys.found[0] <= _KEYS_MAX
            or values.start.size - values.found[0] <= _KEYS_MAX
        ):
            return at, row, used
        while at < buf.size and _is_space(byte_at(buf, at)):
            at += 1
        if at == buf.size:
            return at, row, used
        begin = at
        after = _line(buf, at, row, used, lines, attrs, floats, keys, values, fields, seen, attrs_most)
        while at < buf.size and byte_at(buf, at) != 10:
            at += 1
        lines.begin[row], lines.end[row] = begin, at
        if after == _SLOW or at - begin > event_bytes:
            lines.slow[row] = True
        else:
            used = after
    lines.first[lines.begin.size] = used
    return at, lines.begin.size, used


@njit(cache=True, nogil=True, forceinline=True)
def _line(
    buf: np.ndarray,
    at: int,
    row: int,
    used: int,
    lines: Lines,
    attrs: Attrs,
    floats: Floats,
    keys: Table,
    values: Table,
    fields: Fields,
    seen: np.ndarray,
    attrs_most: int,
) -> Any:
    """Reads the object of a line; the number of attributes used so far, or _SLOW."""
    first, key = used, -1
    inside = more = False  # inside `attrs`; a comma must come before another member
    if byte_at(buf, at) != 123:
        return _SLOW
    at += 1
    while True:
        state, gap = 4 * (key + 1) + 2 * inside + more, at
        key, size = fields.next_key[state], fields.gap_size[state]
        if key >= 0 and at + size < buf.size and equal(buf, fields.gap_start[state], at, size):
            at += size
        else:
            c, at = peek(buf, at)
            if c == 125:
                at += 1
                if not inside:
                    break
                inside, more, key = False, True, -1
                continue
            if more:
                if c != 44:
                    return _SLOW
                c, at = peek(buf, at + 1)
            key, at = _key(buf, at + 1, keys, fields) if c == 34 else (_SLOW, at)
            if key < 0:
                return _SLOW
            _, at = peek(buf, at)
            fields.next_key[state], fields.gap_start[state], fields.gap_size[state] = key, gap, at - gap
        if at >= buf.size:
            return _SLOW
        c = byte_at(buf, at)
        more = True
        field = -1 if inside else fields.of_key[key]
        form = fields.forms[field] if field >= 0 else NO
        if field >= 0 and lines.given[field, row] != 0:
            return _SLOW
        if form == ATTRS and c == 123:
            lines.given[field, row] = NESTED
            at, inside, more = at + 1, True, False
            continue
        if form == ID and c == 34:
            at = _id(buf, at + 1, row, field, lines)
            if at < 0:
                return _SLOW
            continue
        kind, value, at = _value(buf, at, c, key, floats, values, seen)
        if field >= 0 and fits(form, kind):
            lines.given[field, row], lines.number[field, row] = kind if kind != NULL else _NULL_GIVEN, value
            continue
        if field >= 0 or kind < 0 or keys.mark[key] == row + 1 or used - first >= attrs_most:
            return _SLOW
        keys.mark[key] = row + 1
        attrs.key[used], attrs.kind[used], attrs.value[used] = key, kind, value
        used += 1
    c, at = peek(buf, at)
    return used if c == 10 or at >= buf.size else _SLOW


@njit(cache=True, nogil=True)
def _key(buf: np.ndarray, start: int, keys: Table, fields: Fields) -> tuple[Any, Any]:
    """(key code, place after the colon) of the key whose text begins here; negative when it is not a usual one."""
    end, escaped = string_end(buf, start)
    if end < 0 or escaped:
        return _SLOW, start
    size = end - start
    before = keys.found[0]
    key = intern(buf, start, size, TEXT, keys)
    if key == before:
        if not is_utf8(buf, start, size):
            keys.kind[key] = -1
            return _SLOW, start
        fields.of_key[key] = -1
        for field in range(fields.forms.size):
            if fields.sizes[field] == size:
                same = True
                for i in range(size):
                    same &= byte_at(buf, start + i) == fields.names[fields.starts[field] + i]
                if same:
                    fields.of_key[key] = field
    c, at = peek(buf, end + 1)
    return (key if c == 58 else _SLOW), at + 1


@njit(cache=True, nogil=True, forceinline=True)
def _cached(buf: np.ndarray, at: int, size: int, kind: int, place: int, table: Table, seen: np.ndarray) -> Any:
    """The code of a byte string, looked for first where the last of its kind with the same last bytes left it."""
    end = at + size
    tail = word(buf, end - 8) >> np.uint64(max(0, 64 - 8 * size)) if size > 0 and end >= 8 else np.uint64(0)
    slot = np.int64((tail * _MIX) >> np.uint64(64 - _SEEN_BITS))
    code = np.int64(seen[place, slot])
    if code >= 0 and is_code(buf, at, size, kind, table, code):
        return code
    code = intern(buf, at, size, kind, table)
    seen[place, slot] = code
    return code


@njit(cache=True, nogil=True, forceinline=True)
def _value(buf: np.ndarray, at: int, c: int, key: int, floats: Floats, values: Table, seen: np.ndarray) -> tuple[Any, Any, Any]:
    """(kind, number, place after it) of the value that begins with byte `c`; a negative kind when it is not a usual one."""
    if c == 34:
        end, escaped = string_end(buf, at + 1)
        if end < 0:
            return _SLOW, 0, at
        kind = ESCAPED if escaped else TEXT
        before = values.found[0]
        code = _cached(buf, at + 1, end - at - 1, kind, key & (ATTRS_MAX - 1), values, seen)
        if code < 0:
            return _SLOW, 0, at
        if code == before and not is_utf8(buf, at + 1, end - at - 1):
            values.kind[code] = -1  # never found again: the next like it is looked at again
            return _SLOW, 0, at
        return kind, code, end + 1
    if c == 45 or 48 <= c <= 57:
        return read_number(buf, at, floats)
    if c in (123, 91):
        end = nested_end(buf, at)
        if end < 0:
            return _SLOW, 0, at
        code = intern(buf, at, end - at, NESTED, values)
        return (NESTED if code >= 0 else _SLOW), code, end
    if buf.size - at >= 5:
        if c == 116 and byte_at(buf, at + 1) == 114 and byte_at(buf, at + 2) == 117 and byte_at(buf, at + 3) == 101:
            return BOOL, 1, at + 4
        if c == 110 and byte_at(buf, at + 1) == 117 and byte_at(buf, at + 2) == 108 and byte_at(buf, at + 3) == 108:
            return NULL, 0, at + 4
        if c == 102 and byte_at(buf, at + 1) == 97 and byte_at(buf, at + 2) == 108 and byte_at(buf, at + 3) == 115:
            return (BOOL if byte_at(buf, at + 4) == 101 else _SLOW), 0, at + 5
    return _SLOW, 0, at


@njit(cache=True, nogil=True, forceinline=True)
def _id(buf: np.ndarray, start: int, row: int, field: int, lines: Lines) -> Any:
    """Takes an id in hex; the place after its closing quote, or _SLOW when it is not one, or zero and not a parent's."""
    size = 32 if field == _TRACE else 16
    if field == _PARENT and start < buf.size and byte_at(buf, start) == 34:
        lines.given[field, row] = _NULL_GIVEN
        return start + 1
    end = start + size
    if end >= buf.size or byte_at(buf, end) != 34:
        return _SLOW
    out = lines.trace_id if field == _TRACE else lines.span_id if field == _SPAN else lines.parent_id
    verdict = hex_bytes(buf, start, size, out, row)
    lines.given[field, row] = TEXT if verdict == 1 else _NULL_GIVEN
    return end + 1 if verdict == 1 or (verdict == 0 and field == _PARENT) else _SLOW
