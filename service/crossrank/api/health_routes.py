"""Is the service alive, can it take and answer, and what has it counted."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from crossrank.api.reply import JsonReply
from crossrank.api.rooms import RoomsParam

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Response:
    """200 while the process answers."""
    return JsonReply({"status": "ok"})


@router.get("/readyz")
def readyz(rooms: RoomsParam) -> Response:
    """200 when a real query and a real write to the data folder work; else 503 with the reason."""
    rooms.store.probe()
    return JsonReply({"status": "ready"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(rooms: RoomsParam) -> Response:
    """Counters in the Prometheus text format."""
    return Response(rooms.counters.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
