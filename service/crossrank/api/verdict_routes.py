"""Questions about standstills, disagreements, shape and order of a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from crossrank.api import verdict_shapes
from crossrank.api.job_routes import ERRORS, Attempt, From, Limit, To, rows_limit
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import JobParam, RoomsParam, view_of
from crossrank.query.answers import causality, hangs, mismatches, ranks, topology

router = APIRouter(tags=["jobs"])
SpanRef = Annotated[
    str, Query(max_length=64, description="A span: `span_id` in hex, or `rank:span_id`.", examples=["3:00000000000000a1"])
]


@router.get("/v1/jobs/{job:path}/hangs", responses={200: {"model": verdict_shapes.Hangs}, **ERRORS})
def get_hangs(rooms: RoomsParam, job: JobParam, limit: Limit = None, attempt: Attempt = None) -> Response:
    """Open operations, who holds them up with the proof, who only waits; judged at the moment of the question."""
    return JsonReply(hangs.hangs(view_of(rooms, job, attempt), limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/mismatches", responses={200: {"model": verdict_shapes.Mismatches}, **ERRORS})
def get_mismatches(rooms: RoomsParam, job: JobParam, limit: Limit = None, attempt: Attempt = None) -> Response:
    """Desynchronised collectives: skipped, extra, wrong op, size, dtype, order or membership; the odd ranks by majority."""
    return JsonReply(mismatches.mismatches(view_of(rooms, job, attempt), limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/topology", responses={200: {"model": verdict_shapes.Topology}, **ERRORS})
def get_topology(rooms: RoomsParam, job: JobParam, limit: Limit = None, attempt: Attempt = None) -> Response:
    """World size, ranks with host and coordinates, groups and what they are for; conflicts between what was said."""
    return JsonReply(topology.topology(view_of(rooms, job, attempt), limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/causality/cone", responses={200: {"model": verdict_shapes.Cone}, **ERRORS})
def get_cone(rooms: RoomsParam, job: JobParam, of: SpanRef, limit: Limit = None, attempt: Attempt = None) -> Response:
    """Everything that depends on the end of a span: where each lane first does, and how much follows."""
    return JsonReply(causality.cone(view_of(rooms, job, attempt), of, limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/causality", responses={200: {"model": verdict_shapes.Causality}, **ERRORS})
def get_causality(rooms: RoomsParam, job: JobParam, a: SpanRef, b: SpanRef, attempt: Attempt = None) -> Response:
    """Whether span a happened before b, after it, or concurrently, with a chain of spans as witness."""
    return JsonReply(causality.causality(view_of(rooms, job, attempt), a, b))


@router.get("/v1/jobs/{job:path}/ranks", responses={200: {"model": verdict_shapes.Ranks}, **ERRORS})
def get_ranks(
    rooms: RoomsParam, job: JobParam, first: From = None, last: To = None, limit: Limit = None, attempt: Attempt = None
) -> Response:
    """Per rank: waits suffered and caused, and what it did with its steps."""
    return JsonReply(ranks.ranks(view_of(rooms, job, attempt), first=first, last=last, limit=rows_limit(rooms, limit)))
