"""What the routes are given: the built parts of the service, made once by `app` and found on the application's state."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Lock
from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import AfterValidator

from crossrank.api.access import job_name
from crossrank.api.decode_queue import DecodeQueue
from crossrank.api.inflight import Inflight
from crossrank.api.live_streams import LiveStreams
from crossrank.api.profile_desk import ProfileDesk
from crossrank.api.readiness import Readiness
from crossrank.auth.guard import Caller, Guard
from crossrank.counters import Counters
from crossrank.ingest.accept import Decoder
from crossrank.limits import Limits
from crossrank.query.derive import Derived
from crossrank.query.deriver import Deriver
from crossrank.query.jobview import JobView
from crossrank.store.snapshot import Snapshot
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
    profiles: ProfileDesk
    live: LiveStreams


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
JobParam = Annotated[str, Path(description="Job name; its slashes best as %2F.", examples=["llama-70b"]), AfterValidator(job_name)]


def known_view(rooms: Rooms, job: str) -> JobView | None:
    """The job as last derived, None where it has not been: nothing is derived for it. Raises NotFound."""
    derived = rooms.deriver.known(job)
    return None if derived is None else _view(rooms, rooms.store.snapshot(job), derived)


def view_of(rooms: Rooms, job: str, attempt: int | None) -> JobView:
    """The job as last derived. Raises NotFound."""
    return _view(rooms, *rooms.deriver.latest(job, attempt))


def _view(rooms: Rooms, snapshot: Snapshot, derived: Derived) -> JobView:
    rejects, tallies = tuple(rooms.store.rejects(snapshot.job)), rooms.store.tallies(snapshot.job)
    return JobView(snapshot, derived, rejects, tallies, rooms.wall_ns(), rooms.listening_since_ns)
