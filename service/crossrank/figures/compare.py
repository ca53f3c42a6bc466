"""What moved between two ranges or jobs, with the noise band of each change: a bar within its band is noise."""

from __future__ import annotations

from typing import Final

from crossrank.figures.frame import Answer, Figure, axis, figure, nothing
from crossrank.figures.palette import THEMES, Theme
from crossrank.figures.wording import ms, plain

_PARTS: Final = 20


def compare_figure(answer: Answer, theme: Theme) -> Figure:
    """answer: as in /compare."""
    parts = sorted(answer["parts"], key=lambda p: -abs(p["change_ns"]))[:_PARTS]
    if not parts:
        return nothing(theme, "nothing to compare")
    parts = [answer["step"], *parts][::-1]
    colors = THEMES[theme]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [ms(p["change_ns"]) for p in parts],
        "y": [plain("the step" if p["by"] == "step" else f"{p['by']} {p['what']}") for p in parts],
        "error_x": {"type": "data", "array": [ms(p["band_ns"] or 0) for p in parts], "color": colors["muted"], "thickness": 1},
        "marker": {"color": [colors["bad"] if p["moved"] else colors["muted"] for p in parts]},
        "customdata": [[ms(p["before_ns"]), ms(p["after_ns"])] for p in parts],
        "hovertemplate": "%{y}: %{customdata[0]:.2f} → %{customdata[1]:.2f} ms<extra></extra>",
    }
    return figure([bars], theme, xaxis=axis(theme, "change per step (ms)"), yaxis=axis(theme, "", type="category"), bargap=0.25)
