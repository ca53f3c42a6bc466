"""Clocks against the reference: the offset of every host over time, clock steps, and how sure each is.

The upper panel draws the fitted offset, the lower one its guaranteed bounds: these are thousands of times smaller, so one scale
would hide them.
"""

from __future__ import annotations

from typing import Final

from crossrank.figures.frame import Answer, Figure, axis, figure, nothing
from crossrank.figures.palette import LINE_COLORS, THEMES, Theme
from crossrank.figures.wording import ms, plain

_CLOCKS: Final = 64  # the worst ones are drawn
_UNRELATED_NS: Final = 2**60  # a bound beyond it says that nothing relates the clock


def clocks_figure(answer: Answer, theme: Theme) -> Figure:
    """answer: as in /clocks."""
    clocks = [d for d in answer["domains"] if d["knots"]]
    if not clocks:
        return nothing(theme, "no clocks yet")
    drawn = sorted(clocks, key=lambda d: -max(abs(knot["offset_ns"]) for knot in d["knots"]))[:_CLOCKS]
    begin = min(knot["t_ns"] for d in drawn for knot in d["knots"])
    data = []
    for place, clock in enumerate(drawn):
        color = LINE_COLORS[place % len(LINE_COLORS)]
        name = plain(clock["clock"])
        data.append(
            {
                "type": "scatter",
                "mode": "lines" if len(clock["knots"]) > 1 else "markers",
                "name": name,
                "x": [(knot["t_ns"] - begin) / 1e9 for knot in clock["knots"]],
                "y": [ms(knot["offset_ns"]) for knot in clock["knots"]],
                "line": {"color": color, "width": 1.5},
                "hovertemplate": "%{fullData.name}<br>%{x:.2f} s: %{y:.4f} ms<extra></extra>",
            }
        )
        if clock["clock_steps"]:
            data.append(_jumps(clock, begin, name, theme))
    title = f"the {len(drawn)} clocks furthest off, of {len(clocks)}" if len(drawn) < len(clocks) else ""
    return figure(
        [*data, _bounds(drawn, theme)],
        theme,
        title=title,
        xaxis=axis(theme, "time of the job (s)", domain=[0, 1], anchor="y"),
        yaxis=axis(theme, "offset to the reference (ms)", domain=[0.46, 1]),
        xaxis2=axis(theme, "clock", domain=[0, 1], anchor="y2", type="category"),
        yaxis2=axis(theme, "bound (µs)", domain=[0, 0.28], anchor="x2"),
        showlegend=len(drawn) <= 12,
    )


def _jumps(clock: Answer, begin: int, name: str, theme: Theme) -> Answer:
    jumps = clock["clock_steps"]
    knots = clock["knots"]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}: clock step",
        "x": [(jump["t_ns"] - begin) / 1e9 for jump in jumps],
        "y": [ms(min(knots, key=lambda k, t=jump["t_ns"]: abs(k["t_ns"] - t))["offset_ns"]) for jump in jumps],  # type: ignore[misc]
        "customdata": [ms(jump["size_ns"]) for jump in jumps],
        "marker": {"symbol": "x", "size": 9, "color": THEMES[theme]["bad"]},
        "hovertemplate": "%{fullData.name} of %{customdata:.3f} ms<extra></extra>",
    }


def _bounds(clocks: list[Answer], theme: Theme) -> Answer:
    related = [c for c in clocks if max(-c["bound_lo_ns"], c["bound_hi_ns"]) < _UNRELATED_NS]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "guaranteed bounds",
        "xaxis": "x2",
        "yaxis": "y2",
        "x": [plain(c["clock"]) for c in related],
        "y": [0 for _ in related],
        "customdata": [c["sigma_ns"] / 1e3 for c in related],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [c["bound_hi_ns"] / 1e3 for c in related],
            "arrayminus": [-c["bound_lo_ns"] / 1e3 for c in related],
            "color": THEMES[theme]["accent"],
            "thickness": 1.5,
            "width": 3,
        },
        "marker": {"size": 4, "color": THEMES[theme]["accent"]},
        "hovertemplate": "%{x}: sigma %{customdata:.2f} µs<extra></extra>",
        "showlegend": False,
    }
