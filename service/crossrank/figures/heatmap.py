"""Rank x step: how much too long each rank worked. The late rank is the hot row."""

from __future__ import annotations

import base64

import numpy as np

from crossrank.figures.frame import Answer, Figure, axis, figure, nothing
from crossrank.figures.palette import HEAT, Theme


def heatmap_figure(answer: Answer, theme: Theme) -> Figure:
    """answer: as in /heatmap."""
    if not answer["ranks"] or not answer["steps"]:
        return nothing(theme, "no steps yet")
    z = answer["z"]
    delay_ms = np.frombuffer(base64.b64decode(z["bdata"]), dtype="<f4") / np.float32(1e6)
    known = delay_ms[~np.isnan(delay_ms)]
    top = float(np.quantile(known, 0.999)) if len(known) else 0.0
    trace = {
        "type": "heatmap",
        "x": answer["steps"],
        "y": answer["ranks"],
        "z": {**z, "bdata": base64.b64encode(delay_ms.astype("<f4").tobytes()).decode()},
        "zmin": 0,
        "zmax": max(top, 1e-3),
        "colorscale": HEAT[theme],
        "colorbar": {"title": {"text": "ms", "side": "top"}, "thickness": 12, "outlinewidth": 0},
        "hovertemplate": f"rank %{{{'y' if answer['who'] is None else 'customdata'}}}, step %{{x}}: %{{z:.2f}} ms too long<extra></extra>",
        "hoverongaps": False,
    }
    if answer["who"] is not None:
        trace["customdata"] = answer["who"]
    return figure([trace], theme, xaxis=axis(theme, "step", showgrid=False), yaxis=axis(theme, "rank", showgrid=False))
