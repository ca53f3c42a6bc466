"""Recorded files in clear, whatever they are compressed with: gzip and zstd are recognised by their first bytes.

Nothing is believed about how large a file unfolds to: text is produced in pieces of a fixed size, on demand, so a decompression
bomb costs no more memory than any other file. A damaged file yields what there is and is marked `cut_off`: traces of crashed jobs
often end like that, and most of them can still be read. (A zstd file that merely ends early looks whole at this level; what is in
it does not.)
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
_GZIP_MEMBERS: Final = 10_000  # a member costs a fresh decoder
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
        self._members = 1
        self._behind: bytes | None = None  # what is left behind a member, once that was looked at
        unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._zstd = unpacker.stream_reader(file, read_across_frames=True, closefd=False) if head == _ZSTD else None

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
            part = self._file.read(wanted) if self._zstd is None else self._zstd.read(wanted)
        except _FAULTS:
            self.cut_off = self._ended = True
            return b""
        self._ended = not part
        return part

    def _inflated(self, wanted: int) -> bytes:
        assert self._gzip is not None
        if self._gzip.eof:
            behind = self._gzip.unused_data if self._behind is None else self._behind
            rest = behind.lstrip(b"\0") or self._file.read(_FEED_BYTES)
            self._behind = None if rest.strip(b"\0") else b""  # zeros may pad the end
            if self._behind is not None:
                self._ended = not rest
                return b""
            self._members += 1
            if self._members > _GZIP_MEMBERS:
                raise UndecodableBody(f"The gzip file has more than {_GZIP_MEMBERS} members")
            self._gzip = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
            return self._gzip.decompress(rest.lstrip(b"\0"), wanted)
        feed = self._file.read(_FEED_BYTES) if self._gzip.needs_input else b""
        if self._gzip.needs_input and not feed:
            self.cut_off = self._ended = True
            return b""
        return self._gzip.decompress(feed, wanted)


def read_plain(file: BinaryIO, limit_bytes: int) -> bytes:
    """All of a file that must be held at once. Raises BodyTooLarge, and UndecodableBody when it is cut off."""
    plain = PlainBytes(file)
    text = plain.read(limit_bytes + 1)
    if len(text) > limit_bytes:
        raise BodyTooLarge(f"The file is larger than {limit_bytes} bytes in clear", limit_bytes=limit_bytes)
    if plain.cut_off:
        raise UndecodableBody("The compressed file is cut off or damaged")
    return text
