"""Arguments of many events from JSON text to canonical JSON text, without making an object of any of them.

Canonical means what the attributes of all events are: keys sorted, no spaces, numbers and strings in their shortest form. Tracers
print arguments in a plain way that needs only sorting and squeezing, which a compiled loop does at memory speed. Whatever is not
plain (escapes, letters beyond ASCII, nested objects, exponents, numbers that may have a shorter form, keys sent twice, unusual
sizes) is marked, and left to the parser: both ways give the same text, which a test checks.

A decimal number with at most 15 significant digits is its own shortest form, unless zeros end it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numba import njit

from crossrank.model.arrays import BoolArray, Int64Array

NO_NUMBER: Final = -1
_KEYS: Final = 60
_BRACKETS: Final = 60
_LONGEST: Final = 4000  # of a row, so that no key or value can be beyond its limit
_KEY_BYTES: Final = 64
_EXTRA: Final = b'"cat"'
_NUMBER_KEY: Final = b'"correlation"'
_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN_LIST, _CLOSE_LIST, _OPEN_MAP, _CLOSE_MAP, _MINUS, _DOT, _ZERO, _NINE = (
    ord(c) for c in '"\\,:[]{}-.09'
)
_SIGNIFICANT: Final = 15


@dataclass(frozen=True, slots=True)
class Canonical:
    """texts: [n] canonical text where `plain`, else empty. number: the value of `correlation`, NO_NUMBER without (or not plain)."""

    texts: pa.Array
    plain: BoolArray
    number: Int64Array


def canonical_args(args: list[msgspec.Raw], categories: list[str], category: np.ndarray) -> Canonical:
    """Canonical texts of argument objects, each with its category added under `cat`.

    categories: distinct words; category: [n] which of them each event has.
    """
    text = np.frombuffer(b"\n".join(args), dtype=np.uint8)
    length = np.fromiter([memoryview(raw).nbytes for raw in args], dtype=np.int64, count=len(args))
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(length + 1)))
    words = [msgspec.json.encode(word) for word in categories]
    word_begin = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(w) for w in words]))).astype(np.int64)
    out = np.empty(len(text) + len(args) * (len(_EXTRA) + 3 + max(map(len, words), default=0)), dtype=np.uint8)
    ends = np.zeros(len(args) + 1, dtype=np.int32)
    plain = np.zeros(len(args), dtype=np.bool_)
    number = np.full(len(args), NO_NUMBER, dtype=np.int64)
    table = np.frombuffer(b"".join([_EXTRA, _NUMBER_KEY, *words]), dtype=np.uint8)
    _canonical(text, begin, table, word_begin + len(_EXTRA) + len(_NUMBER_KEY), category.astype(np.int64), out, ends, plain, number)
    texts = pa.StringArray.from_buffers(len(args), pa.py_buffer(ends), pa.py_buffer(out))
    return Canonical(texts, plain, number)


@njit(cache=True, nogil=True)
def _space(text: np.ndarray, i: int) -> int:
    while i < len(text) and (text[i] == 32 or text[i] == 10 or text[i] == 13 or text[i] == 9):
        i += 1
    return i


@njit(cache=True, nogil=True)
def _string(text: np.ndarray, i: int) -> int:
    """The place behind a plain string that begins at i; -1 where it is not plain."""
    i += 1
    while i < len(text) and text[i] != _QUOTE:
        if text[i] < 32 or text[i] >= 127 or text[i] == _BACKSLASH:
            return -1
        i += 1
    return i + 1 if i < len(text) else -1


@njit(cache=True, nogil=True)
def _number(text: np.ndarray, i: int) -> int:
    """The place behind a number in its shortest form; -1 where it may have a shorter one."""
    if text[i] == _MINUS:
        i += 1
        if i < len(text) and text[i] == _ZERO:
            return -1
    begin = i
    while i < len(text) and _ZERO <= text[i] <= _NINE:
        i += 1
    whole = i - begin
    if whole == 0 or (whole > 1 and text[begin] == _ZERO) or whole > 18:
        return -1
    if i < len(text) and text[i] == _DOT:
        i += 1
        fraction = i
        while i < len(text) and _ZERO <= text[i] <= _NINE:
            i += 1
        digits = i - fraction
        if digits == 0 or whole + digits > _SIGNIFICANT:
            return -1
        if digits > 1 and (text[i - 1] == _ZERO or (text[fraction] == _ZERO and text[fraction + 1] == _ZERO)):
            return -1
    if i < len(text) and (text[i] == 101 or text[i] == 69 or text[i] == _DOT):
        return -1
    return i


@njit(cache=True, nogil=True)
def _value(text: np.ndarray, i: int) -> int:
    """The place behind a value that begins at i: a string, number, literal, or list of such; -1 where it is not plain."""
    depth = 0
    brackets = 0
    while i < len(text):
        c = text[i]
        if c == _QUOTE:
            i = _string(text, i)
        elif c == _MINUS or _ZERO <= c <= _NINE:
            i = _number(text, i)
        elif c == _OPEN_LIST:
            depth += 1
            brackets += 1
            i += 1
            if brackets > _BRACKETS:
                return -1
        elif c == _CLOSE_LIST:
            depth -= 1
            i += 1
        elif 97 <= c <= 122:
            while i < len(text) and 97 <= text[i] <= 122:
                i += 1
        elif depth > 0 and (c == _COMMA or c <= 32):
            i += 1
            continue
        else:
            return -1
        if i < 0 or depth < 0:
            return -1
        if depth == 0:
            return i
    return -1


@njit(cache=True, nogil=True)
def _copied(source: np.ndarray, begin: int, end: int, out: np.ndarray, at: int) -> int:
    """Copies without the spaces outside strings; the place behind."""
    inside = False
    for i in range(begin, end):
        c = source[i]
        if c == _QUOTE:
            inside = not inside
        if inside or c > 32:
            out[at] = c
            at += 1
    return at


@njit(cache=True, nogil=True)
def _less(a: np.ndarray, a_begin: int, a_end: int, b: np.ndarray, b_begin: int, b_end: int) -> int:
    """-1, 0, 1 as key a is before, equal to or behind key b, both with their quotes (a quote sorts before any plain letter but `!`)."""
    n = min(a_end - a_begin, b_end - b_begin) - 1
    for k in range(1, n):
        if a[a_begin + k] != b[b_begin + k]:
            return -1 if a[a_begin + k] < b[b_begin + k] else 1
    if a_end - a_begin == b_end - b_begin:
        return 0
    return -1 if a_end - a_begin < b_end - b_begin else 1


@njit(cache=True, nogil=True)
def _keys(text: np.ndarray, i: int, end: int, places: np.ndarray) -> int:
    """Finds the fields of the object at i: places[k] = key begin, key end, value begin, value end. Their number; -1: not plain."""
    i = _space(text, i)
    if i >= end or text[i] != _OPEN_MAP:
        return -1
    i = _space(text, i + 1)
    count = 0
    while i < end and text[i] != _CLOSE_MAP:
        if count == _KEYS or text[i] != _QUOTE:
            return -1
        places[count, 0] = i
        i = _string(text, i)
        if i < 0 or i - places[count, 0] > _KEY_BYTES:
            return -1
        places[count, 1] = i
        i = _space(text, i)
        if i >= end or text[i] != _COLON:
            return -1
        i = _space(text, i + 1)
        places[count, 2] = i
        i = _value(text, i)
        if i < 0 or i > end:
            return -1
        places[count, 3] = i
        count += 1
        i = _space(text, i)
        if i < end and text[i] == _COMMA:
            i = _space(text, i + 1)
    return count if i < end else -1


@njit(cache=True, nogil=True)
def _sorted(text: np.ndarray, places: np.ndarray, count: int, order: np.ndarray) -> bool:
    """Sorts the fields by key into `order`; false when a key comes twice."""
    for k in range(count):
        j = k
        while j > 0:
            before = order[j - 1]
            c = _less(text, places[k, 0], places[k, 1], text, places[before, 0], places[before, 1])
            if c == 0:
                return False
            if c > 0:
                break
            order[j] = before
            j -= 1
        order[j] = k
    return True


@njit(cache=True, nogil=True)
def _digits(text: np.ndarray, begin: int, end: int) -> int:
    value = 0
    for i in range(begin, end):
        if not _ZERO <= text[i] <= _NINE:
            return NO_NUMBER
        value = value * 10 + (text[i] - _ZERO)
    return value


@njit(cache=True, nogil=True)
def _canonical(
    text: np.ndarray,
    begin: np.ndarray,
    table: np.ndarray,
    word_begin: np.ndarray,
    word: np.ndarray,
    out: np.ndarray,
    ends: np.ndarray,
    plain: np.ndarray,
    number: np.ndarray,
) -> None:
    """table: the added key, the key of the number, and all words for the added key's value, each in quotes."""
    places = np.empty((_KEYS, 4), dtype=np.int64)
    order = np.empty(_KEYS, dtype=np.int64)
    extra, number_key = len(_EXTRA), len(_EXTRA) + len(_NUMBER_KEY)
    at = 0
    for row in range(len(plain)):
        ends[row] = at
        end = begin[row + 1] - 1
        count = _keys(text[:end], begin[row], end, places)
        if count < 0 or not _sorted(text, places, count, order):
            continue
        start = at
        added, twice = False, False
        for k in range(count + 1):
            field = order[k] if k < count else -1
            if not added:
                c = 1 if field < 0 else _less(text, places[field, 0], places[field, 1], table, 0, extra)
                twice = twice or c == 0
                if c > 0:
                    out[at] = _OPEN_MAP if at == start else _COMMA
                    at = _copied(table, 0, extra, out, at + 1)
                    out[at] = _COLON
                    at = _copied(table, word_begin[word[row]], word_begin[word[row] + 1], out, at + 1)
                    added = True
            if field >= 0:
                out[at] = _OPEN_MAP if at == start else _COMMA
                at = _copied(text, places[field, 0], places[field, 1], out, at + 1)
                out[at] = _COLON
                at = _copied(text, places[field, 2], places[field, 3], out, at + 1)
                if _less(text, places[field, 0], places[field, 1], table, extra, number_key) == 0:
                    number[row] = _digits(text, places[field, 2], places[field, 3])
        out[at] = _CLOSE_MAP
        at += 1
        if twice or at - start > _LONGEST:
            at = start
            number[row] = NO_NUMBER
            continue
        plain[row] = True
    ends[len(plain)] = at
