"""Asks for a prediction: what the job would take if some operations took less."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from crossrank.analysis.whatif import Change
from crossrank.api.job_routes import ERRORS, Attempt
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import JobParam, RoomsParam, view_of
from crossrank.api.shapes import Carried, Shape
from crossrank.query.answers import whatif

router = APIRouter(tags=["jobs"])


class ChangePost(BaseModel):
    """Which spans (selectors left out select everything) and what becomes of them: exactly one of scale, cap_ns and as."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    rank: int | None = None
    kind: str | None = Field(default=None, description="An event kind, or * for any.")
    name: str | None = None
    op: str | None = None
    group: str | None = None
    first: int | None = Field(default=None, alias="from", description="First step.")
    last: int | None = Field(default=None, alias="to", description="Last step.")
    scale: float | None = Field(default=None, description="Durations times this.")
    cap_ns: int | None = Field(default=None, ge=0, le=2**62, description="Durations no longer than this.")
    becomes: Literal["median", "ideal"] | None = Field(
        default=None, alias="as", description="Durations as usual among peers; ideal = the job without stragglers."
    )


class WhatIfPost(BaseModel):
    """Changes, applied in order."""

    model_config = ConfigDict(extra="forbid")

    changes: list[ChangePost] = Field(min_length=1, max_length=100)


class StepPrediction(Shape):
    """One step, as recorded and as predicted."""

    step: int
    recorded_ns: int
    predicted_ns: int


class WhatIfAnswer(Carried):
    """replay_ns is the replay without a change; replay_error its distance from the recording."""

    baseline_ns: int
    replay_ns: int
    replay_error: float
    predicted_ns: int
    saving_ns: int
    steps: list[StepPrediction]


@router.post("/v1/jobs/{job:path}/whatif", responses={200: {"model": WhatIfAnswer}, **ERRORS})
def post_whatif(rooms: RoomsParam, job: JobParam, asked: Annotated[WhatIfPost, Body()], attempt: Attempt = None) -> Response:
    """Predicted duration with changed operations, and the saving; the model's own replay error stands beside it."""
    changes = [Change(**change.model_dump()) for change in asked.changes]
    return JsonReply(whatif.whatif(view_of(rooms, job, attempt), changes))
