"""Compiled readers of bytes: varints, lengths, words, UTF-8, and a hash table that turns byte strings into small codes.

Every decoder kernel is built from these. All of them index arrays and check every length before they read, so that they can be run
with NUMBA_BOUNDSCHECK=1, and none of them raises: a position of -1 says that the bytes are not what they should be.

Distinct strings of a request are few (names, groups, operations) although they are many bytes, so each is looked at once: `intern`
gives equal bytes of one kind equal codes, in the order of their first appearance. A look-up inspects at most `_PROBES` slots;
whoever sends strings that collide on purpose gets no code for them and is served by the plain decoder, slower but bounded.

numba's cache of a compiled caller does not notice changes in this file: after editing it, delete the `__pycache__` beside it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.borrowed import borrowed

_VARINT_BYTES: Final = 10
_SIZE_BYTES: Final = 5  # protobuf reads tags and lengths of at most five bytes
_PROBES: Final = 256
NO_CODE: Final = -1
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Table(NamedTuple):
    """Distinct byte strings of a buffer. `slots` is a power of two at least twice the capacity of the others."""

    slots: np.ndarray  # int32, code + 1, 0 where free
    start: np.ndarray  # int64 [codes]
    size: np.ndarray  # int64 [codes]
    kind: np.ndarray  # int8 [codes], strings of different kinds are different
    hashed: np.ndarray  # uint64 [codes]
    mark: np.ndarray  # int64 [codes], free for the caller's use, starts at 0
    found: np.ndarray  # int64 [1]


def new_table(capacity: int) -> Table:
    """An empty table for at least `capacity` strings."""
    size = 1 << max(4, (capacity - 1).bit_length())
    return Table(
        np.zeros(2 * size, np.int32),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int8),
        np.empty(size, np.uint64),
        np.zeros(size, np.int64),
        np.zeros(1, np.int64),
    )


def grown(table: Table, capacity: int) -> Table:
    """The same strings with the same codes in a table for `capacity`."""
    out = new_table(capacity)
    n = int(table.found[0])
    for old, new in zip(table[1:6], out[1:6], strict=True):
        new[:n] = old[:n]
    out.found[0] = n
    _rehash(out)
    return out


@njit(cache=True, nogil=True)
def _rehash(table: Table) -> None:
    table = borrowed(table)
    mask = table.slots.size - 1
    for code in range(table.found[0]):
        slot = np.int64(table.hashed[code] & np.uint64(mask))
        while table.slots[slot] != 0:
            slot = (slot + 1) & mask
        table.slots[slot] = code + 1


@njit(cache=True, nogil=True, forceinline=True)
def byte_at(buf: np.ndarray, at: int) -> Any:
    """One byte; an unsigned index spares the wrap-around that Python's negative ones need."""
    return buf[np.uint64(at)]


@njit(cache=True, nogil=True, forceinline=True)
def varint(buf: np.ndarray, at: int, end: int) -> tuple[Any, Any]:
    """(value, next position); bits beyond the 64th are dropped, as protobuf does."""
    if at < end and byte_at(buf, at) < 0x80:
        return np.uint64(byte_at(buf, at)), at + 1
    value, shift = np.uint64(0), np.uint64(0)
    for i in range(at, min(end, at + _VARINT_BYTES)):
        byte = np.uint64(byte_at(buf, i))
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, i + 1
        shift += np.uint64(7)
    return np.uint64(0), -1


@njit(cache=True, nogil=True, forceinline=True)
def length(buf: np.ndarray, at: int, end: int) -> tuple[Any, Any]:
    """(size, start) of a length-delimited value that lies within the end."""
    if at < end and byte_at(buf, at) < 0x80:
        size = np.int64(byte_at(buf, at))
        return (size, at + 1) if size <= end - at - 1 else (0, -1)
    value, after = varint(buf, at, min(end, at + _SIZE_BYTES))
    if after < 0 or value > np.uint64(end - after):
        return 0, -1
    return np.int64(value), after


@njit(cache=True, nogil=True, forceinline=True)
def word(buf: np.ndarray, at: int) -> np.uint64:
    """Eight bytes as a little-endian integer; the caller has checked that they are there."""
    i = np.uint64(at)  # unsigned indices need no wrap-around, so the eight loads become one
    return (
        np.uint64(buf[i])
        | np.uint64(buf[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(buf[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(buf[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(buf[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(buf[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(buf[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(buf[i + np.uint64(7)]) << np.uint64(56)
    )


@njit(cache=True, nogil=True, forceinline=True)
def copy_words(source: np.ndarray, start: int, size: int, out: np.ndarray, at: int) -> Any:
    """Copies bytes eight at a time and returns the place after them; up to seven bytes more are read and written."""
    for done in range(0, size, 8):
        bits, i = word(source, start + done), np.uint64(at + done)
        out[i] = np.uint8(bits)
        out[i + np.uint64(1)] = np.uint8(bits >> np.uint64(8))
        out[i + np.uint64(2)] = np.uint8(bits >> np.uint64(16))
        out[i + np.uint64(3)] = np.uint8(bits >> np.uint64(24))
        out[i + np.uint64(4)] = np.uint8(bits >> np.uint64(32))
        out[i + np.uint64(5)] = np.uint8(bits >> np.uint64(40))
        out[i + np.uint64(6)] = np.uint8(bits >> np.uint64(48))
        out[i + np.uint64(7)] = np.uint8(bits >> np.uint64(56))
    return at + size


@njit(cache=True, nogil=True, forceinline=True)
def equal(buf: np.ndarray, a: int, b: int, size: int) -> bool:
    """Whether two stretches of the buffer hold the same bytes."""
    if size >= 8:
        for i in range(0, size - 7, 8):
            if word(buf, a + i) != word(buf, b + i):
                return False
        return word(buf, a + size - 8) == word(buf, b + size - 8)
    if size > 0 and max(a, b) + 8 <= buf.size:
        return (word(buf, a) ^ word(buf, b)) << np.uint64(64 - 8 * size) == np.uint64(0)
    for i in range(size):  # noqa: SIM110  # compiled
        if byte_at(buf, a + i) != byte_at(buf, b + i):
            return False
    return True


@njit(cache=True, nogil=True, forceinline=True)
def _hash(buf: np.ndarray, at: int, size: int, kind: int) -> np.uint64:
    h = (np.uint64(size) << np.uint64(8) | np.uint64(kind)) * _MIX
    i = 0
    while i + 8 <= size:
        h = (h ^ word(buf, at + i)) * _MIX
        h ^= h >> np.uint64(29)
        i += 8
    if i < size:
        rest = np.uint64(0)
        while i < size:
            rest = rest << np.uint64(8) | np.uint64(byte_at(buf, at + i))
            i += 1
        h = (h ^ rest) * _MIX
    return h ^ h >> np.uint64(32)


@njit(cache=True, nogil=True, forceinline=True)
def is_code(buf: np.ndarray, at: int, size: int, kind: int, table: Table, code: int) -> bool:
    """Whether a byte string is that of a code."""
    return table.size[code] == size and table.kind[code] == kind and equal(buf, table.start[code], at, size)


@njit(cache=True, nogil=True)
def intern(buf: np.ndarray, at: int, size: int, kind: int, table: Table) -> Any:
    """The code of a byte string, NO_CODE where the table has no place for it. The caller has made sure that it has room for one."""
    h = _hash(buf, at, size, kind)
    mask = table.slots.size - 1
    slot = np.int64(h & np.uint64(mask))
    for _ in range(_PROBES):
        code = np.int64(table.slots[slot]) - 1
        if code < 0:
            code = table.found[0]
            table.found[0] = code + 1
            table.slots[slot] = code + 1
            table.start[code], table.size[code], table.kind[code], table.hashed[code] = at, size, kind, h
            return code
        if table.hashed[code] == h and is_code(buf, at, size, kind, table, code):
            return code
        slot = (slot + 1) & mask
    return NO_CODE


@njit(cache=True, nogil=True)
def is_utf8(buf: np.ndarray, at: int, size: int) -> bool:
    """Strict UTF-8: no surrogates, no overlong forms, nothing beyond U+10FFFF."""
    end = at + size
    while at < end:
        while at + 8 <= end and word(buf, at) & np.uint64(0x8080808080808080) == np.uint64(0):
            at += 8
        if at >= end:
            break
        lead = buf[at]
        at += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if end - at < more:
            return False
        second = buf[at]
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for i in range(1, more):
            if buf[at + i] & 0xC0 != 0x80:
                return False
        at += more
    return True
