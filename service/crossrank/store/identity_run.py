"""One identity run: which identities some segments hold, in under four bytes each, asked for every event that comes.

Resends may come hours later, when no memory holds what was received. What must then be said of nearly every event is "no, it is
new", without reading a segment. A run answers that: a sorted list of the upper KEY_BITS of the identity keys (see `content`).

    entry = (key >> 22, part)    part: which of the run's segments holds it
    the first q bits of an entry choose a bucket of 16 to 32; the others are packed, without gaps, in the order of the entries

So a question costs two places in memory. With KEY_BITS = 42 an event that is new is taken for one that may be known with
probability n / 2**42, where n is the number of identities stored: one in 88,000 for 50 million, one in 4,400 for a thousand million.
Then, and for every real resend, the segment itself is asked (see `stored_versions`).

File: magic, length of the header, header (JSON), bucket starts (u32), packed entries (u64), CRC-32C of all before. It is a cache, made
anew from its segments whenever it is missing, damaged or of another salt; so it is written without a sync.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
import numba
import numpy as np

from crossrank.model.arrays import Int64Array

KEY_BITS: Final = 42
_DROPPED_BITS: Final = np.uint64(64 - KEY_BITS)
_BUCKET_KEYS: Final = 32
_BUCKET_BITS_MAX: Final = 28
_SLICE_BITS_MAX: Final = 6
_MAGIC: Final = b"CRIDS\r\n\1"
_CRC_BYTES: Final = 4
_CRC_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A segment whose identities are in a run: its path below the lake folder and its checksum, by which a stale run is recognised."""

    path: str
    crc32c: int


class Header(msgspec.Struct):
    """What stands before the numbers. bucket_bits q, part_bits: of an entry's part; entries: how many."""

    salt: int
    parts: tuple[Part, ...]
    entries: int
    bucket_bits: int
    part_bits: int


@numba.njit(cache=True, nogil=True)
def _entry(words: Any, at: Any, width: Any) -> Any:
    """The packed value number `at`; there is one word more than needed."""
    bit = at * width
    word, shift = bit >> 6, np.uint64(bit & 63)
    value = words[word] >> shift
    if shift != np.uint64(0):
        value |= words[word + 1] << (np.uint64(64) - shift)
    return value & ((np.uint64(1) << np.uint64(width)) - np.uint64(1))


@numba.njit(cache=True, nogil=True)
def _pack(values: Any, width: Any, words: Any) -> None:
    for at in range(len(values)):
        bit = at * width
        word, shift = bit >> 6, np.uint64(bit & 63)
        words[word] |= values[at] << shift
        if shift + np.uint64(width) > np.uint64(64):
            words[word + 1] |= values[at] >> (np.uint64(64) - shift)


@numba.njit(cache=True, nogil=True)
def _probe(starts: Any, words: Any, low_bits: Any, part_bits: Any, keys: Any, asked: Any, rows: Any, parts: Any) -> Any:
    """Notes (row, part) for every entry that an asked key may be; returns how many there are, even if not all found room."""
    found = 0
    width = low_bits + part_bits
    low_mask = (np.uint64(1) << np.uint64(low_bits)) - np.uint64(1)
    part_mask = (np.uint64(1) << np.uint64(part_bits)) - np.uint64(1)
    for row in asked:
        key = np.uint64(keys[row]) >> _DROPPED_BITS
        bucket = np.int64(key >> np.uint64(low_bits))
        wanted = key & low_mask
        first, end = np.int64(starts[bucket]), np.int64(starts[bucket + 1])
        last = end
        while first < last:
            middle = (first + last) >> 1
            if _entry(words, middle, width) >> np.uint64(part_bits) < wanted:
                first = middle + 1
            else:
                last = middle
        while first < end:
            value = _entry(words, first, width)
            if value >> np.uint64(part_bits) != wanted:
                break
            if found < len(rows):
                rows[found], parts[found] = row, value & part_mask
            found += 1
            first += 1
    return found


@numba.njit(cache=True, nogil=True)
def _unpack(starts: Any, words: Any, width: Any, first: Any, last: Any, out: Any) -> None:
    """The whole entries of the buckets [first, last)."""
    at = 0
    for bucket in range(first, last):
        for k in range(starts[bucket], starts[bucket + 1]):
            out[at] = np.uint64(bucket) << np.uint64(width) | _entry(words, k, width)
            at += 1


class IdentityRun:
    """A run in memory or mapped from its file. It does not change."""

    def __init__(self, header: Header, starts: np.ndarray, words: np.ndarray) -> None:
        """Use `of_keys`, `merged` or `read`."""
        self.header, self._starts, self._words = header, starts, words
        self.parts = header.parts
        self.entries = header.entries
        self._low_bits = KEY_BITS - header.bucket_bits

    @property
    def size_bytes(self) -> int:
        """Bytes of the numbers."""
        return self._starts.nbytes + self._words.nbytes

    def probe(self, keys: Int64Array, asked: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(row, part) of all rows among `asked` whose key may be in the run; a row may occur once for each part."""
        room = 64
        while True:
            rows, parts = np.empty(room, np.int64), np.empty(room, np.int64)
            found = _probe(self._starts, self._words, self._low_bits, self.header.part_bits, keys, asked, rows, parts)
            if found <= room:
                return rows[:found], parts[:found]
            room = found

    def entries_in(self, number: int, slice_bits: int) -> np.ndarray:
        """Sorted entries whose first `slice_bits` bits are `number`."""
        shift = self.header.bucket_bits - slice_bits
        first, last = number << shift, (number + 1) << shift
        out = np.empty(int(self._starts[last]) - int(self._starts[first]), np.uint64)
        _unpack(self._starts, self._words, self._low_bits + self.header.part_bits, first, last, out)
        return out

    def write(self, path: Path) -> None:
        """Writes the file under its name, whole or not at all. Raises OSError."""
        temporary = path.with_suffix(".tmp")
        head = msgspec.json.encode(self.header)
        head += b" " * (-(len(_MAGIC) + 8 + len(head)) % 8)
        blocks = (_MAGIC, len(head).to_bytes(8, "little"), head, _bytes(self._starts), _bytes(self._words))
        crc = 0
        try:
            with temporary.open("wb") as file:
                for block in blocks:
                    file.write(block)
                    crc = _crc(memoryview(block), crc)
                file.write(crc.to_bytes(_CRC_BYTES, "little"))
            temporary.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def of_keys(keys: Int64Array, part: Part, *, salt: int) -> IdentityRun:
    """The run of one segment, from the keys of its rows in any order."""
    return _of_entries([np.unique(keys.view(np.uint64) >> _DROPPED_BITS)], (part,), part_bits=0, salt=salt)


def merged(runs: list[IdentityRun], live: set[Part], *, salt: int) -> IdentityRun:
    """One run of the parts of several that are in `live`. Memory: the result and a small slice of the key space at a time."""
    parts = tuple(p for run in runs for p in run.parts if p in live)
    part_bits = max(1, (len(parts) - 1).bit_length())
    places = {part: np.uint64(k) for k, part in enumerate(parts)}
    slice_bits = min(_SLICE_BITS_MAX, *(run.header.bucket_bits for run in runs))
    slices = []
    for number in range(1 << slice_bits):
        pieces = []
        for run in runs:
            entries, bits = run.entries_in(number, slice_bits), np.uint64(run.header.part_bits)
            own = entries & ((np.uint64(1) << bits) - np.uint64(1))
            kept = np.array([p in live for p in run.parts])[own.astype(np.int64)]
            place = np.array([places.get(p, np.uint64(0)) for p in run.parts], np.uint64)[own.astype(np.int64)]
            pieces.append(((entries >> bits) << np.uint64(part_bits) | place)[kept])
        slices.append(np.sort(np.concatenate(pieces)))
    return _of_entries(slices, parts, part_bits=part_bits, salt=salt)


def _of_entries(slices: list[np.ndarray], parts: tuple[Part, ...], *, part_bits: int, salt: int) -> IdentityRun:
    """Packs sorted entries, given as consecutive pieces; they are taken from the list as they are used."""
    count = sum(map(len, slices))
    bucket_bits = min(_BUCKET_BITS_MAX, max(0, (count // _BUCKET_KEYS).bit_length()))
    width = KEY_BITS - bucket_bits + part_bits
    sizes = np.zeros(1 << bucket_bits, np.int64)
    lows = np.empty(count, np.uint64)
    at = 0
    for entries in slices:
        sizes += np.bincount((entries >> np.uint64(width)).astype(np.int64), minlength=len(sizes))
        lows[at : at + len(entries)] = entries & ((np.uint64(1) << np.uint64(width)) - np.uint64(1))
        at += len(entries)
    slices.clear()
    words = np.zeros((count * width + 63) // 64 + 1, np.uint64)
    _pack(lows, width, words)
    starts = np.zeros(len(sizes) + 1 + (len(sizes) + 1) % 2, np.uint32)  # an even number: the words behind them are aligned
    starts[1 : len(sizes) + 1] = np.cumsum(sizes)
    return IdentityRun(Header(salt, parts, count, bucket_bits, part_bits), starts, words)


def read(path: Path, *, salt: int) -> IdentityRun | None:
    """The run in a file, mapped; None when there is none that is whole and has this salt."""
    try:
        data = np.memmap(path, np.uint8, "r")
        if bytes(data[: len(_MAGIC)]) != _MAGIC:
            return None
        size = int.from_bytes(bytes(data[len(_MAGIC) : len(_MAGIC) + 8]), "little")
        if _crc(data.data[:-_CRC_BYTES]) != int.from_bytes(bytes(data[-_CRC_BYTES:]), "little"):
            return None
        at = len(_MAGIC) + 8 + size
        header = msgspec.json.decode(bytes(data[len(_MAGIC) + 8 : at]), type=Header)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    if header.salt != salt:
        return None
    buckets = 1 << header.bucket_bits
    end = at + 4 * (buckets + 1 + (buckets + 1) % 2)
    return IdentityRun(header, data[at:end].view(np.uint32), data[end:-_CRC_BYTES].view(np.uint64))


def _crc(block: memoryview, before: int = 0) -> int:
    crc = before
    for at in range(0, len(block), _CRC_BLOCK_BYTES):
        crc = google_crc32c.extend(crc, bytes(block[at : at + _CRC_BLOCK_BYTES]))
    return crc


def _bytes(values: np.ndarray) -> memoryview:
    return values.data.cast("B")
