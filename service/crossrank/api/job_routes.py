"""The questions about a job. Each route parses, calls one answer function and writes what it says."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from fastapi import APIRouter, Body, Header, Query
from starlette.responses import Response

from crossrank.api import shapes
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import CallerParam, JobParam, Rooms, RoomsParam, known_view, view_of
from crossrank.errors import BadParameter
from crossrank.query.aligned import How
from crossrank.query.answers import bottlenecks, clocks, collectives, critical_path, events, jobs, steps, summary
from crossrank.query.topology_post import merged_topology

router = APIRouter(tags=["jobs"])
ERRORS: dict[int | str, dict[str, Any]] = {400: {"model": shapes.ErrorAnswer}, 404: {"model": shapes.ErrorAnswer}}
INT64 = {"ge": -(2**63), "le": 2**63 - 1}
Attempt = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Restart count; the latest by default.")]
From = Annotated[int | None, Query(alias="from", **INT64, description="First step.")]
To = Annotated[int | None, Query(alias="to", **INT64, description="Last step.")]
Aligned = Annotated[
    How, Query(description="Aligned times after the repair, by the clock fit alone, or raw ones as they were sent.")
]
Limit = Annotated[int | None, Query(ge=1, description="Most rows; clamped to the service's own limit.")]


def rows_limit(rooms: Rooms, limit: int | None) -> int:
    """Rows of an answer: as asked, within the service's own limit."""
    return min(limit or rooms.limits.query_rows, rooms.limits.query_rows_max)


@router.get("/v1/jobs", responses={200: {"model": shapes.Jobs}})
def get_jobs(rooms: RoomsParam, caller: CallerParam) -> Response:
    """All jobs the caller may see, newest activity first."""
    answer = jobs.jobs(rooms.store, partial(known_view, rooms), rooms.wall_ns())
    if caller.job is not None:
        answer["jobs"] = [entry for entry in answer["jobs"] if entry["job"] == caller.job]
    return JsonReply(answer)


@router.get("/v1/jobs/{job:path}/clocks", responses={200: {"model": shapes.Clocks}, **ERRORS})
def get_clocks(rooms: RoomsParam, job: JobParam, attempt: Attempt = None) -> Response:
    """Offset and drift of every clock domain, guaranteed bounds, clock steps, violations before and after."""
    return JsonReply(clocks.clocks(view_of(rooms, job, attempt)))


@router.get("/v1/jobs/{job:path}/steps/{step}/critical-path", responses={200: {"model": shapes.CriticalPath}, **ERRORS})
def get_critical_path(rooms: RoomsParam, job: JobParam, step: int, attempt: Attempt = None) -> Response:
    """The chain of work and transfers that fills the step, across ranks; on_path_ns sums to total_ns exactly."""
    return JsonReply(critical_path.path_of_step(view_of(rooms, job, attempt), step))


@router.get("/v1/jobs/{job:path}/steps", responses={200: {"model": shapes.Steps}, **ERRORS})
def get_steps(
    rooms: RoomsParam, job: JobParam, first: From = None, last: To = None, limit: Limit = None, attempt: Attempt = None
) -> Response:
    """Start, end, completeness and last finisher of each step."""
    return JsonReply(steps.steps(view_of(rooms, job, attempt), first=first, last=last, limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/collectives", responses={200: {"model": shapes.Collectives}, **ERRORS})
def get_collectives(
    rooms: RoomsParam,
    job: JobParam,
    step: int | None = None,
    group: str | None = None,
    op: str | None = None,
    min_wait_ns: Annotated[int | None, Query(ge=0)] = None,
    limit: Limit = None,
    attempt: Attempt = None,
) -> Response:
    """Matched collectives: members, arrivals, last arriver or null for "cannot tell", spread and its bound, bandwidths."""
    view = view_of(rooms, job, attempt)
    return JsonReply(
        collectives.collectives(view, step=step, group=group, op=op, min_wait_ns=min_wait_ns, limit=rows_limit(rooms, limit))
    )


@router.get("/v1/jobs/{job:path}/stragglers", responses={200: {"model": shapes.Stragglers}, **ERRORS})
def get_stragglers(rooms: RoomsParam, job: JobParam, first: From = None, last: To = None, attempt: Attempt = None) -> Response:
    """Ranks that are late by themselves, by what they cost the job; an empty list means none beyond noise and clock bounds."""
    return JsonReply(bottlenecks.stragglers(view_of(rooms, job, attempt), first=first, last=last))


@router.get("/v1/jobs/{job:path}/bottlenecks", responses={200: {"model": shapes.Bottlenecks}, **ERRORS})
def get_bottlenecks(rooms: RoomsParam, job: JobParam, first: From = None, last: To = None, attempt: Attempt = None) -> Response:
    """Findings of every class, most expensive first, each with a plain sentence."""
    return JsonReply(bottlenecks.bottlenecks(view_of(rooms, job, attempt), first=first, last=last))


@router.get("/v1/jobs/{job:path}/events", responses={200: {"model": shapes.Events}, **ERRORS})
def get_events(
    rooms: RoomsParam,
    job: JobParam,
    rank: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    step: int | None = None,
    kind: str | None = None,
    group: str | None = None,
    from_ns: Annotated[int | None, Query(**INT64)] = None,
    to_ns: Annotated[int | None, Query(**INT64)] = None,
    limit: Limit = None,
    cursor: str | None = None,
    attempt: Attempt = None,
    aligned: Aligned = "repaired",
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """Aligned events, page by page; JSON, NDJSON (application/x-ndjson) or Arrow (application/vnd.apache.arrow.stream) by Accept."""
    view = view_of(rooms, job, attempt)
    query = events.EventQuery(rank, step, kind, group, from_ns, to_ns, rows_limit(rooms, limit), cursor, aligned)
    if "vnd.apache.arrow.stream" in accept or "ndjson" in accept:
        page, after = events.events_page(view, query)
        headers = {"X-Next-Cursor": after} if after else {}
        if "ndjson" in accept:
            lines = msgspec.json.Encoder().encode_lines(events.event_rows(page))
            return Response(lines, media_type="application/x-ndjson", headers=headers)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, page.schema) as writer:
            writer.write_table(page)
        return Response(sink.getvalue().to_pybytes(), media_type="application/vnd.apache.arrow.stream", headers=headers)
    return JsonReply(events.events(view, query))


@router.get("/v1/jobs/{job:path}/traces/{trace_id}", responses={200: {"model": shapes.TraceAnswer}, **ERRORS})
def get_trace(rooms: RoomsParam, job: JobParam, trace_id: str, limit: Limit = None) -> Response:
    """Every span of one trace, however late it came."""
    try:
        wanted = bytes.fromhex(trace_id)
    except ValueError:
        wanted = b""
    if len(wanted) != 16:
        raise BadParameter("trace_id must be 32 hexadecimal digits", field="trace_id")
    return JsonReply(events.trace(view_of(rooms, job, None), wanted, rows_limit(rooms, limit)))


@router.post("/v1/jobs/{job:path}/topology", responses={200: {"model": shapes.TopologyReceipt}, **ERRORS})
def post_topology(rooms: RoomsParam, job: JobParam, topology: Annotated[shapes.TopologyPost, Body()]) -> Response:
    """Says what the job looks like: world size, ranks with host and coordinates, groups. Merged with what came before."""
    with rooms.topology_lock:  # ranks post at the same time; each must see what the others said
        known = rooms.store.topology(job) if job in {entry.job for entry in rooms.store.jobs()} else None
        merged = merged_topology(known, topology.model_dump(exclude_none=True))
        rooms.store.put_topology(job, merged)
    rooms.deriver.wake()
    return JsonReply({"world_size": merged.get("world_size"), "ranks": len(merged["ranks"]), "groups": len(merged["groups"])})


@router.post("/v1/jobs/{job:path}/derive", responses={200: {"model": shapes.DeriveReceipt}, **ERRORS})
def post_derive(rooms: RoomsParam, job: JobParam, wait: bool = False, attempt: Attempt = None) -> Response:
    """Asks for fresh answers; with wait=true returns when everything acknowledged so far is in them."""
    get = rooms.deriver.current if wait else rooms.deriver.latest
    snapshot, derived = get(job, attempt)
    rooms.deriver.wake()
    return JsonReply(
        {"job": job, "version": derived.version, "current": derived.version >= snapshot.version, "events": derived.events}
    )


@router.delete("/v1/jobs/{job:path}", responses={200: {"model": shapes.Deleted}, **ERRORS})
def delete_job(rooms: RoomsParam, job: JobParam) -> Response:
    """Removes the job and everything derived from it."""
    rooms.store.delete_job(job)
    rooms.deriver.forget(job)
    rooms.profiles.forget(job)
    return JsonReply({"deleted": job})


@router.get("/v1/jobs/{job:path}", responses={200: {"model": shapes.Summary}, **ERRORS})
def get_summary(rooms: RoomsParam, job: JobParam, attempt: Attempt = None) -> Response:
    """Ranks seen and missing, hosts, steps, events, rejects, alignment quality, top findings."""
    return JsonReply(summary.summary(view_of(rooms, job, attempt)))
