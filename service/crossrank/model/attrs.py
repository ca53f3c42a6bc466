"""Attributes as canonical JSON text: keys sorted, no spaces, types kept, every part bounded.

The same attributes give the same text whatever format and key order they came in, so an exact duplicate is recognised by
comparing text. What JSON cannot say is wrapped: bytes as {"base64": "..."}, NaN and the infinities as {"double": "NaN"}.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import numpy as np

from crossrank.limits import Limits

_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_SHORTEST_ATTR_BYTES: Final = 5  # `"":1,`
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_OPENING: Final = np.frombuffer(b"[{", dtype=np.uint8)
_CLOSING: Final = np.frombuffer(b"]}", dtype=np.uint8)


class TooDeep(Exception):
    """Values nested deeper than `limits.json_depth`."""


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys and no spaces."""
    return _ENCODER.encode(value).decode()


def attrs_text(attrs: dict[str, Any], limits: Limits) -> tuple[str | None, bool]:
    """Canonical text of one event's attributes (None when there are none), and whether something was cut to fit the limits.

    Raises TooDeep.
    """
    if not attrs:
        return None, False
    try:
        text = _ENCODER.encode(attrs)
    except RecursionError:
        raise TooDeep from None
    if text.count(b"{") + text.count(b"[") > limits.json_depth and _depth_exceeds(text, limits.json_depth):
        raise TooDeep
    # No key or value can be longer than the whole, and so short a text holds few attributes: the usual case ends here.
    if len(text) <= min(limits.key_bytes, limits.value_bytes, _SHORTEST_ATTR_BYTES * limits.attrs_per_event):
        return text.decode(), False
    kept, cut = limited(attrs, limits)
    return (_ENCODER.encode(kept) if cut else text).decode(), cut


def limited(attrs: dict[str, Any], limits: Limits) -> tuple[dict[str, Any], bool]:
    """The attributes with at most `attrs_per_event` keys (first in sorted order), long keys and values cut."""
    cut = len(attrs) > limits.attrs_per_event
    kept: dict[str, Any] = {}
    for key in sorted(attrs)[: limits.attrs_per_event]:
        short_key, short_value = cut_text(key, limits.key_bytes), _cut_value(attrs[key], limits.value_bytes)
        cut = cut or short_key is not key or short_value is not attrs[key]
        kept[short_key] = short_value
    return kept, cut


def cut_text(text: str, limit_bytes: int) -> str:
    """The text itself when its UTF-8 form fits, else its longest prefix of whole characters that does."""
    if len(text) * 4 <= limit_bytes:
        return text
    encoded = text.encode()
    return text if len(encoded) <= limit_bytes else encoded[:limit_bytes].decode(errors="ignore")


def _cut_value(value: Any, limit_bytes: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, limit_bytes)
    if isinstance(value, (dict, list)):
        text = canonical_json(value)
        short = cut_text(text, limit_bytes)
        return value if short is text else short
    if isinstance(value, int) and value.bit_length() > limit_bytes * 3:
        return cut_text(str(value), limit_bytes)
    return value


def _depth_exceeds(text: bytes, limit: int) -> bool:
    """Whether brackets outside strings nest deeper than `limit`; vectorised, so hostile depth costs no more than any other."""
    code = np.frombuffer(_STRING.sub(b"", text), dtype=np.uint8)
    step = np.isin(code, _OPENING).astype(np.int32) - np.isin(code, _CLOSING).astype(np.int32)
    return bool(np.cumsum(step).max(initial=0) > limit)
