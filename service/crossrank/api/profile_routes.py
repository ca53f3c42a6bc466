"""Asks running ranks for a profile of some steps, and says how far that is.

Asking slows the job down a little, so it needs `admin`; looking needs `read`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from starlette.responses import Response

from crossrank.api.job_routes import ERRORS
from crossrank.api.profile_desk import Steps
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import JobParam, RoomsParam, view_of
from crossrank.api.shapes import Shape
from crossrank.errors import BadParameter
from crossrank.query.jobview import JobView
from crossrank.query.telling import most_telling

router = APIRouter(tags=["jobs"])


MOST_STEPS: Final = 100
STEP_NUMBERS: Final = 2**60


def steps_of(said: Any) -> Steps:
    """A count, or the first and the last by number: `[100, 105]` or `100-105`. Raises ValueError."""
    if isinstance(said, str) and re.fullmatch(r"[0-9]{1,18}-[0-9]{1,18}", said):
        said = [int(part) for part in said.split("-")]
    if type(said) is int and 1 <= said <= MOST_STEPS:
        return Steps(said)
    if isinstance(said, list) and len(said) == 2 and all(type(number) is int for number in said):
        first, last = said
        if 0 <= first <= last < first + MOST_STEPS and last < STEP_NUMBERS:
            return Steps(last - first + 1, first)
    raise ValueError(f"a count from 1 to {MOST_STEPS}, or a first and a last step such as [100, 105], at most {MOST_STEPS} of them")


class ProfilePost(BaseModel):
    """Which ranks (none: the fewest that tell most, at most `most`), and which steps: how many of the next ones, or by number."""

    model_config = ConfigDict(extra="forbid")

    ranks: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(default=None, min_length=1, max_length=1024)
    steps: Annotated[Steps, PlainValidator(steps_of, json_schema_input_type=int | list[int] | str)] = Field(
        default_factory=lambda: Steps(2),
        description="A count of steps, by default 2, or the first and the last by number: `[100, 105]` or `100-105`.",
    )
    most: int = Field(default=3, ge=1, le=1024, description="Most ranks where none are named.")


class ProfileOfRank(Shape):
    """One rank. events: of its trace, once it is stored."""

    rank: int
    why: str
    state: Literal["asked", "told", "received", "expired"]
    events: int | None


class ProfileState(Shape):
    """The last request of the job. first_step: null for the next steps. done: every trace is here, or the time for them is over."""

    id: str
    steps: int
    first_step: int | None
    done: bool
    ranks: list[ProfileOfRank]


@router.post("/v1/jobs/{job:path}/profile", responses={200: {"model": ProfileState}, **ERRORS})
def post_profile(rooms: RoomsParam, job: JobParam, asked: Annotated[ProfilePost, Body()]) -> Response:
    """Ranks hear of it in the answer to their next post, profile their next steps or those of the numbers given, and post the trace, which joins their spans."""
    view = view_of(rooms, job, None)
    return JsonReply(rooms.profiles.ask(job, _chosen(rooms.limits.profile_ranks, view, job, asked), _ahead(view, asked.steps)))


@router.get("/v1/jobs/{job:path}/profile", responses={200: {"model": ProfileState}, **ERRORS})
def get_profile(rooms: RoomsParam, job: JobParam) -> Response:
    """How far the last request is, rank by rank."""
    rooms.store.version(job)  # an unknown job is said to be one
    return JsonReply(rooms.profiles.state(job))


def _ahead(view: JobView, steps: Steps) -> Steps:
    seen = view.derived.steps.step
    if steps.first is not None and len(seen) and int(seen[-1]) >= steps.first + steps.count:
        raise BadParameter(f"steps: those asked for are over, the job is at step {int(seen[-1])}", field="steps")
    return steps


def _chosen(most: int, view: JobView, job: str, asked: ProfilePost) -> dict[int, str]:
    if asked.ranks is None:
        return most_telling(view, min(asked.most, most))
    ranks = sorted(set(asked.ranks))
    if len(ranks) > most:
        raise BadParameter(f"ranks: at most {most} ranks are profiled at once, not {len(ranks)}", field="ranks")
    unknown = sorted(set(ranks) - set(view.derived.topology.seen))
    if unknown:
        raise BadParameter(f"ranks: job {job!r} has no events of rank {unknown[0]}", field="ranks")
    return dict.fromkeys(ranks, "asked for")
