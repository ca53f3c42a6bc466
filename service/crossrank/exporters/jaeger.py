"""Spans in the JSON of Jaeger's query interface, as its page and Grafana's data source read it.

    trace       {traceID, spans, processes, warnings}
    span        times in whole microseconds since the epoch (a span's end is rounded like its start, so that nesting stays);
                exact nanoseconds are in the tags `start_ns` and `end_ns`
    references  CHILD_OF the parent, FOLLOWS_FROM explicit links and, for those who waited, the span they waited for
    tags        {key, type, value} with type string, bool, int64 or float64

A span id is unique in a rank only; in a trace of many ranks a second span of the same id gets another one, made from rank and id.
Source: jaegertracing/jaeger, model/json and the HTTP handlers of its query service.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_SHOWN: Final = ("kind", "lane", "host", "step", "group", "seq", "op", "peer", "bytes", "dtype", "bound_ns", "lamport", "value")
_EXACT: Final = 2**53
_ERROR: Final = 2  # OpenTelemetry's STATUS_CODE_ERROR


@dataclass(frozen=True, slots=True)
class JaegerTrace:
    """What becomes one trace. rows: events by rank and start. waited_for: (rank, span id) -> the (rank, span id) it waited for.

    root: name, start_ns, end_ns and tags of the span around everything; its process is the service.
    """

    trace_id: str
    service: str
    root_name: str
    start_ns: int
    end_ns: int
    root_tags: dict[str, Any]
    rows: list[dict[str, Any]]
    waited_for: dict[tuple[int, str], tuple[int, str]]
    warnings: tuple[str, ...]


def envelope(data: Any, total: int | None = None, errors: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The answer around everything. total: None for traces, of which Jaeger gives no total."""
    return {"data": data, "total": total or 0, "limit": 0, "offset": 0, "errors": errors}


def trace_document(trace: JaegerTrace) -> dict[str, Any]:
    """One trace."""
    root_id = span_id_of("root", trace.trace_id)
    ids = _unique_ids(trace.rows, root_id)
    processes: dict[str, dict[str, Any]] = {"p0": {"serviceName": trace.service, "tags": []}}
    for row in trace.rows:
        name = f"p{row['rank'] + 1}"
        if name not in processes:
            tags = {"rank": row["rank"], "host": row.get("host")}
            processes[name] = {"serviceName": f"rank {row['rank']}", "tags": _tags(tags)}
    root = {
        **_times(trace.start_ns, trace.end_ns),
        "traceID": trace.trace_id,
        "spanID": root_id,
        "flags": 1,
        "operationName": trace.root_name,
        "references": [],
        "tags": _tags(trace.root_tags),
        "logs": [],
        "processID": "p0",
        "warnings": list(trace.warnings) or None,
    }
    spans = [_span(trace, row, ids, root_id) for row in trace.rows]
    return {"traceID": trace.trace_id, "spans": [root, *spans], "processes": processes, "warnings": list(trace.warnings) or None}


def span_id_of(*parts: Any) -> str:
    """A span id made from parts; never all zeros in practice."""
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def _unique_ids(rows: list[dict[str, Any]], root_id: str) -> dict[tuple[int, str], str]:
    taken, ids = {root_id}, {}
    for row in rows:
        key = (row["rank"], row["span_id"])
        ids[key] = row["span_id"] if row["span_id"] not in taken else span_id_of(*key)
        taken.add(ids[key])
    return ids


def _span(trace: JaegerTrace, row: dict[str, Any], ids: dict[tuple[int, str], str], root_id: str) -> dict[str, Any]:
    end: int | None = row.get("aligned_end_ns")
    start: int = row["aligned_start_ns"] if "aligned_start_ns" in row else row["aligned_end_ns"]
    otel = row.get("otel") or {}
    tags = {name: row.get(name) for name in _SHOWN} | {"start_ns": str(start), "end_ns": None if end is None else str(end)}
    if (otel.get("status") or {}).get("code") == _ERROR:
        tags |= {"error": True, "otel.status_description": otel["status"].get("message")}
    return {
        **_times(start, max(trace.end_ns if end is None else end, start)),
        "traceID": trace.trace_id,
        "spanID": ids[row["rank"], row["span_id"]],
        "flags": 1,
        "operationName": row["name"],
        "references": _references(trace, row, ids, root_id),
        "tags": _tags(tags) + _tags(row.get("attrs") or {}),
        "logs": [_log(event, start - (row.get("start_ns") or start)) for event in otel.get("events") or ()],
        "processID": f"p{row['rank'] + 1}",
        "warnings": ["this span has not ended"] if end is None else None,
    }


def _references(trace: JaegerTrace, row: dict[str, Any], ids: dict[tuple[int, str], str], root_id: str) -> list[dict[str, Any]]:
    rank = row["rank"]
    parent = ids.get((rank, row.get("parent_span_id", "")), root_id)
    causes = [ids.get((rank, link)) for link in row.get("links", ())]
    waited_for = trace.waited_for.get((rank, row["span_id"]))
    causes.append(ids.get(waited_for) if waited_for else None)
    follows = [{"refType": "FOLLOWS_FROM", "traceID": trace.trace_id, "spanID": c} for c in causes if c is not None]
    return [{"refType": "CHILD_OF", "traceID": trace.trace_id, "spanID": parent}, *follows]


def _times(start_ns: int, end_ns: int) -> dict[str, int]:
    return {"startTime": start_ns // 1000, "duration": end_ns // 1000 - start_ns // 1000}


def _log(event: dict[str, Any], shift_ns: int) -> dict[str, Any]:
    fields = _tags({"event": event.get("name"), **(event.get("attributes") or {})})
    return {"timestamp": (event["time_ns"] + shift_ns) // 1000, "fields": fields}


def _tags(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Values as typed tags; what is absent is left out, what is nested becomes JSON text."""
    return [_tag(key, value) for key, value in values.items() if value is not None]


def _tag(key: str, value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"key": key, "type": "bool", "value": value}
        case int() if -_EXACT <= value <= _EXACT:
            return {"key": key, "type": "int64", "value": value}
        case float():
            return {"key": key, "type": "float64", "value": value}
        case str():
            return {"key": key, "type": "string", "value": value}
        case int():
            return {"key": key, "type": "string", "value": str(value)}
        case _:
            return {"key": key, "type": "string", "value": msgspec.json.encode(value).decode()}
