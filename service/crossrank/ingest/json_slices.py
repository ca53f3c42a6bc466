"""The outer levels of a JSON body as slices of it, so that what they hold is parsed piece by piece.

A slice is a `msgspec.Raw`: checked to be balanced JSON, not yet parsed. Objects are read through structures with the few fields
that matter; all others are skipped without being kept.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
import numpy as np
from numba import njit

from crossrank.errors import BodyTooLarge, UndecodableBody

ABSENT: Final = msgspec.Raw(b"")
_COMMAS_MAX: Final = (
    6_000_000  # a slice costs 72 bytes; 64 MiB of real events have some 3 million commas, of bare numbers 32 million
)
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NULL: Final = b"null"
_T = TypeVar("_T", bound=msgspec.Struct)


class Nothing(msgspec.Struct):
    """An object of which no field matters."""


def is_object(data: bytes) -> bool:
    """Whether the bytes are one complete JSON object."""
    try:
        msgspec.json.decode(data, type=Nothing)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def fields(data: bytes | msgspec.Raw, kind: type[_T], what: str) -> _T:
    """The fields of an object that `kind` declares. Raises UndecodableBody naming `what`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as fault:
        raise UndecodableBody(f"{what} cannot be read: {fault}") from fault


def is_too_long_a_list(data: bytes | msgspec.Raw) -> bool:
    """Whether a body may hold so many values that slices of them would take too much memory."""
    view = memoryview(data)
    return len(view) > _COMMAS_MAX and _commas(np.frombuffer(view, np.uint8)) > _COMMAS_MAX


@njit(cache=True, nogil=True)
def _commas(buf: np.ndarray) -> int:
    found = 0
    for byte in buf:
        found += byte == 44
    return found


def elements(data: bytes | msgspec.Raw, what: str) -> list[msgspec.Raw]:
    """The elements of an array; none when it is absent or null. Raises UndecodableBody naming `what`, BodyTooLarge."""
    if len(memoryview(data)) <= len(_NULL) and bytes(data) in (b"", _NULL):
        return []
    if is_too_long_a_list(data):
        raise BodyTooLarge(f"{what} holds too many values; send it in parts")
    try:
        return _ELEMENTS.decode(memoryview(data))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as fault:
        raise UndecodableBody(f"{what} cannot be read: {fault}") from fault
