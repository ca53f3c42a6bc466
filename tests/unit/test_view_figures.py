"""Figures: valid for plotly, with the facts of their answers, and with nothing of a stranger's words taken as a command."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from crossrank.figures.bandwidth import bandwidth_figure
from crossrank.figures.breakdown import breakdown_figure
from crossrank.figures.clocks import clocks_figure
from crossrank.figures.compare import compare_figure
from crossrank.figures.heatmap import heatmap_figure
from crossrank.figures.palette import CATEGORY_COLORS, KIND_COLORS, palette
from crossrank.figures.steps import steps_figure
from crossrank.figures.wording import plain
from crossrank.model.kinds import KINDS

EVIL = "<script>alert(1)</script><a href='javascript:x'>%{x}</a>\n"
T0 = 1_780_000_000_123_456_789


def typed(values: np.ndarray) -> dict[str, str]:
    data = base64.b64encode(values.astype("<f4").tobytes()).decode()
    return {"dtype": "f4", "bdata": data, "shape": ", ".join(map(str, values.shape))}


def moved(by: str, what: str, change: int, *, real: bool) -> dict[str, Any]:
    return {
        "by": by,
        "what": what,
        "before_ns": 10**6,
        "after_ns": 10**6 + change,
        "change_ns": change,
        "band_ns": 5,
        "moved": real,
    }


ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "steps": (
        steps_figure,
        {
            "steps": [{"step": i, "duration_ns": 10**6 * (i + 1)} for i in range(5)],
            "findings": [{"class": "straggler", "ranks": [3], "steps": [1, 2, 99], "sentence": EVIL}],
        },
    ),
    "heatmap": (
        heatmap_figure,
        {
            "ranks": [0, 1],
            "steps": [4, 5, 6],
            "who": None,
            "z": typed(np.array([[0, 1e6, 0], [5e6, 9e6, np.nan]], dtype=np.float32)),
        },
    ),
    "breakdown": (breakdown_figure, {"by": "step", "keys": [1, 2], "mean_ns": {"compute": [10**6, 2 * 10**6], "wait": [5, 6]}}),
    "clocks": (
        clocks_figure,
        {
            "domains": [
                {
                    "clock": EVIL,
                    "knots": [{"t_ns": T0, "offset_ns": 5}, {"t_ns": T0 + 10**9, "offset_ns": 9}],
                    "clock_steps": [{"t_ns": T0 + 5, "size_ns": 10**6}],
                    "bound_lo_ns": -4000,
                    "bound_hi_ns": 5000,
                    "sigma_ns": 100.0,
                }
            ]
        },
    ),
    "compare": (
        compare_figure,
        {
            "step": moved("step", "", 1000, real=True),
            "parts": [moved("phase", EVIL, 900, real=True), moved("rank", "3", 5, real=False)],
        },
    ),
    "bandwidth": (
        bandwidth_figure,
        {"speeds": [{"group": EVIL, "op": "all_reduce", "ranks": [0, 1], "busbw_gbs": 5.0, "best_gbs": 9.0, "below": 0.5}]},
    ),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ANSWERS)
def test_plotly_takes_the_figure_and_no_word_is_a_command(name, theme):
    build, answer = ANSWERS[name]
    figure = build(answer, theme)
    go.Figure(data=figure["data"], layout=figure["layout"])
    text = json.dumps(figure)
    assert "<script" not in text
    assert "<a " not in text
    for trace in figure["data"]:
        assert "alert" not in trace.get("hovertemplate", "")  # where plotly looks for variables


@pytest.mark.parametrize("name", ANSWERS)
def test_nothing_to_draw_says_so(name):
    build, answer = ANSWERS[name]
    empty = {key: [] if isinstance(value, list) else value for key, value in answer.items()}
    figure = build(empty, "light")
    assert figure["data"] == []
    assert figure["layout"]["annotations"][0]["text"]


def test_heatmap_is_in_milliseconds_and_keeps_what_is_not_there():
    z = heatmap_figure(ANSWERS["heatmap"][1], "light")["data"][0]["z"]
    values = np.frombuffer(base64.b64decode(z["bdata"]), dtype="<f4").reshape(2, 3)
    np.testing.assert_allclose(values, [[0, 1, 0], [5, 9, np.nan]])


def test_marks_stand_only_on_steps_that_are_shown():
    figure = steps_figure(ANSWERS["steps"][1], "light")
    assert figure["data"][1]["x"] == [1, 2]
    assert figure["data"][1]["y"] == [2.0, 3.0]


def test_every_kind_and_category_has_its_colour():
    assert set(KIND_COLORS) == set(KINDS)
    assert {"compute", "wait", "transfer", "unknown"} <= CATEGORY_COLORS.keys()
    assert {"kinds", "light", "dark", "heat"} <= palette().keys()


def test_plain_text_is_cut_and_escaped():
    assert plain("a<b>&\u202e\n") == "a&lt;b&gt;&amp;  "
    assert len(plain("x" * 1000)) == 160
