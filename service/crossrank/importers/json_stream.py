"""One large JSON object read as a stream: small fields whole, one huge array in pieces of complete elements.

A trace is an object whose `traceEvents` may be gigabytes long, with fields before and behind it. Finding where an element ends
needs no parsing, only counting of brackets outside strings; a compiled loop does that far faster than the parser that follows.
So memory holds one piece of the text at a time, whatever the size of the file. A file that stops in the middle (a crashed job)
yields its complete elements and is marked `truncated`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numba import njit

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.importers.plain_bytes import PlainBytes
from crossrank.model.arrays import BoolArray

PIECE_BYTES: Final = 4 << 20
ELEMENT_BYTES: Final = 64 << 20  # one field or element must be held at once
_KEY: Final = re.compile(rb'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
_END: Final = re.compile(rb"[\s,]*}")
_SPACE: Final = b" \t\r\n"
_QUOTE, _BACKSLASH, _COMMA, _OPEN_LIST, _CLOSE_LIST, _OPEN_MAP, _CLOSE_MAP = (ord(c) for c in '"\\,[]{}')
_NUMBER_WORD: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\b(?:nan|inf|NaN|Infinity|infinity)\b')


@njit(cache=True, nogil=True)
def _scan(text: np.ndarray, at: int, *, stop_at_comma: bool) -> tuple[int, int]:
    """(place of a comma at depth 0: the first or the last, place where the enclosing bracket closes); -1 where there is none."""
    depth = 0
    comma = -1
    i = at
    n = len(text)
    while i < n:
        c = text[i]
        if c == _QUOTE:
            i += 1
            while i < n and text[i] != _QUOTE:
                if text[i] == _BACKSLASH:
                    i += 1
                i += 1
        elif c in (_OPEN_LIST, _OPEN_MAP):
            depth += 1
        elif c in (_CLOSE_LIST, _CLOSE_MAP):
            if depth == 0:
                return comma, i
            depth -= 1
        elif c == _COMMA and depth == 0:
            comma = i
            if stop_at_comma:
                return comma, -1
        i += 1
    return comma, -1


def scan(text: bytes, at: int, *, stop_at_comma: bool) -> tuple[int, int]:
    """See `_scan`; text as bytes."""
    comma, closed = _scan(np.frombuffer(text, dtype=np.uint8), at, stop_at_comma=stop_at_comma)
    return int(comma), int(closed)


class JsonStream:
    """Walks the top level of a file. `fields` fills while `pieces` is iterated, and is complete at its end."""

    def __init__(self, plain: PlainBytes, array: str, keep: frozenset[str], limit_bytes: int) -> None:
        """array: the field that is given out in pieces. keep: the other fields that are wanted."""
        self.fields: dict[str, bytes] = {}
        self.truncated = False
        self.found_array = False
        self._plain = plain
        self._array, self._keep = array, keep
        self._limit_bytes = limit_bytes
        self._read_bytes = 0
        self._text = b""
        self._at = 0  # what is before it in the text was used

    def pieces(self) -> Iterator[bytes]:
        """The elements of the array, comma-separated, some at a time. A file that is an array itself counts as that array.

        Raises UndecodableBody when this is no JSON object at all, BodyTooLarge beyond the limit.
        """
        self._more()
        self._text = self._text.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE)
        if self._text[:1] not in (b"[", b"{"):
            raise UndecodableBody("The file is neither a JSON object nor an array")
        self._at = 1
        if self._text[:1] == b"[":
            yield from self._elements()
            return
        while (key := self._next_key()) is not None:
            if key == self._array and self._text[self._at : self._at + 1] == b"[":
                self._at += 1
                yield from self._elements()
            elif not self._field(key):
                break

    def _more(self) -> bool:
        piece = self._plain.read(PIECE_BYTES)
        self._read_bytes += len(piece)
        if self._read_bytes > self._limit_bytes:
            raise BodyTooLarge(
                f"The file is larger than {self._limit_bytes} bytes in clear; `crossrank import` sends it in parts",
                limit_bytes=self._limit_bytes,
            )
        if len(self._text) - self._at > ELEMENT_BYTES:
            raise BodyTooLarge(f"One element of the file is larger than {ELEMENT_BYTES} bytes", limit_bytes=ELEMENT_BYTES)
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def _next_key(self) -> str | None:
        """The key before the next value, where reading then stands; None at the end of the object or of the file."""
        while True:
            found = _KEY.match(self._text, self._at)
            if found is not None and found.end() < len(self._text):
                self._at = found.end()
                try:
                    return str(msgspec.json.decode(found[1]))
                except (msgspec.DecodeError, UnicodeError):
                    return found[1].decode("utf-8", "replace")
            if _END.match(self._text, self._at):
                return None
            if found is None and len(self._text) - self._at > PIECE_BYTES:
                raise UndecodableBody("The file is not a JSON object")
            if not self._more():
                self.truncated = True
                return None

    def _field(self, key: str) -> bool:
        """Keeps a value that is not the array; false when the file ends in it."""
        while True:
            comma, closed = scan(self._text, self._at, stop_at_comma=True)
            end = comma if comma >= 0 else closed
            if end >= 0:
                if key in self._keep:
                    self.fields[key] = self._text[self._at : end]
                self._at = end
                return True
            if not self._more():
                self.truncated = True
                return False

    def _elements(self) -> Iterator[bytes]:
        self.found_array = True
        while True:
            comma, closed = scan(self._text, self._at, stop_at_comma=False)
            end = closed if closed >= 0 else comma
            if end >= 0:
                piece = self._text[self._at : end]
                self._at = end + 1
                if piece.strip(_SPACE):
                    yield piece
            if closed >= 0:
                return
            if not self._more():
                self.truncated = True
                return


def elements(piece: bytes) -> Iterator[bytes]:
    """The single elements of a piece."""
    at = 0
    while at < len(piece):
        comma, _ = scan(piece, at, stop_at_comma=True)
        end = comma if comma >= 0 else len(piece)
        if piece[at:end].strip(_SPACE):
            yield piece[at:end]
        at = end + 1


def without_number_words(text: bytes) -> tuple[bytes, int]:
    """The text with bare `nan`, `inf` and the like, which are not JSON, as null; and how many there were."""
    replaced = 0

    def null(found: re.Match[bytes]) -> bytes:
        nonlocal replaced
        if found[0][:1] == b'"':
            return found[0]
        replaced += 1
        return b"null"

    return _NUMBER_WORD.sub(null, text), replaced


@njit(cache=True, nogil=True)
def _parse_thousandths(text: np.ndarray, out: np.ndarray, good: np.ndarray) -> None:
    """Newline-separated decimal numbers times 1000, exactly; digits beyond the third are rounded half up.

    good[k] is false where a token is no plain decimal number or does not fit.
    """
    k = 0
    i = 0
    n = len(text)
    most = (np.int64(1) << 62) // 10_000
    while k < len(out):
        negative = i < n and text[i] == 45
        if negative:
            i += 1
        value = np.int64(0)
        digits = 0
        fraction = -1
        ok = True
        round_up = 0
        while i < n and text[i] != 10:
            c = text[i]
            if 48 <= c <= 57:
                digits += 1
                if fraction < 3:
                    if value > most:
                        ok = False
                    if ok:
                        value = value * 10 + (c - 48)
                    if fraction >= 0:
                        fraction += 1
                elif fraction == 3:
                    round_up = 1 if c >= 53 else 0
                    fraction += 1
            elif c == 46 and fraction < 0:
                fraction = 0
            else:
                ok = False
            i += 1
        for _ in range(3 - min(max(fraction, 0), 3)):
            if value > most:
                ok = False
            value *= 10
        out[k] = -(value + round_up) if negative else value + round_up
        good[k] = ok and digits > 0
        k += 1
        i += 1


def thousandths(tokens: list[msgspec.Raw]) -> tuple[np.ndarray, BoolArray]:
    """JSON numbers times 1000 as exact int64 (microseconds with three decimals to nanoseconds), and which are numbers at all."""
    text = np.frombuffer(b"\n".join(tokens), dtype=np.uint8)
    out = np.zeros(len(tokens), dtype=np.int64)
    good = np.zeros(len(tokens), dtype=np.bool_)
    _parse_thousandths(text, out, good)
    for i in np.flatnonzero(~good).tolist():  # rare: an exponent, or a number in quotes
        exact = _thousandths_slowly(bytes(tokens[i]))
        if exact is not None:
            out[i], good[i] = exact, True
    return out, good


def _thousandths_slowly(token: bytes) -> int | None:
    from decimal import Decimal, InvalidOperation, Overflow  # noqa: PLC0415 -- only odd files need it

    try:
        value = Decimal(token.decode().strip().strip('"'))
        if not value.is_finite() or value.adjusted() > 18:
            return None
        exact = int((value * 1000).to_integral_value())
    except (InvalidOperation, Overflow, UnicodeError):
        return None
    return exact if abs(exact) < 2**63 else None
