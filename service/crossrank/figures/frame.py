"""What all figures have in common: paper, lines and letters of a theme, and the envelope they come in.

A figure is a plain dictionary as plotly describes it, `{data, layout, config}`: the page gives it to plotly.js, a notebook makes a
`plotly.graph_objects.Figure` of it.
"""

from __future__ import annotations

from typing import Any

from crossrank.figures.palette import LINE_COLORS, THEMES, Theme

Answer = dict[str, Any]
Figure = dict[str, Any]


def figure(data: list[dict[str, Any]], theme: Theme, *, title: str = "", **layout: Any) -> Figure:
    """A figure in a theme; `layout` adds to what all have or replaces it."""
    colors = THEMES[theme]
    base = {
        "title": {"text": title, "font": {"size": 14}, "x": 0, "xanchor": "left", "xref": "paper"},
        "paper_bgcolor": colors["background"],
        "plot_bgcolor": colors["background"],
        "font": {"color": colors["text"], "size": 12, "family": "system-ui, sans-serif"},
        "colorway": list(LINE_COLORS),
        "margin": {"l": 64, "r": 16, "t": 36 if title else 12, "b": 44},
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1.0, "xanchor": "right"},
    }
    return {"data": data, "layout": {**base, **layout}, "config": {"displaylogo": False, "responsive": True}}


def axis(theme: Theme, title: str, **options: Any) -> dict[str, Any]:
    """An axis with its title; the unit belongs into it."""
    colors = THEMES[theme]
    return {
        "title": {"text": title},
        "gridcolor": colors["grid"],
        "linecolor": colors["grid"],
        "zerolinecolor": colors["grid"],
        "automargin": True,
        **options,
    }


def nothing(theme: Theme, why: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    note = {"text": why, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    return figure([], theme, annotations=[note], xaxis={"visible": False}, yaxis={"visible": False})
