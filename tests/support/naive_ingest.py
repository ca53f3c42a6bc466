"""The slow obvious reading of one JSON event in the full form, and the same events as bodies of every format.

`naive_row` is written from the documented field table alone, one event at a time, and checks the columnar decoders.
"""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from crossrank.limits import Limits
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.post import Admitted, Post

TYPED = (
    "attempt",
    "rank",
    "host",
    "clock",
    "lane",
    "kind",
    "step",
    "group",
    "seq",
    "group_ranks",
    "op",
    "peer",
    "bytes",
    "dtype",
    "is_async",
    "value",
)
RECEIVED_NS = 1_800_000_000_000_000_000


def post(route: str, content_type: str, body: bytes, *, encoding: str = "", job: str | None = None) -> Post:
    """A request as the API would hand it on."""
    return Post(route=route, content_type=content_type, content_encoding=encoding, job=job, received_ns=RECEIVED_NS, body=body)


def take(
    route: str, content_type: str, body: bytes, *, encoding: str = "", job: str | None = None, limits: Limits | None = None
) -> Admitted:
    """What is admitted of a request, after checking the promise every answer keeps: the event schema, valid in full."""
    from crossrank.ingest.accept import accept

    admitted = accept(post(route, content_type, body, encoding=encoding, job=job), limits or Limits())
    assert admitted.events.schema.equals(EVENT_SCHEMA)
    admitted.events.validate(full=True)
    for column in EVENT_SCHEMA:
        assert column.nullable or admitted.events.column(column.name).null_count == 0, column.name
    return admitted


def naive_row(event: dict[str, Any]) -> dict[str, Any]:
    """The row of a valid event that names its kind and, for communication, its op."""
    host, rank = event.get("host"), event["rank"]
    return {
        "job": event["job"],
        "attempt": event.get("attempt", 0),
        "rank": rank,
        "host": host,
        "clock": event.get("clock") or host or f"rank:{rank}",
        "lane": event.get("lane") or "main",
        "name": event.get("name") or "unnamed",
        "kind": event["kind"],
        "start_ns": event["start_ns"],
        "end_ns": event.get("end_ns") if event["kind"] not in ("mark", "metric") else event.get("end_ns", event["start_ns"]),
        "step": event.get("step"),
        "group": event.get("group"),
        "seq": event.get("seq"),
        "group_ranks": event.get("group_ranks"),
        "op": event.get("op"),
        "peer": event.get("peer"),
        "bytes": event.get("bytes"),
        "dtype": event.get("dtype"),
        "is_async": event.get("is_async", False),
        "trace_id": bytes.fromhex(event["trace_id"]),
        "span_id": bytes.fromhex(event["span_id"]),
        "parent_span_id": bytes.fromhex(event["parent_span_id"]) if event.get("parent_span_id") else None,
        "links": [bytes.fromhex(link) for link in event["links"]] if event.get("links") else None,
        "value": event.get("value"),
        "attrs": json.dumps(event["attrs"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if event.get("attrs")
        else None,
        "flags": 1 if event.get("end_ns") is not None and event["end_ns"] < event["start_ns"] else 0,
        "received_ns": RECEIVED_NS,
    }


def any_value(value: Any) -> AnyValue:
    """A Python value as OpenTelemetry would send it."""
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(v) for v in value]))
    return AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=any_value(v)) for k, v in value.items()]))


def otlp_request(events: list[dict[str, Any]], prefix: str = "crossrank.") -> ExportTraceServiceRequest:
    """The events as spans, columns as attributes with the prefix."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for event in events:
        span = spans.add(
            trace_id=bytes.fromhex(event["trace_id"]),
            span_id=bytes.fromhex(event["span_id"]),
            parent_span_id=bytes.fromhex(event.get("parent_span_id") or ""),
            name=event.get("name", ""),
            start_time_unix_nano=event["start_ns"],
            end_time_unix_nano=event.get("end_ns") or 0,
        )
        for link in event.get("links") or ():
            span.links.add(trace_id=span.trace_id, span_id=bytes.fromhex(link))
        columns = {prefix + key: event[key] for key in ("job", *TYPED) if event.get(key) is not None}
        for key, value in (columns | event.get("attrs", {})).items():
            span.attributes.add(key=key, value=any_value(value))
    return request


def otlp_json(request: ExportTraceServiceRequest, *, snake: bool = False, ints_as_text: bool = True) -> bytes:
    """The request in OTLP's JSON mapping, written by hand."""

    def key(camel: str) -> str:
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in camel) if snake else camel

    def number(value: int) -> Any:
        return str(value) if ints_as_text else value

    def value_of(value: AnyValue) -> dict[str, Any]:
        which = value.WhichOneof("value")
        if which is None:
            return {}
        readers: dict[str, Callable[[], Any]] = {
            "string_value": lambda: value.string_value,
            "bool_value": lambda: value.bool_value,
            "int_value": lambda: number(value.int_value),
            "double_value": lambda: value.double_value,
            "bytes_value": lambda: b64encode(value.bytes_value).decode(),
            "array_value": lambda: {"values": [value_of(v) for v in value.array_value.values]},
            "kvlist_value": lambda: {"values": pairs(value.kvlist_value.values)},
        }
        sent = readers[which]()
        camel = which.split("_")[0] + "Value"
        return {key(camel): sent}

    def pairs(attributes: Any) -> list[dict[str, Any]]:
        return [{"key": pair.key, "value": value_of(pair.value)} for pair in attributes]

    def span_of(span: Any) -> dict[str, Any]:
        return {
            key("traceId"): span.trace_id.hex().upper(),
            key("spanId"): span.span_id.hex(),
            key("parentSpanId"): span.parent_span_id.hex(),
            "name": span.name,
            key("startTimeUnixNano"): number(span.start_time_unix_nano),
            key("endTimeUnixNano"): number(span.end_time_unix_nano),
            "attributes": pairs(span.attributes),
            "links": [{key("traceId"): ln.trace_id.hex(), key("spanId"): ln.span_id.hex()} for ln in span.links],
            "unheardOf": {"a": [None]},
        }

    resources = [
        {
            "resource": {"attributes": pairs(rs.resource.attributes)},
            key("scopeSpans"): [
                {"scope": {"name": ss.scope.name}, "spans": [span_of(s) for s in ss.spans]} for ss in rs.scope_spans
            ],
        }
        for rs in request.resource_spans
    ]
    return json.dumps({key("resourceSpans"): resources}).encode()


def every_body(events: list[dict[str, Any]]) -> dict[str, Post]:
    """The same events in every format and encoding."""
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    array = json.dumps(events).encode()
    request = otlp_request(events)
    bodies = {
        "ndjson": post("events", "application/x-ndjson", lines),
        "ndjson without a last newline": post("events", "application/jsonl; charset=utf-8", lines.rstrip(b"\n")),
        "ndjson in raw UTF-8": post(
            "events", "application/x-ndjson", b"\r\n".join(json.dumps(e, ensure_ascii=False).encode() for e in events)
        ),
        "array": post("events", "application/json", array),
        "indented array": post("events", "application/json", json.dumps(events, indent=1).encode()),
        "object": post("events", "Application/JSON", b'{"events": ' + array + b"}"),
        "gzip": post("events", "application/x-ndjson", gzip.compress(lines[:40]) + gzip.compress(lines[40:]), encoding="GZIP"),
        "deflate": post("events", "application/x-ndjson", zlib.compress(lines), encoding="deflate"),
        "zstd": post("events", "application/json", b"".join(map(zstandard.compress, (array[:9], array[9:]))), encoding="zstd"),
        "otlp protobuf": post("traces", "application/x-protobuf", request.SerializeToString()),
        "otlp protobuf, bare names": post("traces", "application/x-protobuf", otlp_request(events, "").SerializeToString()),
        "otlp json": post("traces", "application/json", otlp_json(request)),
        "otlp json, snake_case and numbers": post("traces", "application/json", otlp_json(request, snake=True, ints_as_text=False)),
    }
    if len(events) > 1:
        bodies["ndjson called json"] = post("events", "application/json", lines)
    return bodies


def arrow_stream(events: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as writer:
        writer.write_table(events, max_chunksize=7)
    return sink.getvalue().to_pybytes()
