"""The outer levels of the protobuf wire format: fields of a message as slices, without making an object of what they hold.

A message is a run of (tag, value); tag = field number << 3 | wire type. Only the levels that merely hold other messages are
walked here. That bounds memory: a body of empty spans is two bytes a span, and parsing it whole would make objects a hundred
times its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from crossrank.errors import BodyTooLarge, UndecodableBody

_VARINT_BYTES = 10
_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_GROUPS_MAX = 64


class Walk:
    """Walks messages inside one buffer; in all, at most `fields` fields, so that a body of tiny fields costs bounded time."""

    def __init__(self, buffer: bytes, fields: int) -> None:
        self.buffer = buffer
        self._left = fields

    def length_fields(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(field number, start, end) of every length-delimited field within buffer[start:end]; others are skipped.

        Raises UndecodableBody where the bytes are not a protobuf message, BodyTooLarge when the fields are used up.
        """
        buffer = self.buffer
        at = start
        groups: list[int] = []
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise BodyTooLarge("The protobuf body has too many fields")
            tag, at = _varint(buffer, at, end)
            number, kind = tag >> 3, tag & 7
            if number == 0 or tag >= 1 << 32:
                raise UndecodableBody("The protobuf body has an impossible field number")
            if kind == _VARINT:
                _, at = _varint(buffer, at, end)
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            elif kind == _LENGTH:
                size, at = _varint(buffer, at, end)
                if size > end - at:
                    raise UndecodableBody("The protobuf body is cut off")
                if not groups:
                    yield number, at, at + size
                at += size
            elif kind == _GROUP and len(groups) < _GROUPS_MAX:
                groups.append(number)
            elif kind == _GROUP_END and groups and groups[-1] == number:
                groups.pop()
            else:
                raise UndecodableBody("The protobuf body has an impossible wire type")
        if at > end or groups:
            raise UndecodableBody("The protobuf body is cut off")


def _varint(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for i in range(at, min(end, at + _VARINT_BYTES)):
        byte = buffer[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, i + 1
        shift += 7
    raise UndecodableBody("The protobuf body has a broken varint")
