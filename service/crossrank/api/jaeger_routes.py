"""Jaeger's query interface, as far as its page and Grafana's Jaeger data source use it: a job is a service, a step is a trace.

Answers and errors have Jaeger's shape. A token sees the services it may read; of others it learns nothing.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from crossrank.api.reply import JsonReply
from crossrank.api.rooms import CallerParam, Rooms, RoomsParam, view_of
from crossrank.auth.guard import Caller
from crossrank.errors import BadParameter, NotFound
from crossrank.exporters.jaeger import envelope
from crossrank.query.aligned import How
from crossrank.query.answers.jaeger import search_traces, sent_trace, trace_of_step
from crossrank.query.jaeger_search import TraceSearch, operations, step_of_trace_id, tags_of
from crossrank.store.facts import JobEntry

router = APIRouter(tags=["jaeger"])
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS: Final = {
    "ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_TRACES_MOST: Final = 1500  # as Jaeger's own page allows
_INT64: Final = 2**63 - 1
Service = Annotated[str, Query(description="The job.")]


@router.get("/api/services")
def get_services(rooms: RoomsParam, caller: CallerParam) -> Response:
    """Jobs, as services."""
    names = sorted(entry.job for entry in _visible(rooms, caller))
    return JsonReply(envelope(names, len(names)))


@router.get("/api/services/{service:path}/operations")
def get_service_operations(rooms: RoomsParam, caller: CallerParam, service: str) -> Response:
    """Names of a job's spans."""
    names = _operations(rooms, caller, service)
    return JsonReply(envelope(names, len(names)))


@router.get("/api/operations")
def get_operations(rooms: RoomsParam, caller: CallerParam, service: Service = "") -> Response:
    """Names of a job's spans, in the newer shape."""
    _need_service(service)
    names = _operations(rooms, caller, service)
    return JsonReply(envelope([{"name": name, "spanKind": ""} for name in names], len(names)))


@router.get("/api/traces")
def get_traces(
    rooms: RoomsParam,
    caller: CallerParam,
    service: Service = "",
    operation: str = "",
    tags: Annotated[str, Query(max_length=10_000, description="JSON object; every value must match.")] = "",
    tag: Annotated[list[str] | None, Query(description="key:value, repeatable.")] = None,
    start: Annotated[int | None, Query(description="us since epoch")] = None,
    end: Annotated[int | None, Query(description="us since epoch")] = None,
    min_duration: Annotated[str, Query(alias="minDuration", examples=["1.5ms"])] = "",
    max_duration: Annotated[str, Query(alias="maxDuration")] = "",
    limit: Annotated[int, Query(ge=0, le=2**31 - 1)] = 100,
    trace_ids: Annotated[list[str] | None, Query(alias="traceID", max_length=100)] = None,
) -> Response:
    """The newest steps of a job with a span that fits; or the traces of given ids. Without `start`, of all times."""
    if trace_ids:
        found = [_trace(rooms, caller, trace_id, "repaired") for trace_id in trace_ids]
        missing = [{"msg": "trace not found", "traceID": i} for i, t in zip(trace_ids, found, strict=True) if t is None]
        return JsonReply(envelope([t for t in found if t is not None], errors=missing or None))
    _need_service(service)
    search = TraceSearch(
        operation=operation or None,
        tags=(tags_of(tags) if tags else ()) + tuple(_pair(text) for text in tag or ()),
        from_ns=None if start is None else _ns(start),
        to_ns=None if end is None else _ns(end),
        least_ns=duration_ns(min_duration, "minDuration"),
        most_ns=duration_ns(max_duration, "maxDuration"),
        limit=min(limit, _TRACES_MOST),
    )
    if search.least_ns is not None and search.most_ns is not None and search.most_ns < search.least_ns:
        raise BadParameter("'maxDuration' should be greater than 'minDuration'", field="maxDuration")
    if not any(entry.job == service for entry in _visible(rooms, caller)):
        return JsonReply(envelope([]))
    return JsonReply(envelope(search_traces(view_of(rooms, service, None), search, rooms.limits.trace_spans)))


@router.get("/api/traces/{trace_id}")
def get_trace(rooms: RoomsParam, caller: CallerParam, trace_id: str, raw: bool = False) -> Response:
    """A step by the id that a search gave, or a trace by the id that its senders gave it. raw: times as they were sent."""
    found = _trace(rooms, caller, trace_id, "raw" if raw else "repaired")
    if found is None:
        raise NotFound("trace not found", field="trace_id")
    return JsonReply(envelope([found]))


@router.get("/api/dependencies")
def get_dependencies(
    end: Annotated[int | None, Query(alias="endTs", description="ms since epoch")] = None,
    lookback: Annotated[int | None, Query(description="ms")] = None,
) -> Response:
    """No job calls another one: empty, whatever the time."""
    del end, lookback
    return JsonReply(envelope([]))


def duration_ns(text: str, field: str) -> int | None:
    """A duration as Go writes it (`1.5ms`, `1h30m`); None for "". Raises BadParameter."""
    if not text:
        return None
    parts = list(_DURATION.finditer(text[:100]))
    if "".join(part[0] for part in parts) != text:
        raise BadParameter(f"unable to parse param '{field}': {text[:40]!r} is no duration such as 1.5ms", field=field)
    total = sum(float(part[1]) * _UNIT_NS[part[2]] for part in parts)
    return int(min(total, _INT64))


def _ns(us: int) -> int:
    return max(-_INT64, min(us * 1000, _INT64))


def _pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise BadParameter(f"malformed 'tag' parameter, expecting key:value, received: {text[:100]}", field="tag")
    return key, value


def _need_service(service: str) -> None:
    if not service:
        raise BadParameter("parameter 'service' is required", field="service")


def _visible(rooms: Rooms, caller: Caller) -> list[JobEntry]:
    """The jobs a caller may read, newest activity first."""
    entries = [e for e in rooms.store.jobs() if caller.job in (None, e.job)]
    return sorted(entries, key=lambda e: (-e.last_received_ns, e.job))


def _operations(rooms: Rooms, caller: Caller, service: str) -> list[str]:
    if not any(entry.job == service for entry in _visible(rooms, caller)):
        return []
    return operations(view_of(rooms, service, None).derived)[: rooms.limits.query_rows]


def _trace(rooms: Rooms, caller: Caller, trace_id: str, how: How) -> dict[str, Any] | None:
    """The trace among the caller's jobs. Raises BadParameter for what is no id."""
    digits = trace_id.lower().rjust(32, "0")
    if not re.fullmatch(r"[0-9a-f]{32}", digits):
        raise BadParameter(f"cannot parse traceID: {trace_id[:64]!r} is not up to 32 hexadecimal digits", field="trace_id")
    most = rooms.limits.trace_spans
    entries = _visible(rooms, caller)
    for entry in entries:
        for attempt in entry.attempts:
            step = step_of_trace_id(digits, entry.job, attempt)
            if step is not None:
                return trace_of_step(view_of(rooms, entry.job, attempt), step, most, how)
    for entry in entries[: rooms.limits.derived_jobs]:
        view = view_of(rooms, entry.job, None)
        found = sent_trace(view, bytes.fromhex(digits), most, how)
        if found is not None:
            return found
    return None
