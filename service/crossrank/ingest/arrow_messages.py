"""A look at the messages of an Arrow IPC stream before Arrow reads it, for buffers that claim to be compressed.

Arrow allocates whatever length a compressed buffer claims to have, so a few bytes can ask for terabytes. A message is
`FFFFFFFF, int32 metadata length, metadata, body`; the metadata is a flatbuffer `Message {version, header type, header, body
length}`, and a record batch header has `compression` as its fourth field (format: Message.fbs of Apache Arrow).
"""

from __future__ import annotations

import struct
from typing import Final

from crossrank.errors import UndecodableBody

_CONTINUATION: Final = b"\xff\xff\xff\xff"
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of Message
_DICTIONARY, _BATCH = 2, 3  # header types
_COMPRESSION: Final = 3  # field of RecordBatch
_DICTIONARY_DATA: Final = 1  # field of DictionaryBatch: its RecordBatch


def refuse_compressed(body: bytes) -> None:
    """Raises UndecodableBody when a buffer of the stream is compressed or its messages do not follow one another."""
    at = 0
    try:
        while at < len(body):
            at += 4 if body[at : at + 4] == _CONTINUATION else 0
            (size,) = struct.unpack_from("<i", body, at)
            at += 4
            if size == 0:
                return
            if size < 0 or at + size > len(body):
                raise UndecodableBody("The Arrow stream is cut off")
            length = _checked_body_length(body[at : at + size])
            at += size + length
    except struct.error as fault:
        raise UndecodableBody("The Arrow stream is cut off or its metadata is damaged") from fault


def _checked_body_length(metadata: bytes) -> int:
    (root,) = struct.unpack_from("<I", metadata, 0)
    kind_at, header_at, length_at = (_field(metadata, root, number) for number in (_HEADER_TYPE, _HEADER, _BODY_LENGTH))
    kind = metadata[kind_at] if kind_at is not None and kind_at < len(metadata) else 0
    (length,) = struct.unpack_from("<q", metadata, length_at) if length_at is not None else (0,)
    if length < 0:
        raise UndecodableBody("The Arrow stream has a message of negative length")
    batch = _table(metadata, header_at) if kind in (_DICTIONARY, _BATCH) else None
    if kind == _DICTIONARY and batch is not None:
        batch = _table(metadata, _field(metadata, batch, _DICTIONARY_DATA))
    if batch is not None and _field(metadata, batch, _COMPRESSION) is not None:
        raise UndecodableBody("Compressed Arrow buffers are not accepted; compress the body with Content-Encoding instead")
    return length


def _table(metadata: bytes, at: int | None) -> int | None:
    """Where the table is that the offset at `at` points to."""
    return None if at is None else at + struct.unpack_from("<I", metadata, at)[0]


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffer table is, None when it is not set."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error
    (size,) = struct.unpack_from("<H", metadata, vtable)
    slot = 4 + 2 * number
    if slot + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, vtable + slot)
    return table + offset if offset else None
