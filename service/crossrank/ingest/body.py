"""Bounded decompression: whatever a body claims to be, no more than the limit (plus one read) is ever held.

A few kilobytes of gzip or zstd can stand for gigabytes (1,028 : 1 and 32,706 : 1), so every codec is read as a stream of
at most `_READ_BYTES` and the running total is checked after each read. Bodies of several gzip members or zstd frames are
decoded whole, as the formats demand. zstd windows are capped at the 8 MiB that RFC 8878 asks every decoder to support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final

import zstandard
from isal import igzip_lib

from crossrank.errors import BodyTooLarge, UndecodableBody, UnsupportedType

_READ_BYTES: Final = 1 << 20
_FEED_BYTES: Final = 1 << 14  # small, since a decoder copies what it has not used at every member's end
_GZIP_MEMBERS: Final = 10_000  # a member costs a fresh decoder; a body of 20-byte members would keep a core busy for minutes
_INFLATE_FAULTS: Final[tuple[type[Exception], ...]] = (igzip_lib.IsalError, EOFError, ValueError)  # type: ignore[assignment]  # isal's stub declares its error class as an instance
_ZSTD_WINDOW_BYTES: Final = 8 << 20

# python-zstandard's reader ends silently when a frame is cut off. A frame of our own is appended: only if its content comes
# out at the end was everything before it complete.
_END_MARK: Final = b"crossrank:end-of-body"
_END_FRAME: Final = zstandard.ZstdCompressor(write_content_size=True).compress(_END_MARK)


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The body in clear, at most `limit_bytes` long.

    `encoding`: the Content-Encoding header, any case, "" when absent. Raises BodyTooLarge, UndecodableBody, UnsupportedType.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes)
        return body
    if name not in _CODECS:
        raise UnsupportedType(f"Content-Encoding {encoding[:40]!r} is not supported; use identity, gzip, deflate or zstd")
    pieces: list[bytes] = []
    total = 0
    for piece in _CODECS[name](body):
        total += len(piece)
        if total > limit_bytes + (len(_END_MARK) if name == "zstd" else 0):
            raise _too_large(limit_bytes)
        pieces.append(piece)
    clear = b"".join(pieces)
    return _without_end_mark(clear, limit_bytes) if name == "zstd" else clear


def grows_beyond(body: bytes, encoding: str, limit_bytes: int) -> bool:
    """Whether a body, or the beginning of one, has more than `limit_bytes` in clear. Nothing of it is kept.

    False for a body that cannot be read to that point; why is found out when it is decompressed.
    """
    codec = _CODECS.get(encoding.strip().lower())
    if codec is None:
        return len(body) > limit_bytes
    total = 0
    try:
        for piece in codec(body):
            total += len(piece)
            if total > limit_bytes + len(_END_MARK):
                return True
    except UndecodableBody:
        pass
    return False


def _too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit_bytes} bytes after decompression", limit_bytes=limit_bytes)


def _gzip(body: bytes) -> Iterator[bytes]:
    """All members of a gzip body; zero padding after the last one is legal."""
    feed = _Feed(body)
    for _ in range(_GZIP_MEMBERS):
        yield from _inflate(feed, igzip_lib.DECOMP_GZIP)
        if feed.rest_is_padding():
            return
    raise UndecodableBody(f"The gzip body has more than {_GZIP_MEMBERS} members")


def _deflate(body: bytes) -> Iterator[bytes]:
    """A zlib stream, which is what HTTP calls deflate."""
    feed = _Feed(body)
    yield from _inflate(feed, igzip_lib.DECOMP_ZLIB)
    if not feed.rest_is_padding():
        raise UndecodableBody("Bytes follow the end of the deflate stream")


class _Feed:
    """The compressed bytes, handed out in small pieces; what a decoder did not use can be given back."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def next(self) -> bytes:
        piece = self._body[self._at : self._at + _FEED_BYTES]
        self._at += len(piece)
        return piece

    def give_back(self, size_bytes: int) -> None:
        self._at -= size_bytes

    def rest_is_padding(self) -> bool:
        """True when nothing but zero bytes is left (then it is taken as read)."""
        here = self._body[self._at : self._at + 1]
        if here == b"":
            return True
        return here == b"\0" and not self._body[self._at :].strip(b"\0")


def _inflate(feed: _Feed, flag: int) -> Iterator[bytes]:
    decoder = igzip_lib.IgzipDecompressor(flag=flag)
    try:
        while not decoder.eof:
            piece = feed.next() if decoder.needs_input else b""
            if decoder.needs_input and not piece:
                raise UndecodableBody("The compressed body is cut off")
            yield decoder.decompress(piece, _READ_BYTES)
    except _INFLATE_FAULTS as fault:
        raise UndecodableBody(f"The compressed body cannot be read: {fault}") from fault
    feed.give_back(len(decoder.unused_data))


def _zstd(body: bytes) -> Iterator[bytes]:
    if not body:
        raise UndecodableBody("The zstd body is empty")
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    try:
        with decoder.stream_reader(BytesIO(body + _END_FRAME), read_across_frames=True) as reader:
            while piece := reader.read(_READ_BYTES):
                yield piece
    except zstandard.ZstdError as fault:
        raise UndecodableBody(f"The zstd body cannot be read: {fault}") from fault


def _without_end_mark(clear: bytes, limit_bytes: int) -> bytes:
    if not clear.endswith(_END_MARK):
        raise UndecodableBody("The zstd body is cut off")
    if len(clear) - len(_END_MARK) > limit_bytes:
        raise _too_large(limit_bytes)
    return clear[: -len(_END_MARK)]


_CODECS: Final[dict[str, Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
