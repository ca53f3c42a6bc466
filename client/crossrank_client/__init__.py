"""Instrument a training job: `init(url, job)`, then `step(n)` and `span(name)`. Nothing here slows the training down or raises into it.

The functions of this module speak to one client of the process. Before `init` and after `shutdown` they do nothing, so code
that is instrumented runs as it is without a service.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from crossrank_client.backlog import MEMORY_BYTES
from crossrank_client.client import RING_SPANS, SHUTDOWN_S, SPOOL_BYTES, Client
from crossrank_client.place import job_of, place_of
from crossrank_client.sender import BadUrl
from crossrank_client.span import Span, StepSpan, activate
from crossrank_client.span import Span as span  # noqa: N813 -- called like a function, and as cheap as can be
from crossrank_client.span import active as client

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
    memory_bytes: int = MEMORY_BYTES,
    ring_spans: int = RING_SPANS,
    standstill_s: float = 3.0,
) -> Client | None:
    """Starts the client of this process.

    What is not given comes from the launcher's environment (see `place`), and from CROSSRANK_URL, CROSSRANK_JOB, CROSSRANK_TOKEN
    and CROSSRANK_SPOOL.

    clock: the clock domain, default the host. spool_dir: folder for batches while the service is away (default under the temporary
    folder), of at most spool_bytes, 0 for none, used beyond memory_bytes. ring_spans: spans kept until the thread takes them. standstill_s: no standstill is
    shorter. None, and a warning in the log, when nothing can be posted: the training goes on without.
    """
    shutdown()
    place = place_of()
    rank = place.rank if rank is None else rank
    if rank is None:
        _log.warning("crossrank: no launcher told this process its rank; it is taken as rank 0. Give init(rank=...) to change it.")
    try:
        started = Client(
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
            memory_bytes=memory_bytes,
            ring_spans=ring_spans,
            standstill_s=standstill_s,
        )
        activate(started)
    except BadUrl as fault:
        _log.warning("crossrank: %s. This process posts nothing.", fault)
    except Exception:  # noqa: BLE001 -- the training goes on without
        _log.warning("crossrank: the client could not start; this process posts nothing.", exc_info=True)
    return client()


def step(number: int | None = None, **fields: Any) -> StepSpan:
    """Begins an optimizer step, which lasts for the block after `with` or, called alone, until the next one."""
    found = client()
    return StepSpan(None, number) if found is None else found.step(number, **fields)


def begin(name: str, kind: str | None = None, *, lane: str | None = None, **fields: Any) -> Span:
    """Opens a span that ends when `.end()` of it is called, from any thread."""
    found = client()
    return Span(name, kind, **fields) if found is None else found.begin(name, kind, lane=lane, **fields)


def record(name: str, kind: str | None, start_ns: int, end_ns: int, *, lane: str | None = None, **fields: Any) -> None:
    """Adds a span that is over, with times of `time.monotonic_ns`."""
    if (found := client()) is not None:
        found.record(name, kind, start_ns, end_ns, lane=lane, **fields)


def mark(name: str, **fields: Any) -> None:
    """Adds a point in time."""
    if (found := client()) is not None:
        found.mark(name, **fields)


def metric(name: str, value: float, **fields: Any) -> None:
    """Adds a value measured now."""
    if (found := client()) is not None:
        found.metric(name, value, **fields)


def group(name: str, ranks: Sequence[int], description: str | None = None) -> None:
    """Says which ranks a process group has."""
    if (found := client()) is not None:
        found.group(name, ranks, description)


def coordinates(**coords: int) -> None:
    """Says where this rank stands along dimensions of parallelism: `coordinates(dp=0, tp=3)`."""
    if (found := client()) is not None:
        found.coordinates(**coords)


def flush(timeout_s: float = 5.0) -> bool:
    """Waits until everything recorded so far is with the service; False if it is not in time."""
    return (found := client()) is None or found.flush(timeout_s)


def shutdown(timeout_s: float = SHUTDOWN_S) -> None:
    """Posts what is left (at most `timeout_s`), ends the thread. Called by itself at exit."""
    if (found := client()) is not None:
        activate(None)
        found.shutdown(timeout_s)


def stats() -> dict[str, Any]:
    """Counts of events and posts so far, and what was dropped by reason; empty without a client."""
    return {} if (found := client()) is None else found.stats()
