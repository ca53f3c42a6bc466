"""Colours that everything drawn shares: charts, timeline, notebooks.

One colour a kind of span, told apart by people with any common colour blindness: the eight of Okabe and Ito (2008, "Color Universal
Design"), with greys for what carries no work. A chart's theme only changes paper, text and lines, never what a colour means.
"""

from __future__ import annotations

from typing import Any, Final, Literal

Theme = Literal["light", "dark"]
KIND_COLORS: Final[dict[str, str]] = {
    "step": "#bbbbbb",
    "compute": "#0072b2",
    "collective": "#e69f00",
    "send": "#cc79a7",
    "recv": "#d55e00",
    "copy": "#56b4e9",
    "data": "#009e73",
    "checkpoint": "#b8a800",
    "sync": "#8f8fd0",
    "idle": "#9a9a9a",
    "metric": "#7f7f7f",
    "mark": "#5f5f5f",
    "other": "#8a6d5a",
}
CATEGORY_COLORS: Final[dict[str, str]] = {
    "compute": KIND_COLORS["compute"],
    "data": KIND_COLORS["data"],
    "checkpoint": KIND_COLORS["checkpoint"],
    "copy": KIND_COLORS["copy"],
    "other": KIND_COLORS["other"],
    "transfer": KIND_COLORS["collective"],
    "wait": KIND_COLORS["recv"],
    "sync": KIND_COLORS["sync"],
    "idle": KIND_COLORS["idle"],
    "unknown": "#d0d0d0",
}
LINE_COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a800", "#8f8fd0")
THEMES: Final[dict[Theme, dict[str, str]]] = {
    "light": {
        "background": "#ffffff",
        "text": "#1b1f24",
        "muted": "#59636e",
        "grid": "#e3e6ea",
        "accent": "#0072b2",
        "bad": "#d55e00",
    },
    "dark": {
        "background": "#14171b",
        "text": "#e6e9ed",
        "muted": "#9aa4af",
        "grid": "#2c3138",
        "accent": "#56b4e9",
        "bad": "#ff8c42",
    },
}
# From the theme's paper (no delay) to a colour that stands out on it; the lightness changes in one direction only.
HEAT: Final[dict[Theme, list[list[Any]]]] = {
    "light": [[0.0, "#fbfbfb"], [0.25, "#fde0b0"], [0.5, "#f5a44a"], [0.75, "#d55e00"], [1.0, "#6b2000"]],
    "dark": [[0.0, "#1a1d22"], [0.25, "#5a2c0a"], [0.5, "#b04e06"], [0.75, "#f08a24"], [1.0, "#ffe3a8"]],
}


def palette() -> dict[str, Any]:
    """GET /web/palette.json."""
    return {
        "kinds": KIND_COLORS,
        "categories": CATEGORY_COLORS,
        "lines": list(LINE_COLORS),
        "heat": HEAT,
        "light": THEMES["light"],
        "dark": THEMES["dark"],
    }
