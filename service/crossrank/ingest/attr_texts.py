"""Attributes of many events as canonical JSON texts, compiled; equal to `attrs.attrs_text` event by event.

Keys and value texts are written as JSON once for each distinct one; an event's text is then put together by copying.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from crossrank.ingest import shortest_doubles
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import copy_words

_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHORT: Final = np.zeros(256, np.uint8)  # the letter of a two-byte escape; 1 where six bytes are needed; 0 where none
_SHORT[:32] = 1
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r"), (34, '"'), (92, "\\")):
    _SHORT[_code] = ord(_letter)
_DIGITS_MAX: Final = 20
_NOT_FINITE: Final = ('{"double":"NaN"}', '{"double":"Infinity"}', '{"double":"-Infinity"}')
_WORDS: Final = b"null    true    false   "
_PAD: Final = 8  # whole words are copied
NULL, TEXT, BOOL, INT, DOUBLE = range(5)  # kinds of attribute values; any other kind has a text by code, like TEXT


class Texts(NamedTuple):
    """JSON texts by code: code i is bytes[start[i]:start[i] + size[i]]."""

    start: np.ndarray  # int64
    size: np.ndarray  # int64
    bytes: np.ndarray  # uint8, at least _PAD longer than the texts


def texts_of(encoded: list[bytes]) -> Texts:
    """Texts that exist already."""
    size = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return Texts(np.cumsum(size) - size, size, np.frombuffer(b"".join(encoded) + bytes(_PAD), np.uint8).copy())


def quoted(buf: np.ndarray, start: np.ndarray, size: np.ndarray) -> Texts:
    """JSON strings of UTF-8 stretches of a buffer (uint8)."""
    out_size = np.empty(start.size, np.int64)
    _quoted_sizes(buf, start, size, _SHORT, out_size)
    out = Texts(np.cumsum(out_size) - out_size, out_size, np.zeros(int(out_size.sum()) + _PAD, np.uint8))
    _quote(buf, start, size, _SHORT, _HEX, out)
    return out


def joined(a: Texts, b: Texts) -> Texts:
    """The codes of a, then those of b."""
    return Texts(
        np.concatenate([a.start, b.start + a.bytes.size]), np.concatenate([a.size, b.size]), np.concatenate([a.bytes, b.bytes])
    )


def doubles(bits: np.ndarray) -> Texts:
    """Doubles (their bits, int64) in their shortest form."""
    numbers = bits.view(np.float64)
    finite = np.isfinite(numbers)
    if finite.all():
        return Texts(*shortest_doubles.write(bits, _PAD))
    texts = Texts(*shortest_doubles.write(np.where(finite, bits, 0), _PAD))
    texts = joined(texts, texts_of([text.encode() for text in _NOT_FINITE]))
    which = bits.size + np.where(np.isnan(numbers), 0, np.where(numbers > 0, 1, 2))
    code = np.where(finite, np.arange(bits.size), which)
    return Texts(texts.start[code], texts.size[code], texts.bytes)


def objects(first: np.ndarray, key: np.ndarray, kind: np.ndarray, value: np.ndarray, keys: Texts, values: Texts) -> pa.Array:
    """One JSON object an event, null where it has no attributes.

    first: int64 [events + 1], ranges of the attributes; key: codes into `keys`, JSON strings; value: the number, the bits of the
    double, or a code into `values`. The attributes of an event are in the order of their keys.
    """
    n = first.size - 1
    floats = doubles(value[kind == DOUBLE])
    words = np.frombuffer(_WORDS, np.uint8)
    offsets = np.zeros(n + 1, np.int32)
    room = np.zeros(1, np.int64)
    _bound(first, key, kind, value, keys.size, values.size, floats.size, room)
    out = np.empty(int(room[0]) + _PAD, np.uint8)
    _write(first, key, kind, value, keys, values, floats, words, out, offsets)
    empty = first[1:] == first[:-1]
    valid = pa.py_buffer(np.packbits(~empty, bitorder="little")) if empty.any() else None
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]]), valid)


@njit(cache=True, nogil=True)
def _quoted_sizes(buf: np.ndarray, start: np.ndarray, size: np.ndarray, short: np.ndarray, out: np.ndarray) -> None:
    for t in range(start.size):
        total = 2 + size[t]
        for i in range(start[t], start[t] + size[t]):
            escape = short[buf[i]]
            if escape != 0:
                total += 5 if escape == 1 else 1
        out[t] = total


@njit(cache=True, nogil=True)
def _quote(buf: np.ndarray, start: np.ndarray, size: np.ndarray, short: np.ndarray, digits: np.ndarray, out: Texts) -> None:
    buf, start, size, short, digits, out = (
        borrowed(buf), borrowed(start), borrowed(size), borrowed(short), borrowed(digits), borrowed(out),
    )  # fmt: skip
    for t in range(start.size):
        at = out.start[t]
        out.bytes[at] = 34
        at += 1
        for i in range(start[t], start[t] + size[t]):
            byte = buf[i]
            escape = short[byte]
            if escape == 0:
                out.bytes[at] = byte
                at += 1
                continue
            out.bytes[at] = 92
            if escape > 1:
                out.bytes[at + 1] = escape
                at += 2
                continue
            out.bytes[at + 1], out.bytes[at + 2], out.bytes[at + 3] = 117, 48, 48
            out.bytes[at + 4], out.bytes[at + 5] = digits[byte >> 4], digits[byte & 15]
            at += 6
        out.bytes[at] = 34


@njit(cache=True, nogil=True)
def _bound(
    first: np.ndarray,
    key: np.ndarray,
    kind: np.ndarray,
    value: np.ndarray,
    key_size: np.ndarray,
    value_size: np.ndarray,
    float_size: np.ndarray,
    room: np.ndarray,
) -> None:
    """How many bytes all texts need at most."""
    total = 2 * np.int64(first.size) + float_size.sum()
    for a in range(first[0], first[-1]):
        total += key_size[key[a]] + 2
        if kind[a] in (NULL, BOOL, INT):
            total += _DIGITS_MAX
        elif kind[a] != DOUBLE:
            total += value_size[value[a]]
    room[0] = total


@njit(cache=True, nogil=True, forceinline=True)
def _integer(value: int, out: np.ndarray, at: int) -> Any:
    rest = np.uint64(value)
    if value < 0:
        out[at] = 45
        at += 1
        rest = np.uint64(0) - rest
    size = 1
    power = np.uint64(10)
    while size < _DIGITS_MAX - 1 and rest >= power:
        power *= np.uint64(10)
        size += 1
    for i in range(at + size - 1, at - 1, -1):
        out[i] = np.uint8(48 + rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + size


@njit(cache=True, nogil=True)
def _write(
    first: np.ndarray,
    key: np.ndarray,
    kind: np.ndarray,
    value: np.ndarray,
    keys: Texts,
    values: Texts,
    floats: Texts,
    words: np.ndarray,
    out: np.ndarray,
    offsets: np.ndarray,
) -> None:
    first, key, kind, value, keys = borrowed(first), borrowed(key), borrowed(kind), borrowed(value), borrowed(keys)
    values, floats, words, out, offsets = borrowed(values), borrowed(floats), borrowed(words), borrowed(out), borrowed(offsets)
    at = float_number = 0
    for s in range(first.size - 1):
        for a in range(first[s], first[s + 1]):
            out[at] = 123 if a == first[s] else 44
            at = copy_words(keys.bytes, keys.start[key[a]], keys.size[key[a]], out, at + 1)
            out[at] = 58
            at += 1
            if kind[a] == INT:
                at = _integer(value[a], out, at)
            elif kind[a] == DOUBLE:
                at = copy_words(floats.bytes, floats.start[float_number], floats.size[float_number], out, at)
                float_number += 1
            elif kind[a] == BOOL:
                at = copy_words(words, 8, 4, out, at) if value[a] else copy_words(words, 16, 5, out, at)
            elif kind[a] == NULL:
                at = copy_words(words, 0, 4, out, at)
            else:
                at = copy_words(values.bytes, values.start[value[a]], values.size[value[a]], out, at)
        if first[s + 1] > first[s]:
            out[at] = 125
            at += 1
        offsets[s + 1] = at
