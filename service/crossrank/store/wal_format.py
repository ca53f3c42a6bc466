"""The bytes of a write-ahead log file: how a record is written, and how a damaged file is read as far as it can be.

A file starts with its header twice (a single flipped bit leaves one copy), then records back to back:

    record = magic(4) meta_length(u32) body_length(u32) payload_crc(u32) header_crc(u32) meta body

`meta` is a small JSON object (route, content type and encoding, job, time of receipt), `body` the request exactly as received.
`payload_crc` is CRC-32C over meta + body. `header_crc` covers the file's random salt, the record's own offset and the fields
before it; so a length can be trusted before it is followed, and a body that itself contains log bytes (anyone may post such a
body) can never be taken for a record when the reader looks for the next one after damage.

Reading after damage: search the next magic whose header CRC and payload CRC hold. A bad stretch with a good record behind it is
damage; a bad stretch at the very end of the newest file is a torn tail, i.e. a write that was never acknowledged.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c
import msgspec

from crossrank.errors import StoreUnavailable
from crossrank.model.post import Post

WAL_FORMAT: Final = 1
_FILE_MAGIC: Final = b"CRWAL\r\n\0"
_FILE_HEADER: Final = struct.Struct("<8sIQ8x")  # magic, format, salt
_CRC: Final = struct.Struct("<I")
_COPY_BYTES: Final = _FILE_HEADER.size + _CRC.size
HEADER_BYTES: Final = 2 * _COPY_BYTES
_RECORD_MAGIC: Final = b"\xc5REC"
_RECORD_FIELDS: Final = struct.Struct("<4sIII")  # magic, meta length, body length, payload crc
_RECORD_HEADER_BYTES: Final = _RECORD_FIELDS.size + _CRC.size
_BOUND: Final = struct.Struct("<QQ")  # salt and offset, bound into every header checksum


class _Meta(msgspec.Struct):
    """What stands before the body in a record."""

    route: str
    content_type: str
    content_encoding: str
    job: str | None
    received_ns: int
    only_job: str | None = None
    parameters: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Logged:
    """A record that is whole."""

    post: Post
    end: int  # offset behind it


@dataclass(frozen=True, slots=True)
class Damaged:
    """A stretch [start, end) that cannot be read. `at_end`: nothing readable follows."""

    start: int
    end: int
    at_end: bool


Found = Logged | Damaged


def file_header(salt: int) -> bytes:
    """The first HEADER_BYTES of a new file."""
    fields = _FILE_HEADER.pack(_FILE_MAGIC, WAL_FORMAT, salt)
    return 2 * (fields + _CRC.pack(google_crc32c.value(fields)))


def read_salt(head: bytes, name: str) -> int | None:
    """The salt in a file's header; None when both copies are unreadable. Raises StoreUnavailable for a newer format."""
    for copy in (head[:_COPY_BYTES], head[_COPY_BYTES:HEADER_BYTES]):
        if len(copy) < _COPY_BYTES or _CRC.unpack_from(copy, _FILE_HEADER.size)[0] != google_crc32c.value(copy[: -_CRC.size]):
            continue
        magic, version, salt = _FILE_HEADER.unpack_from(copy)
        if magic == _FILE_MAGIC and version > WAL_FORMAT:
            raise StoreUnavailable(
                f"{name} has log format {version}, this release reads up to {WAL_FORMAT}; use a newer crossrank. Nothing was changed.",
                format=version,
            )
        if magic == _FILE_MAGIC:
            return int(salt)
    return None


def record_parts(post: Post) -> tuple[bytes, int]:
    """The encoded meta of a post and the size of its whole record in bytes."""
    meta = msgspec.json.encode(
        _Meta(
            post.route, post.content_type, post.content_encoding, post.job, post.received_ns, post.only_job, dict(post.parameters)
        )
    )
    return meta, _RECORD_HEADER_BYTES + len(meta) + len(post.body)


def record_header(meta: bytes, body: bytes, *, salt: int, offset: int) -> bytes:
    """The header of a record that will stand at `offset` of the file with this salt."""
    payload_crc = google_crc32c.extend(google_crc32c.value(meta), body)
    fields = _RECORD_FIELDS.pack(_RECORD_MAGIC, len(meta), len(body), payload_crc)
    return fields + _CRC.pack(_header_crc(fields, salt, offset))


def scan(data: mmap.mmap | bytes, salt: int, start: int = HEADER_BYTES) -> Iterator[Found]:
    """All records of a file in order, with the stretches between them that cannot be read."""
    at, size = start, len(data)
    while at < size:
        record = _record_at(data, salt, at)
        if record is not None:
            yield record
            at = record.end
            continue
        next_at = _next_record(data, salt, at + 1)
        yield Damaged(at, next_at, at_end=next_at == size)
        at = next_at


def _header_crc(fields: bytes, salt: int, offset: int) -> int:
    return int(google_crc32c.extend(google_crc32c.value(_BOUND.pack(salt, offset)), fields))


def _record_at(data: mmap.mmap | bytes, salt: int, at: int) -> Logged | None:
    head = bytes(data[at : at + _RECORD_HEADER_BYTES])
    if len(head) < _RECORD_HEADER_BYTES or not head.startswith(_RECORD_MAGIC):
        return None
    fields = head[: _RECORD_FIELDS.size]
    if _CRC.unpack_from(head, _RECORD_FIELDS.size)[0] != _header_crc(fields, salt, at):
        return None
    _, meta_length, body_length, payload_crc = _RECORD_FIELDS.unpack(fields)
    body_at = at + _RECORD_HEADER_BYTES + meta_length
    end = body_at + body_length
    if end > len(data):
        return None
    meta, body = bytes(data[at + _RECORD_HEADER_BYTES : body_at]), bytes(data[body_at:end])
    if google_crc32c.extend(google_crc32c.value(meta), body) != payload_crc:
        return None
    m = msgspec.json.decode(meta, type=_Meta)
    return Logged(Post(m.route, m.content_type, m.content_encoding, m.job, m.received_ns, body, m.only_job, m.parameters), end)


def _next_record(data: mmap.mmap | bytes, salt: int, at: int) -> int:
    """Offset of the next whole record at or behind `at`, else the size of the file."""
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        if _record_at(data, salt, at) is not None:
            return at
        at += 1
    return len(data)
