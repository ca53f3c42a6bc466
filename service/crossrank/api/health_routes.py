"""Is the service alive, can it take and answer, and what has it counted."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from crossrank.api.job_metrics import JobMetrics
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import RoomsParam
from crossrank.errors import NotFound
from crossrank.store.store import Store

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Response:
    """200 while the process answers."""
    return JsonReply({"status": "ok"})


@router.get("/readyz")
def readyz(rooms: RoomsParam) -> Response:
    """200 when a real query and a real write to the data folder work; else 503 with the reason."""
    rooms.readiness.check()
    return JsonReply({"status": "ready"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(rooms: RoomsParam) -> Response:
    """Counters, and the state of the jobs active last, in the Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(JobRejections(rooms.store, rooms.limits.job_series))
    registry.register(JobMetrics(rooms.store, rooms.deriver, rooms.limits.job_metrics, rooms.wall_ns()))
    text = rooms.counters.exposition() + generate_latest(registry)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class JobRejections(Collector):
    """Events not admitted, by job, rank and reason: read from the store when asked for, the most frequent up to a bound.

    These labels hold names that senders chose, which is why they are not among the declared counters and why they are bounded.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most

    def collect(self) -> Iterator[Metric]:
        """The series, and how many were left out."""
        rows = []
        for entry in self._store.jobs():
            try:
                rows += [(count, entry.job, rank, reason) for rank, reason, count in self._store.rejects(entry.job)]
            except NotFound:
                continue  # deleted meanwhile
        rows.sort(key=lambda row: (-row[0], row[1], -1 if row[2] is None else row[2], row[3]))
        family = CounterMetricFamily(
            "crossrank_job_events_rejected",
            "[data_loss] Events not admitted, by job, rank and reason.",
            labels=("job", "rank", "reason"),
        )
        for count, job, rank, reason in rows[: self._most]:
            family.add_metric([job, "" if rank is None else str(rank), reason], count)
        yield family
