"""Members of the JSON objects that OTLP/JSON is made of, compiled: which known field comes next, and plain values.

Exporters write every span alike. So what stood between one value and the next (comma, white space, quoted key, colon) is remembered
by the field before it and compared first, in one go; only where it differs is the text looked at piece by piece.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import INT, TEXT
from crossrank.ingest.byte_kernels import Table, byte_at, equal, intern, is_utf8
from crossrank.ingest.json_kernels import UNUSUAL, Floats, peek, read_number, string_end

_FIELDS: Final = (
    "traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano", "kind", "flags", "droppedAttributesCount",
    "droppedEventsCount", "droppedLinksCount", "attributes", "status", "events", "links", "key", "value", "code",
    "stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue",
)  # fmt: skip
(
    F_TRACE, F_SPAN, F_PARENT, F_NAME, F_START, F_END, F_KIND, F_FLAGS, F_DROP_A, F_DROP_E, F_DROP_L, F_ATTRS, F_STATUS, F_EVENTS, F_LINKS, F_KEY, F_VALUE, F_CODE,
    F_STRING, F_BOOL, F_INT, F_DOUBLE, F_ARRAY, F_KVLIST, F_BYTES,
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


IN_SPAN, IN_PAIR, IN_STATUS, IN_VALUE = (len(_FIELDS) + i for i in range(4))  # states that objects begin in
VALUES: Final = 32  # values of different keys begin in states of their own
_STATES: Final = IN_VALUE + VALUES


@njit(cache=True, nogil=True, forceinline=True)
def member(buf: np.ndarray, at: int, state: int, names: Names) -> tuple[Any, Any]:
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
def integer(buf: np.ndarray, at: int, floats: Floats) -> tuple[Any, Any]:
    """(integer, place after it) from a number or its decimal text; a negative place when it is neither."""
    quoted = byte_at(buf, at) == 34
    start = at + 1 if quoted else at
    if start >= buf.size or not (byte_at(buf, start) == 45 or 48 <= byte_at(buf, start) <= 57):
        return 0, UNUSUAL
    before = floats.found[0]
    kind, number, at = read_number(buf, start, floats)
    floats.found[0] = before
    if kind != INT:
        return 0, UNUSUAL
    if quoted:
        if at >= buf.size or byte_at(buf, at) != 34:
            return 0, UNUSUAL
        at += 1
    return number, at


@njit(cache=True, nogil=True, forceinline=True)
def plain_text(buf: np.ndarray, at: int, table: Table) -> tuple[Any, Any]:
    """(code, place after it) of a string without escapes; a negative place for any other value."""
    if byte_at(buf, at) != 34:
        return 0, UNUSUAL
    end, escaped = string_end(buf, at + 1)
    if end < 0 or escaped:
        return 0, UNUSUAL
    before = table.found[0]
    code = intern(buf, at + 1, end - at - 1, TEXT, table)
    if code < 0:
        return 0, UNUSUAL
    if code == before and not is_utf8(buf, at + 1, end - at - 1):
        table.kind[code] = -1  # never found again: the next like it is looked at again
        return 0, UNUSUAL
    return code, end + 1


@njit(cache=True, nogil=True)
def empty_list(buf: np.ndarray, at: int) -> Any:
    """The place after an empty array, UNUSUAL for any other value."""
    if byte_at(buf, at) != 91:
        return UNUSUAL
    c, at = peek(buf, at + 1)
    return at + 1 if c == 93 else UNUSUAL


@njit(cache=True, nogil=True)
def truth(buf: np.ndarray, at: int) -> tuple[Any, Any]:
    """(1 or 0, place after it) of true or false; a negative place for any other value."""
    if buf.size - at >= 5:
        if byte_at(buf, at) == 116 and byte_at(buf, at + 1) == 114 and byte_at(buf, at + 2) == 117 and byte_at(buf, at + 3) == 101:
            return 1, at + 4
        if byte_at(buf, at) == 102 and byte_at(buf, at + 1) == 97 and byte_at(buf, at + 2) == 108 and byte_at(buf, at + 3) == 115:
            return 0, (at + 5 if byte_at(buf, at + 4) == 101 else UNUSUAL)
    return 0, UNUSUAL
