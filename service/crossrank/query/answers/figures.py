"""Figures of a job: the answer a figure draws, given to its one builder. The page and the notebook get the very same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from crossrank.errors import NotFound
from crossrank.figures.bandwidth import bandwidth_figure
from crossrank.figures.breakdown import breakdown_figure
from crossrank.figures.clocks import clocks_figure
from crossrank.figures.compare import compare_figure
from crossrank.figures.heatmap import heatmap_figure
from crossrank.figures.palette import Theme
from crossrank.figures.steps import steps_figure
from crossrank.query.answers.bandwidth import bandwidth
from crossrank.query.answers.bottlenecks import finding_answer
from crossrank.query.answers.breakdown_means import By, breakdown_means
from crossrank.query.answers.clocks import clocks
from crossrank.query.answers.compare import StepRange, comparison
from crossrank.query.answers.hangs import hang_findings
from crossrank.query.answers.heatmap import heatmap
from crossrank.query.answers.steps import steps
from crossrank.query.jobview import JobView

FigureName = Literal["steps", "heatmap", "breakdown", "clocks", "compare", "bandwidth"]
_SPEEDS: Final = 1000
_PARTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """What of the job is drawn, and how. rows, columns: most of them."""

    first: int | None
    last: int | None
    theme: Theme
    rows: int
    columns: int
    by: By
    base: JobView
    base_range: StepRange


def figure_of(view: JobView, name: FigureName, asked: Asked) -> dict[str, Any]:
    """GET /v1/jobs/{job}/figures/{name}: {data, layout, config} as plotly reads it. Raises NotFound for another name."""
    if name not in _ANSWERS:
        raise NotFound(f"there is no figure {str(name)[:60]!r}; figures are {', '.join(_ANSWERS)}", field="name")
    answer, build = _ANSWERS[name]
    return build(answer(view, asked), asked.theme)


def _steps(view: JobView, asked: Asked) -> dict[str, Any]:
    found = (*hang_findings(view), *view.derived.findings)
    answer = steps(view, first=asked.first, last=asked.last, limit=asked.columns)
    return {**answer, "findings": [finding_answer(view.snapshot.job, f) for f in found]}


def _heatmap(view: JobView, asked: Asked) -> dict[str, Any]:
    return heatmap(view, first=asked.first, last=asked.last, rows=asked.rows, columns=asked.columns)


def _breakdown(view: JobView, asked: Asked) -> dict[str, Any]:
    return breakdown_means(view, by=asked.by, first=asked.first, last=asked.last, most=min(asked.columns, 500))


def _clocks(view: JobView, _: Asked) -> dict[str, Any]:
    return clocks(view)


def _compare(view: JobView, asked: Asked) -> dict[str, Any]:
    return comparison(asked.base, view, asked.base_range, (asked.first, asked.last), _PARTS)


def _bandwidth(view: JobView, _: Asked) -> dict[str, Any]:
    return bandwidth(view, peak_gbs=None, limit=_SPEEDS)


_Answer = Callable[[JobView, Asked], dict[str, Any]]
_Build = Callable[[dict[str, Any], Theme], dict[str, Any]]
_ANSWERS: Final[dict[str, tuple[_Answer, _Build]]] = {
    "steps": (_steps, steps_figure),
    "heatmap": (_heatmap, heatmap_figure),
    "breakdown": (_breakdown, breakdown_figure),
    "clocks": (_clocks, clocks_figure),
    "compare": (_compare, compare_figure),
    "bandwidth": (_bandwidth, bandwidth_figure),
}
