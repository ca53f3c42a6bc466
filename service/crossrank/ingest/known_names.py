"""Attribute names that are really columns: how a flat attribute becomes a typed value, and when it does not.

A sender that can only attach attributes (OpenTelemetry, the seed form) says `crossrank.rank` or plain `rank`. A value that does not
fit its column (a text where an integer is due, a negative size) stays an attribute, so that nothing sent is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from crossrank.model.kinds import KIND_CODE

PREFIX: Final = "crossrank."
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_FLOAT_EXACT: Final = 2**53  # integers up to here are exact in a float64
_DECIMAL: Final = re.compile(r"[0-9]{1,19}")


def _integer(most: int) -> Callable[[Any], int | None]:
    """Integers 0..most; decimal text too, since environment variables (OTEL_RESOURCE_ATTRIBUTES) know nothing else."""

    def fit(value: Any) -> int | None:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = int(value)
        return value if type(value) is int and 0 <= value <= most else None

    return fit


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _kind(value: Any) -> str | None:
    return value if isinstance(value, str) and value.lower() in KIND_CODE else None


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    return float(value) if type(value) is int and abs(value) <= _FLOAT_EXACT else None


def _ranks(value: Any) -> list[int] | None:
    if not isinstance(value, list) or not value:
        return None
    return value if all(type(v) is int and 0 <= v <= INT32_MAX for v in value) else None


FIT: Final[dict[str, Callable[[Any], Any]]] = {
    "job": _text,
    "attempt": _integer(INT32_MAX),
    "rank": _integer(INT32_MAX),
    "host": _text,
    "clock": _text,
    "lane": _text,
    "kind": _kind,
    "step": _integer(INT64_MAX),
    "group": _text,
    "seq": _integer(INT64_MAX),
    "group_ranks": _ranks,
    "op": _text,
    "peer": _integer(INT32_MAX),
    "bytes": _integer(INT64_MAX),
    "dtype": _text,
    "is_async": _flag,
    "value": _number,
}
"""Column -> the value as its column holds it, or None when it does not fit."""
