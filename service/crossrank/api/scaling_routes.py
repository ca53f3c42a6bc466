"""How jobs of several world sizes scale: the one question about several jobs by name."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from crossrank.api.job_routes import ERRORS
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import CallerParam, RoomsParam, view_of
from crossrank.api.shapes import Carried, Shape
from crossrank.errors import BadParameter, NotFound
from crossrank.query.answers.scaling import scaling_of

router = APIRouter(tags=["jobs"])
MOST_JOBS: Final = 16


class ScalingPoint(Shape):
    """Mean step of a rank. loss_shares: work, imbalance, wait, communication, rest, which add up to 1; null within the band."""

    job: str
    ranks: int
    steps: int
    step_ns: int
    ideal_ns: int
    speedup: float
    efficiency: float
    loss_ns: int
    loss_band_ns: int | None = Field(description="95 % band of the loss; null: too few steps to tell.")
    loss_shares: dict[str, float] | None


class AmdahlFit(Shape):
    """t(n) = W(n) (serial + parallel / n). residual: largest distance from it, relative; null with two world sizes."""

    serial_fraction: float
    serial_ns: int
    parallel_ns: int
    residual: float | None


class ScalingAnswer(Shape):
    """By world size. mode null: the ranks' own work says neither strong nor weak scaling; alpha: its slope over the ranks, log-log."""

    mode: Literal["strong", "weak"] | None
    alpha: float | None
    points: list[ScalingPoint]
    amdahl: AmdahlFit | None
    sentence: str
    jobs: dict[str, Carried] = Field(description="How complete and how well aligned each job is.")


@router.get("/v1/scaling", responses={200: {"model": ScalingAnswer}, **ERRORS})
def get_scaling(
    rooms: RoomsParam,
    caller: CallerParam,
    jobs: Annotated[str, Query(max_length=8192, description="Job names with commas between; a comma in a name as %2C.")],
    mode: Annotated[
        Literal["strong", "weak"] | None, Query(description="The same work in all, or for each rank; found out by default.")
    ] = None,
) -> Response:
    """Efficiency, Amdahl fit, and what share of the loss is work, imbalance, waits, exposed communication."""
    names = list(dict.fromkeys(unquote(name) for name in jobs.split(",") if name))
    if not 2 <= len(names) <= MOST_JOBS:
        raise BadParameter(f"scaling wants 2 to {MOST_JOBS} jobs, not {len(names)}", field="jobs")
    for name in names:
        if caller.job not in (None, name):  # the gate does not know names that stand in a question
            raise NotFound(f"there is no job {name!r}", job=name)
    return JsonReply(scaling_of([view_of(rooms, name, None) for name in names], mode))
