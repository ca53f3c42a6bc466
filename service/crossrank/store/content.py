"""What makes two events the same event, and what makes them equal: identity keys and content marks, vectorised.

*Identity key* (int64): a mix of (attempt, rank, span_id) of one job. It is salted with a number chosen at each start, so that
nobody can prepare span ids that crowd one corner of the identity table; it is never stored.

*Mark* (int32): 30 bits of content hash and, in the two low bits, the form of the event:

    OPEN    start known, end not yet         END     the end half of a pair, start not known
    CLOSED  both known (never 0, so that 0 can mean an empty slot)

The content is every column but `received_ns` and the bits the store itself sets. Each column adds mix(hash(value), column) by
XOR and a null adds nothing, so columns without values cost nothing. Two different contents of one identity look equal with
probability 2**-30. Marks are stored in the segments, so this hash is part of the segment format.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numba
import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.columns import EVENT_COLUMNS
from crossrank.model.flags import EventFlag

OPEN: Final = 1
END: Final = 2
CLOSED: Final = 3
FORM_BITS: Final = 3
STORE_FLAGS: Final = int(EventFlag.CONFLICT | EventFlag.AMENDS | EventFlag.JOINED)  # set here, not part of what was sent
_CONTENT_COLUMNS: Final = tuple(
    (c.name, np.uint64(zlib.crc32(c.name.encode()))) for c in EVENT_COLUMNS if c.name not in {"received_ns", "flags"}
)
_FLAGS_SEED: Final = np.uint64(zlib.crc32(b"flags"))
_ALL: Final[BoolArray] = np.zeros(0, np.bool_)  # stands for "every row has a value"
KEY_COLUMNS: Final = ("attempt", "rank", "span_id")


@numba.njit(cache=True, nogil=True)
def _mix(h: Any) -> Any:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def _hash_bytes(offsets: Any, data: Any) -> Any:
    """One 64-bit hash of each byte string data[offsets[i]:offsets[i+1]]; the same text many times in a row is hashed once."""
    n = len(offsets) - 1
    out = np.empty(n, np.uint64)
    for i in range(n):
        at, end = offsets[i], offsets[i + 1]
        if i > 0 and end - at == at - offsets[i - 1] and _same_bytes(data, offsets[i - 1], at, end - at):
            out[i] = out[i - 1]
            continue
        h = np.uint64(end - at) + np.uint64(0x9E3779B97F4A7C15)
        while at + 8 <= end:
            h = _mix(h ^ _word(data, at))
            at += 8
        if at < end:
            word = np.uint64(0)
            for k in range(end - at):
                word |= np.uint64(data[at + k]) << np.uint64(8 * k)
            h = _mix(h ^ word)
        out[i] = h
    return out


@numba.njit(cache=True, nogil=True, forceinline=True)
def _word(data: Any, at: Any) -> Any:
    """Eight bytes as a little-endian number; written out so that the compiler makes one load of it."""
    i = np.uint64(at)
    return (
        np.uint64(data[i])
        | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)
    )


@numba.njit(cache=True, nogil=True)
def _same_bytes(data: Any, a: Any, b: Any, size: Any) -> Any:
    k = 0
    while k + 8 <= size:
        if _word(data, a + k) != _word(data, b + k):
            return False
        k += 8
    while k < size:
        if data[a + k] != data[b + k]:
            return False
        k += 1
    return True


@numba.njit(cache=True, nogil=True)
def neighbours_differ(offsets: Any, data: Any, out: Any) -> None:
    """Says of each text whether it is another than the one before it; the first one is."""
    for i in range(len(out)):
        at, size = offsets[i], offsets[i + 1] - offsets[i]
        same = i > 0 and size == at - offsets[i - 1] and _same_bytes(data, offsets[i - 1], at, size)
        out[i] = not same


@numba.njit(cache=True, nogil=True)
def _add_column(total: Any, hashes: Any, valid: Any, seed: Any) -> None:
    """valid: one truth a row, or none at all where every row has a value."""
    for i in range(len(total)):
        if len(valid) == 0 or valid[i]:
            total[i] ^= _mix(hashes[i] ^ seed)


@numba.njit(cache=True, nogil=True)
def _add_words(total: Any, codes: Any, words: Any, valid: Any, seed: Any) -> None:
    """The same for codes of words, whose hashes are mixed once each."""
    mixed = np.empty(len(words), np.uint64)
    for w in range(len(words)):
        mixed[w] = _mix(words[w] ^ seed)
    for i in range(len(total)):
        if len(valid) == 0 or valid[i]:
            total[i] ^= mixed[codes[i]]


@numba.njit(cache=True, nogil=True)
def _keys(member: Any, span: Any, salt: Any) -> Any:
    out = np.empty(len(span), np.int64)
    for i in range(len(span)):
        out[i] = np.int64(_mix(span[i] ^ _mix(member[i] ^ salt)))
    return out


def identity_keys(events: pa.Table, salt: int) -> Int64Array:
    """[n] the identity key of every row; needs the columns KEY_COLUMNS."""
    member = member_of(events).view(np.uint64)
    return _keys(member, fixed_words(events.column("span_id"), 8)[:, 0], np.uint64(salt))


def member_of(events: pa.Table) -> Int64Array:
    """[n] attempt and rank of every row packed into one int64."""
    attempt, rank = (raw_values(one_chunk(events.column(name))).astype(np.int64) for name in ("attempt", "rank"))
    return (attempt << 32) | rank


def forms(events: pa.Table) -> Int32Array:
    """[n] OPEN, END or CLOSED of every row."""
    has_start, has_end = (valid_rows(one_chunk(events.column(name))) for name in ("start_ns", "end_ns"))
    return np.where(has_start, np.where(has_end, CLOSED, OPEN), END).astype(np.int32)


def marks(events: pa.Table) -> Int32Array:
    """[n] the mark of every row; needs all content columns."""
    total = np.zeros(len(events), np.uint64)
    for name, seed in _CONTENT_COLUMNS:
        column = one_chunk(events.column(name))
        if column.null_count == len(column):
            continue
        if pa.types.is_dictionary(column.type):
            _add_words(total, raw_values(column.indices), _hashes(column.dictionary), _valid(column), seed)
        else:
            _add_column(total, _hashes(column), _valid(column), seed)
    flags = raw_values(one_chunk(events.column("flags"))).astype(np.int64) & ~STORE_FLAGS
    _add_column(total, flags.view(np.uint64), _ALL, _FLAGS_SEED)
    return ((total >> np.uint64(34)).astype(np.int32) << 2) | forms(events)


def _valid(column: pa.Array) -> BoolArray:
    return valid_rows(column) if column.null_count else _ALL


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one contiguous array (dictionaries unified)."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def fixed_words(column: pa.ChunkedArray | pa.Array, width: int) -> np.ndarray:
    """[n, width/8] a fixed-size binary column as big-endian unsigned words (native byte order in the result)."""
    array = one_chunk(column)
    rows = _bytes_of(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
    return rows.view(">u8").astype(np.uint64).reshape(-1, width // 8)


def valid_rows(array: pa.Array) -> BoolArray:
    """[n] False where the array is null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(_bytes_of(array.buffers()[0]), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(np.bool_)


def raw_values(array: pa.Array) -> np.ndarray:
    """[n] the values of a number column without a copy; anything where it is null."""
    dtype = np.dtype(str(array.type))  # Arrow and numpy call numbers alike
    return np.frombuffer(_bytes_of(array.buffers()[1]), dtype)[array.offset : array.offset + len(array)]


def _hashes(array: pa.Array) -> np.ndarray:
    """[n] uint64 hash of every value; anything where it is null."""
    kind = array.type
    if pa.types.is_string(kind):
        return _hash_bytes(*text_buffers(array))
    if pa.types.is_list(kind):
        width = kind.value_type.bit_width // 8
        child = array.values
        return _hash_bytes((_offsets(array).astype(np.int64) + child.offset) * width, _bytes_of(child.buffers()[1]))
    if pa.types.is_fixed_size_binary(kind):
        words = fixed_words(array, kind.byte_width)
        total = words[:, 0].copy()
        for k in range(1, words.shape[1]):
            total ^= words[:, k] * np.uint64(0x9E3779B97F4A7C15)
        return total
    if pa.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False).astype(np.uint64)
    values = raw_values(array)
    return values.view(np.uint64) if values.dtype == np.float64 else values.astype(np.int64).view(np.uint64)


def text_buffers(array: pa.Array) -> tuple[Int32Array, np.ndarray]:
    """([n + 1] offsets, bytes) of a string column."""
    return _offsets(array), _bytes_of(array.buffers()[2])


def _offsets(array: pa.Array) -> Int32Array:
    return np.frombuffer(_bytes_of(array.buffers()[1]), np.int32)[array.offset : array.offset + len(array) + 1]


def _bytes_of(buffer: pa.Buffer | None) -> np.ndarray:
    return np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(0, np.uint8)
