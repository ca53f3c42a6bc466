"""The doors for events: read a body within bounds, decode it off the event loop, answer only after it is durable."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.responses import Response

from crossrank.api.errors import PROTOBUF, media_type
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import Rooms, RoomsParam
from crossrank.api.shapes import EventsReceipt
from crossrank.errors import BodyTooLarge, UnsupportedType
from crossrank.ingest.accept import accept
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


@router.post("/v1/events", responses={200: {"model": EventsReceipt}}, openapi_extra={"requestBody": EVENT_BODIES})
async def post_events(
    request: Request,
    rooms: RoomsParam,
    x_crossrank_job: Annotated[str | None, Header(description="Job of events that name none.")] = None,
) -> Response:
    """Takes structured events. 200 means they are on disk."""
    received_ns = rooms.wall_ns()
    admitted, receipt = await _take(request, rooms, "events", x_crossrank_job, received_ns)
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
    return JsonReply(answer)


@router.post("/v1/traces", openapi_extra={"requestBody": OTLP_BODIES})
async def post_traces(
    request: Request,
    rooms: RoomsParam,
    x_crossrank_job: Annotated[str | None, Header(description="Job of spans that name none.")] = None,
) -> Response:
    """Takes OTLP/HTTP traces, protobuf or JSON. 200 means they are on disk; partial_success names what was not taken."""
    if media_type(request) not in (PROTOBUF, JSON):
        raise UnsupportedType(f"content type must be {PROTOBUF} or {JSON}", content_type=media_type(request))
    admitted, _ = await _take(request, rooms, "traces", x_crossrank_job, rooms.wall_ns())
    message = _otlp_message(admitted)
    if media_type(request) == JSON:
        partial = {"rejectedSpans": str(len(admitted.rejections)), "errorMessage": message}
        return JsonReply({"partialSuccess": partial} if message else {})
    answer = ExportTraceServiceResponse()
    if message:
        answer.partial_success.rejected_spans = len(admitted.rejections)
        answer.partial_success.error_message = message
    return Response(answer.SerializeToString(), media_type=PROTOBUF)


def _otlp_message(admitted: Admitted) -> str:
    """What the sender should know, empty when all is well."""
    reasons = Counter(r.reason for r in admitted.rejections)
    parts = [f"{count} x {reason}" for reason, count in sorted(reasons.items())]
    details = [r.detail for r in admitted.rejections[:3] if r.detail]
    rejected = [f"rejected {len(admitted.rejections)} spans: " + ", ".join(parts)] if parts else []
    return "; ".join([*rejected, *details, *admitted.warnings])[:4096]


async def _take(request: Request, rooms: Rooms, route: str, job: str | None, received_ns: int) -> tuple[Admitted, Receipt]:
    declared = int(request.headers.get("content-length") or 0)
    with rooms.inflight.hold(min(declared, rooms.limits.body_bytes) or (1 << 20)):
        body = await _read(request, rooms.limits.body_bytes, declared)
        rooms.counters.add("body_bytes", len(body))
        encoding = request.headers.get("content-encoding", "")
        post = Post(route, request.headers.get("content-type", ""), encoding, job, received_ns, body)
        admitted = await asyncio.get_running_loop().run_in_executor(rooms.decoders, accept, post, rooms.limits)
        for reason, count in Counter(r.reason for r in admitted.rejections).items():
            rooms.counters.add("events_rejected", count, reason=reason)
        receipt = await asyncio.wrap_future(rooms.store.append(post, admitted))
    rooms.deriver.wake()
    return admitted, receipt


async def _read(request: Request, cap: int, declared: int) -> bytes:
    """The body as sent, at most `cap` bytes, counted while it comes in (a chunked body declares nothing)."""
    if declared > cap:
        raise BodyTooLarge(f"the body has {declared} bytes; at most {cap} are taken in one request", limit_bytes=cap)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > cap:
            raise BodyTooLarge(f"the body has more than {cap} bytes, the most taken in one request", limit_bytes=cap)
        parts.append(part)
    return b"".join(parts)
