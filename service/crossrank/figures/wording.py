"""Text and numbers as figures show them.

plotly reads a few HTML-like tags in any text it is given, and names come from strangers: every text passes through `plain`.
"""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 160


def plain(text: str) -> str:
    """Text that plotly shows as it is, cut to a length that leaves room for the chart; control characters become spaces."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    shown = shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def ms(ns: float) -> float:
    """Nanoseconds in milliseconds."""
    return ns / 1e6
