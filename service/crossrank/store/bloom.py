"""Asks a Parquet Bloom filter whether a row group can hold a value, reading 32 bytes of it.

A split-block filter (Parquet format, BloomFilter.md) is an array of 256-bit blocks of eight 32-bit words. A value's 64-bit hash h
(xxHash64 of its plain bytes, seed 0) picks block (h >> 32) * blocks >> 32, and one bit in each word by the low half of h:

    bit of word i = (low32(h) * SALT[i] mod 2**32) >> 27

"No" is certain; "yes" is wrong for about one value in fifty (as written by `segment`). A filter that cannot be read says yes.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Final

_SALT: Final = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_BLOCK_BYTES: Final = 32
_HEADER_BYTES_MAX: Final = 64
_U64: Final = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def xxh64(data: bytes) -> int:
    """xxHash64, seed 0, of fewer than 32 bytes in whole words of 8: all that ids need."""
    assert len(data) < _BLOCK_BYTES, len(data)
    assert len(data) % 8 == 0, len(data)
    h = (_P5 + len(data)) & _U64
    for (word,) in struct.iter_unpack("<Q", data):
        k = _rotated(word * _P2 & _U64, 31) * _P1 & _U64
        h = (_rotated(h ^ k, 27) * _P1 + _P4) & _U64
    h = (h ^ (h >> 33)) * _P2 & _U64
    h = (h ^ (h >> 29)) * _P3 & _U64
    return h ^ (h >> 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _U64


def may_hold(fd: int, column: Any, hashed: int) -> bool:
    """False only when the column chunk does not hold the value with this hash; fd: the file, column: its ColumnChunkMetaData."""
    offset, length = column.bloom_filter_offset, column.bloom_filter_length
    if offset is None or length is None:
        return True
    size = _bitset_bytes(os.pread(fd, _HEADER_BYTES_MAX, offset))
    if size is None or not 0 < size <= length or size % _BLOCK_BYTES:
        return True
    block = (hashed >> 32) * (size // _BLOCK_BYTES) >> 32
    words = os.pread(fd, _BLOCK_BYTES, offset + length - size + block * _BLOCK_BYTES)
    if len(words) != _BLOCK_BYTES:
        return True
    low = hashed & 0xFFFFFFFF
    return all(word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(struct.unpack("<8I", words), _SALT, strict=True))


def _bitset_bytes(header: bytes) -> int | None:
    """The first field of a BloomFilterHeader in Thrift's compact form: a zigzag varint."""
    if not header or header[0] != 0x15:  # field 1, a 32-bit integer
        return None
    value, shift = 0, 0
    for byte in header[1:6]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1
    return None
