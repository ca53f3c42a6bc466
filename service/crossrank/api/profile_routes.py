"""Asks running ranks for a profile of some steps, and says how far that is.

Asking slows the job down a little, so it needs `admin`; looking needs `read`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from crossrank.api.job_routes import ERRORS
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import JobParam, Rooms, RoomsParam, view_of
from crossrank.api.shapes import Shape
from crossrank.errors import BadParameter
from crossrank.query.telling import most_telling

router = APIRouter(tags=["jobs"])


class ProfilePost(BaseModel):
    """Which ranks (none: the fewest that tell most, at most `most`), and how many of their next steps."""

    model_config = ConfigDict(extra="forbid")

    ranks: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(default=None, min_length=1, max_length=1024)
    steps: int = Field(default=2, ge=1, le=100)
    most: int = Field(default=3, ge=1, le=1024, description="Most ranks where none are named.")


class ProfileOfRank(Shape):
    """One rank. events: of its trace, once it is stored."""

    rank: int
    why: str
    state: Literal["asked", "told", "received", "expired"]
    events: int | None


class ProfileState(Shape):
    """The last request of the job. done: every trace is here, or the time for them is over."""

    id: str
    steps: int
    done: bool
    ranks: list[ProfileOfRank]


@router.post("/v1/jobs/{job:path}/profile", responses={200: {"model": ProfileState}, **ERRORS})
def post_profile(rooms: RoomsParam, job: JobParam, asked: Annotated[ProfilePost, Body()]) -> Response:
    """Ranks hear of it in the answer to their next post, profile their next steps, and post the trace, which joins their spans."""
    return JsonReply(rooms.profiles.ask(job, _chosen(rooms, job, asked), asked.steps))


@router.get("/v1/jobs/{job:path}/profile", responses={200: {"model": ProfileState}, **ERRORS})
def get_profile(rooms: RoomsParam, job: JobParam) -> Response:
    """How far the last request is, rank by rank."""
    rooms.store.version(job)  # an unknown job is said to be one
    return JsonReply(rooms.profiles.state(job))


def _chosen(rooms: Rooms, job: str, asked: ProfilePost) -> dict[int, str]:
    view = view_of(rooms, job, None)
    most = rooms.limits.profile_ranks
    if asked.ranks is None:
        return most_telling(view, min(asked.most, most))
    ranks = sorted(set(asked.ranks))
    if len(ranks) > most:
        raise BadParameter(f"ranks: at most {most} ranks are profiled at once, not {len(ranks)}", field="ranks")
    unknown = sorted(set(ranks) - set(view.derived.topology.seen))
    if unknown:
        raise BadParameter(f"ranks: job {job!r} has no events of rank {unknown[0]}", field="ranks")
    return dict.fromkeys(ranks, "asked for")
