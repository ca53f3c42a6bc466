"""The doors for events: read a body within bounds, decode it off the event loop, answer only after it is durable."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.responses import Response

from crossrank.api.errors import PROTOBUF, media_type
from crossrank.api.reading import announced_bytes, read_body
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import Rooms, RoomsParam
from crossrank.api.shapes import EventsReceipt
from crossrank.api.taking import take
from crossrank.auth.guard import Caller
from crossrank.errors import UnsupportedType
from crossrank.model.post import Admitted, Post, Receipt

router = APIRouter(tags=["ingest"])
JSON: Final = "application/json"
EVENT_BODIES: Final = {
    "required": True,
    "description": "NDJSON, a JSON array, or {events: [...]}; identity, gzip, deflate or zstd. See schemas/event.schema.json.",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}, "application/json": {"schema": {}}},
}
OTLP_BODIES: Final = {
    "required": True,
    "description": "OTLP ExportTraceServiceRequest.",
    "content": {
        "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
        "application/json": {"schema": {"type": "object"}},
    },
}


async def post_events(request: Request, rooms: Rooms, caller: Caller) -> Response:
    """Answers POST /v1/events."""
    received_ns = rooms.wall_ns()
    admitted, receipt = await _take(request, rooms, caller, "events", received_ns)
    return receipt_reply(rooms, admitted, receipt, received_ns, asked_of(rooms, admitted) if rooms.profiles.open else None)


def asked_of(rooms: Rooms, admitted: Admitted) -> dict[str, Any] | None:
    """What is asked of the rank that posted, who is that of its first event."""
    if not admitted.events.num_rows:
        return None
    first = admitted.events.slice(0, 1)
    return rooms.profiles.told(first["job"][0].as_py(), first["rank"][0].as_py())


def receipt_reply(
    rooms: Rooms, admitted: Admitted, receipt: Receipt, received_ns: int, profile: dict[str, Any] | None = None
) -> Response:
    """What became of the events of a request. profile: what is asked of the rank that sent it."""
    reasons = Counter(r.reason for r in admitted.rejections)
    listed = admitted.rejections[: rooms.limits.errors_listed]
    answer: dict[str, Any] = {
        "accepted": receipt.accepted,
        "duplicate": receipt.duplicate,
        "rejected": len(admitted.rejections),
        "reasons": dict(sorted(reasons.items())),
        "errors": [{"index": r.index, "reason": r.reason, **({"detail": r.detail} if r.detail else {})} for r in listed],
        "received_ns": received_ns,
        "sent_ns": rooms.wall_ns(),
    }
    if admitted.warnings:
        answer["warnings"] = list(admitted.warnings)
    if profile is not None:
        answer["profile"] = profile
    return JsonReply(answer)


async def post_traces(request: Request, rooms: Rooms, caller: Caller) -> Response:
    """Answers POST /v1/traces, in the request's encoding."""
    kind = media_type(request)
    if kind not in (PROTOBUF, JSON):
        raise UnsupportedType(f"content type must be {PROTOBUF} or {JSON}", content_type=kind)
    admitted, _ = await _take(request, rooms, caller, "traces", rooms.wall_ns())
    message = otlp_message(admitted)
    if kind == JSON:
        partial = {"rejectedSpans": str(len(admitted.rejections)), "errorMessage": message}
        return JsonReply({"partialSuccess": partial} if message else {})
    return Response(otlp_reply(admitted, message), media_type=PROTOBUF)


def otlp_reply(admitted: Admitted, message: str) -> bytes:
    """ExportTraceServiceResponse; no bytes at all when everything was taken."""
    answer = ExportTraceServiceResponse()
    if message:
        answer.partial_success.rejected_spans = len(admitted.rejections)
        answer.partial_success.error_message = message
    return answer.SerializeToString()


def otlp_message(admitted: Admitted) -> str:
    """What the sender should know, empty when all is well."""
    reasons = Counter(r.reason for r in admitted.rejections)
    parts = [f"{count} x {reason}" for reason, count in sorted(reasons.items())]
    details = [r.detail for r in admitted.rejections[:3] if r.detail]
    rejected = [f"rejected {len(admitted.rejections)} spans: " + ", ".join(parts)] if parts else []
    return "; ".join([*rejected, *details, *admitted.warnings])[:4096]


async def _take(request: Request, rooms: Rooms, caller: Caller, route: str, received_ns: int) -> tuple[Admitted, Receipt]:
    headers = request.headers
    rooms.decoders.check()
    with rooms.inflight.open(announced_bytes(request)) as hold:
        body = await read_body(request, rooms, hold)
        job = job_named(headers.get("x-crossrank-job")) or caller.job
        post = Post(
            route, headers.get("content-type", ""), headers.get("content-encoding", ""), job, received_ns, body, only_job=caller.job
        )
        admitted, stored = await rooms.decoders.run(len(body), partial(take, rooms, post, hold, caller))
        receipt = await asyncio.wrap_future(stored)
    rooms.deriver.wake()
    return admitted, receipt


def job_named(header: str | None) -> str | None:
    """The job in a header: UTF-8, as clients write names that are not ASCII, else the characters of Latin-1."""
    if header is None or header.isascii():
        return header
    try:
        return header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header


# What the interface description says about the two doors; `gate` answers them before routing.
JobHeader = Annotated[str | None, Header(description="Job of events that name none.")]


@router.post("/v1/events", responses={200: {"model": EventsReceipt}}, openapi_extra={"requestBody": EVENT_BODIES})
async def describe_events(request: Request, rooms: RoomsParam, x_crossrank_job: JobHeader = None) -> Response:  # noqa: ARG001  - described only
    """Takes structured events. 200 means they are on disk."""
    return await post_events(request, rooms, request.scope["crossrank.caller"])


@router.post("/v1/traces", openapi_extra={"requestBody": OTLP_BODIES})
async def describe_traces(request: Request, rooms: RoomsParam, x_crossrank_job: JobHeader = None) -> Response:  # noqa: ARG001  - described only
    """Takes OTLP/HTTP traces, protobuf or JSON. 200 means they are on disk; partial_success names what was not taken."""
    return await post_traces(request, rooms, request.scope["crossrank.caller"])


DOORS: Final = {"/v1/events": post_events, "/v1/traces": post_traces}
