"""What the ranks did with their time: stacked parts that add up to the step."""

from __future__ import annotations

from crossrank.figures.frame import Answer, Figure, axis, figure, nothing
from crossrank.figures.palette import CATEGORY_COLORS, Theme
from crossrank.figures.wording import ms


def breakdown_figure(answer: Answer, theme: Theme) -> Figure:
    """answer: `by`, `keys` and `mean_ns` by category."""
    if not answer["keys"]:
        return nothing(theme, "no steps yet")
    by = answer["by"]
    bars = [
        {
            "type": "bar",
            "name": category,
            "x": answer["keys"],
            "y": [ms(ns) for ns in values],
            "marker": {"color": CATEGORY_COLORS[category], "line": {"width": 0}},
            "hovertemplate": f"{by} %{{x}}: {category} %{{y:.2f}} ms<extra></extra>",
        }
        for category, values in answer["mean_ns"].items()
    ]
    return figure(
        bars,
        theme,
        barmode="stack",
        bargap=0.1 if len(answer["keys"]) <= 64 else 0,
        xaxis=axis(theme, by),
        yaxis=axis(theme, "mean time of a rank (ms)" if by == "step" else "mean time of a step (ms)"),
    )
