"""One batch to the service: posted until it is acknowledged, refused, or the patience is used up.

503 and a broken connection are tried again, after the pause the service asks for (`Retry-After`) or after a doubling pause
with jitter; resending is harmless because the service recognises events it has. 413 halves the batch. Anything else is final.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import zstandard

from crossrank import timesource
from crossrank.commands.client import fault_of, reaching, read_capped, restated
from crossrank.commands.line_batches import Batch
from crossrank.errors import BodyTooLarge, CrossrankError, Overloaded, Refused, StoreUnavailable, Unreachable

EVENTS_PATH: Final = "/v1/events"
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
LONGEST_ASKED_PAUSE_S: Final = 60.0
ERRORS_KEPT: Final = 20
_WORTH_RETRYING: Final = frozenset({429, 502, 503, 504})
_ACK_BYTES: Final = 4 << 20


class Stopped(Exception):
    """The upload was stopped while a batch waited for its next try."""


@dataclass(slots=True)
class Tally:
    """What the service said about events sent. `errors` holds the first rejected events as (file:line, reason)."""

    accepted: int = 0
    duplicate: int = 0
    rejected: int = 0
    retries: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[str, str]] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Adds another tally to this one."""
        self.accepted += other.accepted
        self.duplicate += other.duplicate
        self.rejected += other.rejected
        self.retries += other.retries
        self.reasons.update(other.reasons)
        self.warnings.update(other.warnings)
        self.errors += other.errors[: ERRORS_KEPT - len(self.errors)]


@dataclass(slots=True)
class Poster:
    """Posts batches from any thread. `stop` set by another thread ends the waiting; `pause` waits and is replaced in tests."""

    client: httpx.Client
    url: str
    job: str | None
    patience_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    pause: Callable[[float], bool] | None = None

    def post(self, batch: Batch) -> Tally:
        """Posts a batch and returns what became of its events. Raises the last fault when patience is used up, or Stopped."""
        tally = Tally()
        try:
            answer = self._acknowledged(batch.text, tally)
        except BodyTooLarge as fault:
            return self._halved(batch, tally, fault)
        _count(tally, answer, batch)
        return tally

    def post_arrow(self, stream: bytes, place: str) -> Tally:
        """Posts an Arrow IPC stream of events. place: where they are from, for messages. Raises as `post`, and BodyTooLarge."""
        tally = Tally()
        answer = self._acknowledged(stream, tally, "application/vnd.apache.arrow.stream")
        _add(tally, answer)
        tally.errors += [(place, str(e.get("reason", "?"))) for e in answer.get("errors", ())[:ERRORS_KEPT]]
        return tally

    def _acknowledged(self, text: bytes, tally: Tally, content_type: str = "application/x-ndjson") -> dict[str, Any]:
        headers = {"content-type": content_type, "content-encoding": "zstd"}
        if self.job is not None:
            headers["x-crossrank-job"] = self.job
        body = zstandard.ZstdCompressor(level=1).compress(text)
        started_ns = timesource.monotonic_ns()
        pause_s = FIRST_PAUSE_S
        while True:
            if self.stop.is_set():
                raise Stopped
            asked_s: float | None = None
            try:
                status, reply, asked_s = self._once(body, headers)
                if status == httpx.codes.OK:
                    return _receipt(reply, self.url)
                fault = fault_of(status, reply, f"POST {EVENTS_PATH}")
                if status not in _WORTH_RETRYING:
                    raise fault
            except Unreachable as unreachable:
                fault = unreachable
            waited_s = (timesource.monotonic_ns() - started_ns) / 1e9
            # Jitter keeps workers that failed together from coming back together.
            next_s = asked_s if asked_s is not None else pause_s * random.uniform(0.5, 1.0)  # noqa: S311 -- not a secret
            if waited_s + next_s > self.patience_s:
                raise restated(fault, f"{fault} (gave up after {waited_s:.0f} s; --retry-for sets the patience)")
            tally.retries += 1
            (self.pause or self.stop.wait)(next_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _once(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, float | None]:
        """Status, reply and the pause asked for, of one attempt. Raises Unreachable."""
        encoded = httpx.Headers(headers, encoding="utf-8")  # a job's name may hold any character
        with reaching(self.url), self.client.stream("POST", EVENTS_PATH, content=body, headers=encoded) as response:
            return response.status_code, read_capped(response, _ACK_BYTES), _asked_pause(response)

    def _halved(self, batch: Batch, tally: Tally, fault: CrossrankError) -> Tally:
        middle = batch.text.rfind(b"\n", 0, len(batch.text) // 2) + 1 or batch.text.find(b"\n") + 1
        if not 0 < middle < len(batch.text):
            tally.rejected += 1
            tally.reasons[fault.code] += 1
            tally.errors.append((f"{batch.path}:{batch.first_line}", fault.message))
            return tally
        head, rest = batch.text[:middle], batch.text[middle:]
        lines = head.count(b"\n")
        tally.add(self.post(Batch(batch.path, batch.first_line, lines, batch.start, batch.start + middle, head)))
        tally.add(
            self.post(Batch(batch.path, batch.first_line + lines, batch.lines - lines, batch.start + middle, batch.end, rest))
        )
        return tally


def worth_waiting(fault: CrossrankError) -> bool:
    """Whether the same upload may work later: the service is down, overloaded or out of disk."""
    return isinstance(fault, (Unreachable, Overloaded, StoreUnavailable))


def _asked_pause(response: httpx.Response) -> float | None:
    asked = response.headers.get("retry-after", "")
    return min(float(asked), LONGEST_ASKED_PAUSE_S) if asked.isdecimal() else None


def _receipt(reply: bytes, url: str) -> dict[str, Any]:
    try:
        answer = json.loads(reply)
        if isinstance(answer["accepted"], int):
            return dict(answer)
    except (ValueError, KeyError, TypeError):
        pass
    raise Refused(f"{url}{EVENTS_PATH} did not answer with a receipt; is it a crossrank service?")


def _count(tally: Tally, answer: dict[str, Any], batch: Batch) -> None:
    _add(tally, answer)
    for error in answer.get("errors", ())[:ERRORS_KEPT]:
        tally.errors.append((f"{batch.path}:{batch.first_line + int(error.get('index', 0))}", str(error.get("reason", "?"))))


def _add(tally: Tally, answer: dict[str, Any]) -> None:
    tally.accepted += answer["accepted"]
    tally.duplicate += answer.get("duplicate", 0)
    tally.rejected += answer.get("rejected", 0)
    tally.reasons.update(answer.get("reasons", {}))
    tally.warnings.update(answer.get("warnings", ()))
