"""JSON objects one after the other: a line each, over several lines, or in an array; for files that fit in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from typing import Any, Final

_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None)  # bare NaN and Infinity are null
_BETWEEN: Final = " \t\r\n,[]\x00"


def json_objects(data: bytes) -> Iterator[Any | None]:
    """Every value of the file; None for one that cannot be read, after which the next line is tried."""
    text = data.decode("utf-8", "replace").removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    at = 0
    while (at := _skip(text, at)) < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (JSONDecodeError, RecursionError, ValueError):
            newline = text.find("\n", at)
            at = len(text) if newline < 0 else newline
            yield None
        else:
            yield value


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BETWEEN:
        at += 1
    return at
