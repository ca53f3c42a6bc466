"""OpenTelemetry's attribute values as plain JSON values, the same from both encodings, types kept."""

from __future__ import annotations

from base64 import b64encode
from math import isfinite
from typing import Any


def bytes_value(raw: bytes) -> dict[str, str]:
    """Bytes, which JSON has no form for."""
    return {"base64": b64encode(raw).decode()}


def double_value(number: float) -> Any:
    """A double; NaN and the infinities, which JSON has no form for, are wrapped with their protobuf JSON names."""
    if isfinite(number):
        return number
    return {"double": "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"}  # noqa: PLR0124  # NaN alone differs from itself
