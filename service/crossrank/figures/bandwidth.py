"""Bus bandwidth of groups and links, beside the best each has reached."""

from __future__ import annotations

from typing import Final

from crossrank.figures.frame import Answer, Figure, axis, figure, nothing
from crossrank.figures.palette import THEMES, Theme
from crossrank.figures.wording import plain

_ROWS: Final = 30


def bandwidth_figure(answer: Answer, theme: Theme) -> Figure:
    """answer: as in /bandwidth, those that fall short first."""
    rows = [r for r in answer["speeds"] if r["busbw_gbs"] is not None][:_ROWS][::-1]
    if not rows:
        return nothing(theme, "no sizes and transfer times are known")
    colors = THEMES[theme]
    labels = [plain(f"{r['op']} {r['group'] or ' → '.join(map(str, r['ranks']))}") for r in rows]
    common = {"type": "bar", "orientation": "h", "y": labels}
    best = {**common, "name": "best", "x": [r["best_gbs"] for r in rows], "marker": {"color": colors["grid"]}}
    usual = {
        **common,
        "name": "usual",
        "x": [r["busbw_gbs"] for r in rows],
        "marker": {"color": [colors["accent"] if r["below"] is None else colors["bad"] for r in rows]},
        "hovertemplate": "%{y}: %{x:.2f} GB/s<extra></extra>",
    }
    xaxis = axis(theme, "bus bandwidth (GB/s)", rangemode="tozero")
    return figure([best, usual], theme, barmode="overlay", xaxis=xaxis, yaxis=axis(theme, "", type="category"))
