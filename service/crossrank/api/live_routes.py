"""What changes, told as it happens: server-sent events for one job and for the list of jobs.

Plain GET with text/event-stream. The page reads it with fetch rather than EventSource, which could not send a token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from crossrank.api.job_routes import ERRORS
from crossrank.api.live_streams import LiveReply, News
from crossrank.api.rooms import CallerParam, JobParam, Rooms, RoomsParam, known_view, view_of
from crossrank.errors import NotFound
from crossrank.query.answers.jobs import job_card

router = APIRouter(tags=["live"])
_MOST_CHANGED = 100  # jobs told in one event


@router.get("/v1/live", response_class=StreamingResponse)
async def get_live(request: Request, rooms: RoomsParam, caller: CallerParam) -> StreamingResponse:
    """Event `jobs` when jobs come, change or go: those that changed (at most 100), and how many there are."""
    return _stream(request, rooms, partial(_jobs_now, rooms, caller.job, {}))


@router.get("/v1/jobs/{job:path}/live", response_class=StreamingResponse, responses=ERRORS)
async def get_live_of(request: Request, rooms: RoomsParam, job: JobParam) -> StreamingResponse:
    """Event `job` when the answers of a job have changed: the job as in /v1/jobs, with what was rejected so far."""
    rooms.store.version(job)  # an unknown job is refused before the stream begins
    return _stream(request, rooms, partial(_job_now, rooms, job))


def _stream(request: Request, rooms: Rooms, look: Callable[[], News | None]) -> StreamingResponse:
    return LiveReply(rooms.live, look, request.is_disconnected)


def _job_now(rooms: Rooms, job: str) -> News | None:
    try:
        view = view_of(rooms, job, None)
    except NotFound:
        return None  # deleted meanwhile
    entry = next((e for e in rooms.store.jobs() if e.job == job), None)
    if entry is None:
        return None
    rejected = sum(count for _, _, count in view.rejects)
    card = {**job_card(entry, view.tallies, view, view.now_ns), "rejected": rejected}
    key = (card["version"], card["state"], rejected, card["duplicate"], card["conflict"])
    return News(key, "job", card)


def _jobs_now(rooms: Rooms, only: str | None, before: dict[str, tuple[object, ...]]) -> News:
    """before: what each job was recognised by at the last look; changed here."""
    now_ns, changed, seen = rooms.wall_ns(), [], set()
    for entry in rooms.store.jobs():
        if only not in (None, entry.job):
            continue
        seen.add(entry.job)
        try:
            card = job_card(entry, rooms.store.tallies(entry.job), known_view(rooms, entry.job), now_ns)
        except NotFound:
            continue  # deleted meanwhile
        key = (card["version"], card["state"])
        if before.get(entry.job) != key:
            before[entry.job] = key
            changed.append(card)
    for gone in before.keys() - seen:
        del before[gone]
    return News(
        tuple(sorted(before.items(), key=lambda item: item[0])), "jobs", {"jobs": len(seen), "changed": changed[:_MOST_CHANGED]}
    )
