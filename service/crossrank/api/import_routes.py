"""The door for recorded files: one file as the body, of a format that the importers know."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from crossrank.api.accept_any import IMPORT_ROUTE
from crossrank.api.ingest_routes import job_named, receipt_reply
from crossrank.api.rooms import CallerParam, Rooms, RoomsParam
from crossrank.api.shapes import EventsReceipt
from crossrank.api.taking import take
from crossrank.errors import BadParameter
from crossrank.importers.formats import FORMATS, format_named
from crossrank.model.post import Post
from crossrank.query.topology_post import merged_topology

router = APIRouter(tags=["ingest"])
_FILE: Final = {
    "required": True,
    "description": "The file as it was recorded, plain, gzip or zstd.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@router.post("/v1/import", responses={200: {"model": EventsReceipt}}, openapi_extra={"requestBody": _FILE})
async def post_import(
    request: Request,
    rooms: RoomsParam,
    caller: CallerParam,
    format_: Annotated[str, Query(alias="format", description=f"One of {', '.join(sorted(FORMATS))}.")],
    job: Annotated[str | None, Query(description="Job the file belongs to.")] = None,
    rank: Annotated[int | None, Query(ge=0, lt=2**31, description="Whose it is, where the file does not say.")] = None,
    name: Annotated[str | None, Query(max_length=1024, description="The file's name; a rank in it counts.")] = None,
    profile: Annotated[str | None, Query(max_length=64, description="The request that this trace answers.")] = None,
    x_crossrank_job: Annotated[str | None, Header(description="Job, where the parameter is not given.")] = None,
) -> Response:
    """Takes one recorded file. 200 means its events are on disk."""
    format_named(format_)
    owner = job or job_named(x_crossrank_job) or caller.job
    if owner is None:
        raise BadParameter("job: say which job the file belongs to, as ?job=", field="job")
    said = {"format": format_, "rank": None if rank is None else str(rank), "name": name}
    received_ns = rooms.wall_ns()
    post = Post(
        route=IMPORT_ROUTE,
        content_type=request.headers.get("content-type", ""),
        content_encoding=request.headers.get("content-encoding", ""),
        job=owner,
        received_ns=received_ns,
        body=await request.body(),
        only_job=caller.job,
        parameters={key: value for key, value in said.items() if value is not None},
    )
    with rooms.inflight.open(0) as hold:
        admitted, stored = await rooms.decoders.run(len(post.body), partial(take, rooms, post, hold, caller))
        receipt = await asyncio.wrap_future(stored)
        if admitted.topology is not None and receipt.accepted:
            await asyncio.to_thread(_lay_over, rooms, owner, dict(admitted.topology))
    if profile is not None and rank is not None:
        rooms.profiles.received(owner, profile, rank, receipt.accepted + receipt.duplicate)
    rooms.deriver.wake()
    return receipt_reply(rooms, admitted, receipt, received_ns)


def _lay_over(rooms: Rooms, job: str, stated: dict[str, Any]) -> None:
    """Adds what a file says of the job's shape to what is known of it."""
    with rooms.topology_lock:
        rooms.store.put_topology(job, merged_topology(rooms.store.topology(job), stated))
