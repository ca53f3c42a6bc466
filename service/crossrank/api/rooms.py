"""What the routes are given: the built parts of the service, made once by `app` and found on the application's state."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Lock
from typing import Annotated

from fastapi import Depends, Path, Request

from crossrank.api.decode_queue import DecodeQueue
from crossrank.api.inflight import Inflight
from crossrank.api.readiness import Readiness
from crossrank.auth.guard import Caller, Guard
from crossrank.counters import Counters
from crossrank.ingest.accept import Decoder
from crossrank.limits import Limits
from crossrank.query.deriver import Deriver
from crossrank.query.jobview import JobView
from crossrank.store.store import Store


@dataclass(frozen=True, slots=True)
class Rooms:
    """The parts of a running service. listening_since_ns: from when on senders could reach it, by its own clock."""

    store: Store
    deriver: Deriver
    limits: Limits
    decoder: Decoder
    counters: Counters
    wall_ns: Callable[[], int]
    listening_since_ns: int
    decoders: DecodeQueue
    suspects: Executor
    inflight: Inflight
    guard: Guard
    readiness: Readiness
    topology_lock: Lock


def rooms_of(request: Request) -> Rooms:
    """The service's parts."""
    rooms: Rooms = request.app.state.rooms
    return rooms


def caller_of(request: Request) -> Caller:
    """Who asks, as the gate found out."""
    caller: Caller = request.scope["crossrank.caller"]
    return caller


CallerParam = Annotated[Caller, Depends(caller_of)]
RoomsParam = Annotated[Rooms, Depends(rooms_of)]
JobParam = Annotated[str, Path(description="Job name.", examples=["llama-70b"])]


def view_of(rooms: Rooms, job: str, attempt: int | None) -> JobView:
    """The job as last derived. Raises NotFound."""
    snapshot, derived = rooms.deriver.latest(job, attempt)
    return JobView(
        snapshot, derived, tuple(rooms.store.rejects(job)), rooms.store.tallies(job), rooms.wall_ns(), rooms.listening_since_ns
    )
