r"""Compiled readers of JSON: white space, strings, numbers, nested values and hex ids.

They accept what is surely right and say "unusual" (a negative place or kind) to anything else, so that the JSON library decides about
it. Strings are scanned eight bytes at a time: a byte equals `"` or `\` exactly where (b ^ pattern) - 1 borrows into its top bit.
None of them passes the end of a line inside a value.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import DOUBLE, INT
from crossrank.ingest.byte_kernels import byte_at, word

UNUSUAL: Final = -1
_LOW: Final = np.uint64(0x0101010101010101)
_HIGH: Final = np.uint64(0x8080808080808080)
_QUOTES: Final = np.uint64(0x2222222222222222)
_SLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES: Final = np.uint64(0x2020202020202020)
_DIGITS_MAX: Final = 19  # always fits a uint64
_FLOAT_DIGITS_MAX: Final = 40
_NESTING_MAX: Final = 256
_SIXTEEN: Final = np.uint64(0x00FF00FF00FF00FF)


class Floats(NamedTuple):
    """Numbers with a point or an exponent, as stretches of the body."""

    start: np.ndarray  # int64
    size: np.ndarray  # int64
    found: np.ndarray  # int64 [1]


@njit(cache=True, nogil=True, forceinline=True)
def peek(buf: np.ndarray, at: int) -> Any:
    """The next byte that is not white space, and its place; byte 0, which is never right, at the end of the body."""
    while at < buf.size:
        c = byte_at(buf, at)
        if c not in (32, 9, 13):
            return c, at
        at += 1
    return np.uint8(0), at


@njit(cache=True, nogil=True, forceinline=True)
def string_end(buf: np.ndarray, at: Any) -> tuple[Any, Any]:
    """(place of the closing quote, whether there are escapes) of a string's inside; negative when there is none on the line."""
    escaped = False
    while True:
        while at + 8 <= buf.size:
            bits = word(buf, at)
            quote, slash = bits ^ _QUOTES, bits ^ _SLASHES
            hit = ((quote - _LOW) & ~quote | (slash - _LOW) & ~slash | (bits - _SPACES) & ~bits) & _HIGH
            if hit == np.uint64(0):
                at += 8
                continue
            at += np.int64((((hit - np.uint64(1)) & ~hit & _LOW) * _LOW) >> np.uint64(56)) - 1
            break
        if at >= buf.size:
            return -1, escaped
        c = byte_at(buf, at)
        if c == 34:
            return at, escaped
        if c < 32:
            return -1, escaped
        if c == 92:
            escaped = True
            at += 1
        at += 1


@njit(cache=True, nogil=True, forceinline=True)
def _eight_digits(text: np.uint64) -> Any:
    """Whether eight bytes are all decimal digits."""
    high = np.uint64(0xF0F0F0F0F0F0F0F0)
    threes = np.uint64(0x3030303030303030)
    return text & high == threes and (text + np.uint64(0x0606060606060606)) & high == threes


@njit(cache=True, nogil=True, forceinline=True)
def _eight_digits_value(text: np.uint64) -> Any:
    """The number that eight digits are: pairs, then fours, then all, each by one multiplication."""
    pairs = ((text & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561)) >> np.uint64(8)
    fours = ((pairs & _SIXTEEN) * np.uint64(6553601)) >> np.uint64(16)
    return ((fours & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)


@njit(cache=True, nogil=True, forceinline=True)
def read_number(buf: np.ndarray, at: int, floats: Floats) -> tuple[Any, Any, Any]:
    """An integer of up to 19 digits, or the place of a number with a point or an exponent among `floats`."""
    start = at
    negative = byte_at(buf, at) == 45
    whole = at + 1 if negative else at
    at = whole
    unsigned = np.uint64(0)
    while at + 8 <= buf.size and at - whole <= _DIGITS_MAX - 8 and _eight_digits(word(buf, at)):
        unsigned = unsigned * np.uint64(100_000_000) + _eight_digits_value(word(buf, at))
        at += 8
    while at < buf.size and 48 <= byte_at(buf, at) <= 57 and at - whole <= _DIGITS_MAX:
        unsigned = unsigned * np.uint64(10) + np.uint64(byte_at(buf, at) - 48)
        at += 1
    number = np.int64(unsigned)
    size = at - whole
    if size == 0 or size > _DIGITS_MAX or (size > 1 and byte_at(buf, whole) == 48) or (negative and number == 0):
        return UNUSUAL, 0, at
    if at >= buf.size or (byte_at(buf, at) != 46 and byte_at(buf, at) | 0x20 != 101):
        if number < 0:
            return UNUSUAL, 0, at
        return INT, (-number if negative else number), at
    if byte_at(buf, at) == 46:
        at = _digits_end(buf, at + 1)
    if at >= 0 and at < buf.size and byte_at(buf, at) | 0x20 == 101:
        at += 1
        if at < buf.size and byte_at(buf, at) in (43, 45):
            at += 1
        before = at
        at = _digits_end(buf, at)
        if at - before > 2:
            return UNUSUAL, 0, at
    if at < 0 or at - start > _FLOAT_DIGITS_MAX:
        return UNUSUAL, 0, at
    n = floats.found[0]
    floats.start[n], floats.size[n] = start, at - start
    floats.found[0] = n + 1
    return DOUBLE, n, at


@njit(cache=True, nogil=True, forceinline=True)
def _digits_end(buf: np.ndarray, at: int) -> Any:
    """The place after one or more digits, or UNUSUAL."""
    start = at
    while at < buf.size and 48 <= byte_at(buf, at) <= 57:
        at += 1
    return at if at > start else UNUSUAL


@njit(cache=True, nogil=True, forceinline=True)
def nested_end(buf: np.ndarray, at: int) -> Any:
    """The place after the array or object that begins here, brackets counted outside strings; UNUSUAL when it does not end."""
    depth = 0
    while at < buf.size:
        c = byte_at(buf, at)
        at += 1
        if c == 34:
            at, _ = string_end(buf, at)
            if at < 0:
                return UNUSUAL
            at += 1
        elif c in (123, 91):
            depth += 1
            if depth > _NESTING_MAX:
                return UNUSUAL
        elif c in (125, 93):
            depth -= 1
            if depth == 0:
                return at
        elif c == 10:
            return UNUSUAL
    return UNUSUAL


@njit(cache=True, nogil=True, forceinline=True)
def hex_bytes(buf: np.ndarray, at: int, size: int, out: np.ndarray, row: int) -> Any:
    """Writes hex digits of either case (a multiple of eight) as bytes to out[row]: 1 done, 0 all are zero, -1 not hex.

    Eight digits at a time: each is decoded, and encoded again to see whether it was one.
    """
    some = np.uint64(0)
    for i in range(0, size, 8):
        text = word(buf, at + i)
        digit = (text & np.uint64(0x0F0F0F0F0F0F0F0F)) + np.uint64(9) * ((text >> np.uint64(6)) & _LOW)
        letter = ((digit + np.uint64(0x7676767676767676)) & _HIGH) >> np.uint64(7)
        if digit + np.uint64(0x3030303030303030) + letter * np.uint64(0x27) != text | _SPACES:
            return -1
        pairs = (digit & _SIXTEEN) << np.uint64(4) | (digit >> np.uint64(8)) & _SIXTEEN
        some |= pairs
        half = i >> 1
        out[row, half], out[row, half + 1] = np.uint8(pairs), np.uint8(pairs >> np.uint64(16))
        out[row, half + 2], out[row, half + 3] = np.uint8(pairs >> np.uint64(32)), np.uint8(pairs >> np.uint64(48))
    return 1 if some != np.uint64(0) else 0
