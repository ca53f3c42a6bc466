"""Instrument a training job: `init(url, job)`, then `step(n)` and `span(name)`. Nothing here slows the training down or raises into it.

The functions of this module speak to one client of the process. Before `init` and after `shutdown` they do nothing, so code
that is instrumented runs as it is without a service.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from typing import Any

from crossrank_client.client import RING_SPANS, SHUTDOWN_S, SPOOL_BYTES, Client
from crossrank_client.place import job_of, place_of
from crossrank_client.sender import BadUrl
from crossrank_client.span import NO_SPAN, NoSpan, Span, StepSpan

__all__ = [
    "Client",
    "begin",
    "client",
    "coordinates",
    "flush",
    "group",
    "init",
    "mark",
    "metric",
    "record",
    "shutdown",
    "span",
    "stats",
    "step",
]

_log = logging.getLogger("crossrank_client")
_client: Client | None = None


def init(
    url: str | None = None,
    job: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    host: str | None = None,
    attempt: int | None = None,
    clock: str | None = None,
    token: str | None = None,
    spool_dir: str | os.PathLike[str] | None = None,
    spool_bytes: int = SPOOL_BYTES,
    ring_spans: int = RING_SPANS,
    standstill_s: float = 3.0,
) -> Client | None:
    """Starts the client of this process.

    What is not given comes from the launcher's environment (see `place`), and from CROSSRANK_URL, CROSSRANK_JOB, CROSSRANK_TOKEN
    and CROSSRANK_SPOOL.

    clock: the clock domain, default the host. spool_dir: folder for batches while the service is away (default under the temporary
    folder), of at most spool_bytes, 0 for none. ring_spans: spans kept until the thread takes them. standstill_s: no standstill is
    shorter. None, and a warning in the log, when nothing can be posted: the training goes on without.
    """
    global _client  # noqa: PLW0603 -- one client a process
    shutdown()
    place = place_of()
    rank = place.rank if rank is None else rank
    if rank is None:
        _log.warning("crossrank: no launcher told this process its rank; it is taken as rank 0. Give init(rank=...) to change it.")
    try:
        _client = Client(
            url or os.environ.get("CROSSRANK_URL") or "http://127.0.0.1:4318",
            job or job_of() or "default",
            rank=rank or 0,
            world_size=place.world_size if world_size is None else world_size,
            host=host or place.host,
            attempt=place.attempt if attempt is None else attempt,
            clock=clock,
            token=token or os.environ.get("CROSSRANK_TOKEN"),
            spool_dir=spool_dir or os.environ.get("CROSSRANK_SPOOL"),
            spool_bytes=spool_bytes,
            ring_spans=ring_spans,
            standstill_s=standstill_s,
        )
    except BadUrl as fault:
        _log.warning("crossrank: %s. This process posts nothing.", fault)
    except Exception:  # noqa: BLE001 -- the training goes on without
        _log.warning("crossrank: the client could not start; this process posts nothing.", exc_info=True)
    return _client


def client() -> Client | None:
    """The client of this process, None before `init` and after `shutdown`."""
    return _client


def span(name: str, kind: str | None = None, **fields: Any) -> Span | NoSpan:
    """Makes a span of a block, `with span("forward"):`, or of every call, `@span("forward")`.

    kind: step, compute, collective, send, recv, copy, data, checkpoint, sync, idle or other; told from the name if None. fields: `group`, `seq`,
    `op`, `peer`, `bytes`, `dtype`, `is_async`, `group_ranks`; anything else is an attribute.
    """
    return NO_SPAN if _client is None else Span(_client, name, kind, **fields)


def step(number: int | None = None, **fields: Any) -> StepSpan | NoSpan:
    """Begins an optimizer step, which lasts for the block (`with step(n):`) or, called alone, until the next one."""
    return NO_SPAN if _client is None else _client.step(number, **fields)


def begin(name: str, kind: str | None = None, *, lane: str | None = None, **fields: Any) -> Span | NoSpan:
    """Opens a span that ends when `.end()` of it is called, from any thread."""
    return NO_SPAN if _client is None else _client.begin(name, kind, lane=lane, **fields)


def record(name: str, kind: str | None, start_ns: int, end_ns: int, *, lane: str | None = None, **fields: Any) -> None:
    """Adds a span that is over, with times of `time.monotonic_ns`."""
    if _client is not None:
        _client.record(name, kind, start_ns, end_ns, lane=lane, **fields)


def mark(name: str, **fields: Any) -> None:
    """Adds a point in time."""
    if _client is not None:
        _client.mark(name, **fields)


def metric(name: str, value: float, **fields: Any) -> None:
    """Adds a value measured now."""
    if _client is not None:
        _client.metric(name, value, **fields)


def group(name: str, ranks: Sequence[int], description: str | None = None) -> None:
    """Says which ranks a process group has."""
    if _client is not None:
        _client.group(name, ranks, description)


def coordinates(**coords: int) -> None:
    """Says where this rank stands along dimensions of parallelism: `coordinates(dp=0, tp=3)`."""
    if _client is not None:
        _client.coordinates(**coords)


def flush(timeout_s: float = 5.0) -> bool:
    """Waits until everything recorded so far is with the service; False if it is not in time."""
    return _client is None or _client.flush(timeout_s)


def shutdown(timeout_s: float = SHUTDOWN_S) -> None:
    """Posts what is left (at most `timeout_s`), ends the thread. Called by itself at exit."""
    global _client
    ending, _client = _client, None
    if ending is not None:
        ending.shutdown(timeout_s)


def stats() -> dict[str, Any]:
    """Counts of events and posts so far, and what was dropped by reason; empty without a client."""
    return {} if _client is None else _client.stats()


atexit.register(shutdown)
