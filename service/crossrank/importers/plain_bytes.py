"""Recorded files in clear, whatever they are compressed with: gzip and zstd are recognised by their first bytes.

Nothing is believed about how large a file unfolds to: text is produced in pieces of a fixed size, on demand, so a decompression
bomb costs no more memory than any other file. A compressed file that is cut off yields what there is and is marked `cut_off`:
traces of crashed jobs often end like that, and most of them can still be read.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, Final

import zstandard
from isal import igzip_lib

from crossrank.errors import BodyTooLarge, UndecodableBody

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_FEED_BYTES: Final = 1 << 16
_ZSTD_WINDOW_BYTES: Final = 128 << 20  # `zstd --long=27`, the most the tool itself takes unasked
_FAULTS: Final[tuple[type[Exception], ...]] = (igzip_lib.IsalError, EOFError, ValueError, zlib.error, zstandard.ZstdError)  # type: ignore[assignment]  # isal's stub declares its error class as an instance


class PlainBytes:
    """The clear bytes of a file from its beginning."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        head = file.read(4)
        file.seek(0)
        self._file = file
        self.cut_off = False
        self._pending = b""
        self._ended = False
        self._gzip = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP) if head[:2] == _GZIP else None
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj() if head == _ZSTD else None

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, fewer only at the end."""
        parts = [self._pending]
        have = len(self._pending)
        while have < size and not self._ended:
            part = self._next(size - have)
            parts.append(part)
            have += len(part)
        text = b"".join(parts)
        self._pending = text[size:]
        return text[:size]

    def _next(self, wanted: int) -> bytes:
        try:
            if self._gzip is not None:
                return self._inflated(wanted)
            if self._zstd is not None:
                return self._unpacked()
        except _FAULTS:
            self.cut_off = self._ended = True
            return b""
        part = self._file.read(wanted)
        self._ended = not part
        return part

    def _inflated(self, wanted: int) -> bytes:
        assert self._gzip is not None
        if self._gzip.eof:
            rest = (self._gzip.unused_data + self._file.read(_FEED_BYTES)).lstrip(b"\0")
            if not rest:
                self._ended = True
                return b""
            self._gzip = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
            return self._gzip.decompress(rest, wanted)
        feed = self._file.read(_FEED_BYTES) if self._gzip.needs_input else b""
        if self._gzip.needs_input and not feed:
            self.cut_off = self._ended = True
            return b""
        return self._gzip.decompress(feed, wanted)

    def _unpacked(self) -> bytes:
        assert self._zstd is not None
        feed = self._file.read(_FEED_BYTES)
        if self._zstd.eof:
            feed = self._zstd.unused_data + feed
            if not feed:
                self._ended = True
                return b""
            self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
        elif not feed:
            self.cut_off = self._ended = True
            return b""
        return self._zstd.decompress(feed)


def read_plain(file: BinaryIO, limit_bytes: int) -> bytes:
    """All of a file that must be held at once. Raises BodyTooLarge, and UndecodableBody when it is cut off."""
    plain = PlainBytes(file)
    text = plain.read(limit_bytes + 1)
    if len(text) > limit_bytes:
        raise BodyTooLarge(f"The file is larger than {limit_bytes} bytes in clear", limit_bytes=limit_bytes)
    if plain.cut_off:
        raise UndecodableBody("The compressed file is cut off or damaged")
    return text
