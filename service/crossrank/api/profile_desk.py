"""Profiles that somebody asked of running ranks: one request a job, told in the answers to their posts, closed by the traces.

    asked     the rank has not posted since            told      it knows; its next steps are recorded
    received  its trace is stored                      expired   nothing came in time (the rank is gone, or has no steps)

Kept in memory only: a service that was restarted has forgotten what was asked, and the ranks that know still post. `open` is a plain
attribute that is false while nothing is waited for, so that posts pay nothing for it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crossrank.errors import BadParameter, NotFound, Overloaded


@dataclass(frozen=True, slots=True)
class Steps:
    """Which steps to profile: `count` of them, from step `first` on, or whichever come next if that is None."""

    count: int
    first: int | None = None

    def shown(self) -> dict[str, Any]:
        """As ranks are told and people are answered."""
        return {"steps": self.count, "first_step": self.first}


@dataclass(slots=True)
class _Request:
    id: str
    steps: Steps
    asked_ns: int
    why: dict[int, str]
    told: set[int] = field(default_factory=set)
    received: dict[int, int] = field(default_factory=dict)  # events of the trace by rank

    def waits(self) -> bool:
        return len(self.received) < len(self.why)


class ProfileDesk:
    """Requests by job. jobs: most jobs with one. expire_ns: how long a request is open. monotonic_ns: a clock."""

    def __init__(self, jobs: int, expire_ns: int, monotonic_ns: Callable[[], int]) -> None:
        self._jobs, self._expire_ns, self._now_ns = jobs, expire_ns, monotonic_ns
        self._requests: dict[str, _Request] = {}
        self._lock = threading.Lock()
        self.open = False

    def ask(self, job: str, why: Mapping[int, str], steps: Steps) -> dict[str, Any]:
        """Asks ranks for a profile. why: reason by rank. Raises BadParameter while another of this job is under way, Overloaded."""
        with self._lock:
            before = self._requests.get(job)
            if before is not None and before.waits() and not self._expired(before):
                raise BadParameter(
                    f"profile {before.id} of this job is still under way; see GET /v1/jobs/{{job}}/profile", field="job"
                )
            if before is None and len(self._requests) >= self._jobs:
                self._drop_oldest()
            self._requests[job] = _Request(secrets.token_hex(8), steps, self._now_ns(), dict(why))
            self.open = True
        return self.state(job)

    def told(self, job: str, rank: int) -> dict[str, Any] | None:
        """What to tell a rank in the answer to its post; None where nothing is asked of it.

        It is told again with every post until its trace is here: an answer may be lost, and a rank that knows the id ignores it.
        """
        with self._lock:
            request = self._requests.get(job)
            if request is None or rank not in request.why or rank in request.received:
                return None
            if self._expired(request):
                self._settle()
                return None
            request.told.add(rank)
            return {"id": request.id, "rank": rank, **request.steps.shown()}

    def received(self, job: str, identifier: str, rank: int, events: int) -> None:
        """A trace has been stored. One that nobody asked for, or twice, changes nothing."""
        with self._lock:
            request = self._requests.get(job)
            if request is not None and request.id == identifier and rank in request.why:
                request.received.setdefault(rank, events)
                self._settle()

    def state(self, job: str) -> dict[str, Any]:
        """The last request of a job. Raises NotFound."""
        with self._lock:
            request = self._requests.get(job)
            if request is None:
                raise NotFound(f"no profile of job {job!r} was asked for; POST /v1/jobs/{{job}}/profile does", job=job)
            expired = self._expired(request)
            ranks = [{"rank": rank, "why": why, **_progress(request, rank, expired=expired)} for rank, why in request.why.items()]
            return {"id": request.id, **request.steps.shown(), "done": expired or not request.waits(), "ranks": ranks}

    def forget(self, job: str) -> None:
        """The job was deleted."""
        with self._lock:
            self._requests.pop(job, None)
            self._settle()

    def _expired(self, request: _Request) -> bool:
        return self._now_ns() - request.asked_ns > self._expire_ns

    def _settle(self) -> None:
        self.open = any(r.waits() and not self._expired(r) for r in self._requests.values())

    def _drop_oldest(self) -> None:
        over = [job for job, request in self._requests.items() if not request.waits() or self._expired(request)]
        if not over:
            raise Overloaded(f"profiles of {self._jobs} jobs are under way; ask again when one is done")
        del self._requests[min(over, key=lambda job: self._requests[job].asked_ns)]


def _progress(request: _Request, rank: int, *, expired: bool) -> dict[str, Any]:
    if rank in request.received:
        return {"state": "received", "events": request.received[rank]}
    return {"state": "expired" if expired else "told" if rank in request.told else "asked", "events": None}
