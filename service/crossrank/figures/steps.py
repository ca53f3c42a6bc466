"""Duration of every step, with the steps of the most expensive findings marked.

Words of strangers go into `text`, never into a template, in which plotly would look for variables.
"""

from __future__ import annotations

from typing import Final

from crossrank.figures.frame import Answer, Figure, axis, figure, nothing
from crossrank.figures.palette import LINE_COLORS, THEMES, Theme
from crossrank.figures.wording import ms, plain

_FINDINGS: Final = 5
_SYMBOLS: Final = ("diamond", "square", "triangle-up", "x", "cross")


def steps_figure(answer: Answer, theme: Theme) -> Figure:
    """answer: `steps` as in /steps and `findings` as in /bottlenecks."""
    rows = answer["steps"]
    if not rows:
        return nothing(theme, "no steps yet")
    number = [row["step"] for row in rows]
    took = {row["step"]: ms(row["duration_ns"]) for row in rows}
    line = {
        "type": "scatter",
        "mode": "lines+markers" if len(rows) <= 200 else "lines",
        "name": "step",
        "x": number,
        "y": list(took.values()),
        "line": {"color": THEMES[theme]["accent"], "width": 1.5},
        "marker": {"size": 4},
        "hovertemplate": "step %{x}: %{y:.2f} ms<extra></extra>",
    }
    marks = []
    for place, finding in enumerate(answer["findings"][:_FINDINGS]):
        at = [step for step in finding["steps"] if step in took]
        if at:
            color = LINE_COLORS[(place + 1) % len(LINE_COLORS)]
            marks.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": plain(_label(finding)),
                    "x": at,
                    "y": [took[step] for step in at],
                    "marker": {"size": 7, "color": color, "symbol": _SYMBOLS[place]},
                    "text": plain(finding["sentence"]),
                    "hovertemplate": "step %{x}: %{text}<extra></extra>",
                    "meta": {"finding": place},
                }
            )
    return figure(
        [line, *marks],
        theme,
        xaxis=axis(theme, "step"),
        yaxis=axis(theme, "step time (ms)", rangemode="tozero"),
        showlegend=bool(marks),
    )


def _label(finding: Answer) -> str:
    ranks = finding["ranks"]
    where = f" rank {ranks[0]}" if len(ranks) == 1 else f" {len(ranks)} ranks" if ranks else ""
    return str(finding["class"]).replace("_", " ") + where
