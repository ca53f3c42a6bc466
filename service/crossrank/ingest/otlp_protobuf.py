"""OTLP/HTTP protobuf bodies to columns.

The three levels that only hold others (request, resource spans, scope spans) are walked on the wire; every span is then parsed by
itself. A resource or scope sent in several pieces is merged, as protobuf demands, by parsing the pieces one after another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.ingest import reasons
from crossrank.ingest.otlp_common import Around, Span, SpanEvent, SpanLink, SpanRows
from crossrank.ingest.otlp_values import bytes_value, double_value
from crossrank.ingest.wire import Walk, within
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep
from crossrank.model.decoded import Decoded

_PASSES: Final = 4  # a scope's fields are walked three times
_RESOURCE_SPANS: Final = 1  # of the request
_RESOURCE, _SCOPE_SPANS, _RESOURCE_SCHEMA = 1, 2, 3  # of ResourceSpans
_SCOPE, _SPANS, _SCOPE_SCHEMA = 1, 2, 3  # of ScopeSpans


def decode(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """An ExportTraceServiceRequest. `job`: the request's job, when its header names one. Raises UndecodableBody, BodyTooLarge."""
    rows = SpanRows(job, limits)
    walk = Walk(body, _PASSES * limits.events_per_body)
    for number, start, end in walk.length_fields(0, len(body), 0):
        if number == _RESOURCE_SPANS:
            _resource_spans(walk, start, end, rows, limits)
    return rows.decoded()


def _resource_spans(walk: Walk, start: int, end: int, rows: SpanRows, limits: Limits) -> None:
    resource = read_resource(_pieces(walk, start, end, _RESOURCE, 1), _pieces(walk, start, end, _RESOURCE_SCHEMA, 1), limits)
    for number, at, to in walk.length_fields(start, end, 1):
        if number == _SCOPE_SPANS:
            _scope_spans(walk, at, to, resource, rows, limits)


def _scope_spans(walk: Walk, start: int, end: int, resource: dict[str, Any], rows: SpanRows, limits: Limits) -> None:
    scope = read_scope(_pieces(walk, start, end, _SCOPE, 2), _pieces(walk, start, end, _SCOPE_SCHEMA, 2), limits)
    context = read_around(rows, resource, scope)
    for number, at, to in walk.length_fields(start, end, 2):
        if number == _SPANS:
            add_span(walk.buffer[at:to] if to - at <= limits.event_bytes else None, to - at, rows.next_index(), context, rows)


def _pieces(walk: Walk, start: int, end: int, number: int, depth: int) -> list[bytes]:
    return [walk.buffer[at:to] for found, at, to in walk.length_fields(start, end, depth) if found == number]


def read_around(rows: SpanRows, resource: dict[str, Any], scope: dict[str, Any]) -> Around:
    """What the spans of a scope share. Raises UndecodableBody, BodyTooLarge."""
    try:
        return rows.around(resource, scope)
    except TooDeep:
        raise UndecodableBody("Attributes of the resource or scope are nested too deeply") from None


def add_span(message: bytes | None, size_bytes: int, index: int, context: Around, rows: SpanRows) -> None:
    """Reads and adds one span; None stands for one that is too large to be looked at. Raises UndecodableBody, BodyTooLarge."""
    if message is None:
        rows.refuse(index, reasons.TOO_LARGE, f"{size_bytes} bytes", context)
        return
    rows.add(
        index, _span_of(parsed(message, _RESOURCE_SPANS, _SCOPE_SPANS, _SPANS).resource_spans[0].scope_spans[0].spans[0]), context
    )


def read_resource(pieces: list[bytes], schema_urls: list[bytes], limits: Limits) -> dict[str, Any]:
    """A resource as a JSON object, from its pieces and the schema URL beside it. Raises UndecodableBody, BodyTooLarge."""
    message = _bounded(pieces, "resource", limits)
    resource = parsed(message, _RESOURCE_SPANS, _RESOURCE).resource_spans[0].resource
    return {
        "attributes": attributes(resource.attributes),
        "dropped_attributes_count": resource.dropped_attributes_count,
        "entity_refs": [
            {"schema_url": e.schema_url, "type": e.type, "id_keys": list(e.id_keys), "description_keys": list(e.description_keys)}
            for e in resource.entity_refs
        ],
        "schema_url": _last_text(schema_urls),
    }


def read_scope(pieces: list[bytes], schema_urls: list[bytes], limits: Limits) -> dict[str, Any]:
    """A scope as a JSON object, from its pieces and the schema URL beside it. Raises UndecodableBody, BodyTooLarge."""
    message = _bounded(pieces, "scope", limits)
    scope = parsed(message, _RESOURCE_SPANS, _SCOPE_SPANS, _SCOPE).resource_spans[0].scope_spans[0].scope
    return {
        "name": scope.name,
        "version": scope.version,
        "attributes": attributes(scope.attributes),
        "dropped_attributes_count": scope.dropped_attributes_count,
        "schema_url": _last_text(schema_urls),
    }


def _bounded(pieces: list[bytes], what: str, limits: Limits) -> bytes:
    if sum(map(len, pieces)) > limits.event_bytes:
        raise BodyTooLarge(f"A {what} is larger than {limits.event_bytes} bytes")
    return b"".join(pieces)


def parsed(message: bytes, *numbers: int) -> ExportTraceServiceRequest:
    """A request that holds the message at that place and nothing else, so that protobuf counts its nesting from the top.

    Raises UndecodableBody.
    """
    try:
        return ExportTraceServiceRequest.FromString(within(message, *numbers))
    except DecodeError as fault:
        raise UndecodableBody("The body is not OTLP protobuf: a span, resource or scope cannot be read") from fault


def _last_text(sent: list[bytes]) -> str:
    try:
        return [raw.decode() for raw in sent][-1] if sent else ""
    except UnicodeDecodeError as fault:
        raise UndecodableBody("The body is not OTLP protobuf: a text is not UTF-8") from fault


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as plain values; of a key sent twice the last one counts."""
    return {pair.key: plain_value(pair.value) for pair in pairs}


def plain_value(value: AnyValue) -> Any:
    """An AnyValue as a JSON value."""
    # Nesting is bounded by the parser's own limit of some fifty AnyValues.
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "double_value":
        return double_value(value.double_value)
    if which == "bytes_value":
        return bytes_value(value.bytes_value)
    if which == "array_value":
        return [plain_value(v) for v in value.array_value.values]
    if which == "kvlist_value":
        return attributes(value.kvlist_value.values)
    return getattr(value, which)


def _span_of(span: trace_pb2.Span) -> Span:
    return Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attrs=attributes(span.attributes),
        kind=span.kind,
        trace_state=span.trace_state,
        flags=span.flags,
        events=[SpanEvent(e.time_unix_nano, e.name, attributes(e.attributes), e.dropped_attributes_count) for e in span.events],
        links=[
            SpanLink(ln.trace_id, ln.span_id, ln.trace_state, attributes(ln.attributes), ln.flags, ln.dropped_attributes_count)
            for ln in span.links
        ],
        status_code=span.status.code,
        status_message=span.status.message,
        dropped_attributes=span.dropped_attributes_count,
        dropped_events=span.dropped_events_count,
        dropped_links=span.dropped_links_count,
    )
