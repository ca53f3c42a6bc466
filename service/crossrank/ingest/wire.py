"""The outer levels of the protobuf wire format: fields of a message as slices, without making an object of what they hold.

A message is a run of (tag, value); tag = field number << 3 | wire type. Only the levels that merely hold other messages are
walked here. That bounds memory: a body of empty spans is two bytes a span, and parsing it whole would make objects a hundred
times its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crossrank.errors import BodyTooLarge, UndecodableBody

_VARINT_BYTES: Final = 10
_SIZE_BYTES: Final = 5  # protobuf reads tags and lengths of at most five bytes
_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
DEPTH_MAX: Final = 100  # messages and groups within each other, the body itself not counted; protobuf's own limit


class Walk:
    """Walks messages inside one buffer; in all, at most `fields` fields, so that a body of tiny fields costs bounded time."""

    def __init__(self, buffer: bytes, fields: int) -> None:
        self.buffer = buffer
        self._left = fields

    def length_fields(self, start: int, end: int, depth: int) -> Iterator[tuple[int, int, int]]:
        """(field number, start, end) of every length-delimited field within buffer[start:end]; others are skipped.

        `depth`: how many messages this one is inside of. Raises UndecodableBody where the bytes are not a protobuf message,
        BodyTooLarge when the fields are used up.
        """
        buffer = self.buffer
        at = start
        groups: list[int] = []
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise BodyTooLarge("The protobuf body has too many fields")
            tag, at = _varint(buffer, at, end, _SIZE_BYTES)
            number, kind = tag >> 3, tag & 7
            if number == 0 or tag >= 1 << 32:
                raise UndecodableBody("The protobuf body has an impossible field number")
            if kind == _VARINT:
                _, at = _varint(buffer, at, end, _VARINT_BYTES)
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            elif kind == _LENGTH:
                size, at = _varint(buffer, at, end, _SIZE_BYTES)
                if size > end - at:
                    raise UndecodableBody("The protobuf body is cut off")
                if not groups:
                    yield number, at, at + size
                at += size
            elif kind == _GROUP and len(groups) < DEPTH_MAX - depth:
                groups.append(number)
            elif kind == _GROUP_END and groups and groups[-1] == number:
                groups.pop()
            else:
                raise UndecodableBody("The protobuf body has an impossible wire type")
        if at > end or groups:
            raise UndecodableBody("The protobuf body is cut off")


def within(message: bytes, *numbers: int) -> bytes:
    """The message as field numbers[-1] of a message that is field numbers[-2] of another, and so on outwards."""
    for number in reversed(numbers):
        size, header = len(message), bytearray([number << 3 | _LENGTH])
        while size > 0x7F:
            header.append(size & 0x7F | 0x80)
            size >>= 7
        header.append(size)
        message = bytes(header) + message
    return message


def _varint(buffer: bytes, at: int, end: int, most_bytes: int) -> tuple[int, int]:
    value = shift = 0
    for i in range(at, min(end, at + most_bytes)):
        byte = buffer[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, i + 1
        shift += 7
    raise UndecodableBody("The protobuf body has a broken varint")
