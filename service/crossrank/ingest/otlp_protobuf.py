"""OTLP/HTTP protobuf bodies to columns.

The three levels that only hold others (request, resource spans, scope spans) are walked on the wire; every span is then parsed by
itself. A resource or scope sent in several pieces is merged, as protobuf demands, by parsing the pieces one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.ingest import reasons
from crossrank.ingest.otlp_common import Around, Span, SpanEvent, SpanLink, SpanRows
from crossrank.ingest.otlp_values import bytes_value, double_value
from crossrank.ingest.wire import Walk
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep
from crossrank.model.decoded import Decoded

_PASSES: Final = 4  # a scope's fields are walked three times
_RESOURCE_SPANS: Final = 1  # of the request
_RESOURCE, _SCOPE_SPANS, _RESOURCE_SCHEMA = 1, 2, 3  # of ResourceSpans
_SCOPE, _SPANS, _SCOPE_SCHEMA = 1, 2, 3  # of ScopeSpans
_M = TypeVar("_M", bound=Message)


def decode(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """An ExportTraceServiceRequest. `job`: the request's job, when its header names one. Raises UndecodableBody, BodyTooLarge."""
    rows = SpanRows(job, limits)
    walk = Walk(body, _PASSES * limits.events_per_body)
    for number, start, end in walk.length_fields(0, len(body)):
        if number == _RESOURCE_SPANS:
            _resource_spans(walk, start, end, rows, limits)
    return rows.decoded()


def _resource_spans(walk: Walk, start: int, end: int, rows: SpanRows, limits: Limits) -> None:
    resource = _merged(Resource, walk, _places(walk, start, end, _RESOURCE), limits)
    about = {
        "attributes": attributes(resource.attributes),
        "dropped_attributes_count": resource.dropped_attributes_count,
        "entity_refs": [
            {"schema_url": e.schema_url, "type": e.type, "id_keys": list(e.id_keys), "description_keys": list(e.description_keys)}
            for e in resource.entity_refs
        ],
        "schema_url": _text(walk, _places(walk, start, end, _RESOURCE_SCHEMA)),
    }
    for at, to in _places(walk, start, end, _SCOPE_SPANS):
        _scope_spans(walk, at, to, about, rows, limits)


def _scope_spans(walk: Walk, start: int, end: int, resource: dict[str, Any], rows: SpanRows, limits: Limits) -> None:
    scope = _merged(InstrumentationScope, walk, _places(walk, start, end, _SCOPE), limits)
    about = {
        "name": scope.name,
        "version": scope.version,
        "attributes": attributes(scope.attributes),
        "dropped_attributes_count": scope.dropped_attributes_count,
        "schema_url": _text(walk, _places(walk, start, end, _SCOPE_SCHEMA)),
    }
    try:
        context = rows.around(resource, about)
    except TooDeep:
        raise UndecodableBody("Attributes of the resource or scope are nested too deeply") from None
    for at, to in _places(walk, start, end, _SPANS):
        _span(walk, at, to, context, rows, limits)


def _span(walk: Walk, start: int, end: int, context: Around, rows: SpanRows, limits: Limits) -> None:
    index = rows.next_index()
    if end - start > limits.event_bytes:
        rows.refuse(index, reasons.TOO_LARGE, f"{end - start} bytes", context)
        return
    rows.add(index, _span_of(_parsed(trace_pb2.Span, walk.buffer[start:end])), context)


def _places(walk: Walk, start: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    return ((at, to) for found, at, to in walk.length_fields(start, end) if found == number)


def _merged(kind: type[_M], walk: Walk, places: Iterable[tuple[int, int]], limits: Limits) -> _M:
    """One message from all its pieces."""
    pieces = b"".join(walk.buffer[at:to] for at, to in places)
    if len(pieces) > limits.event_bytes:
        raise BodyTooLarge(f"A {kind.__name__} is larger than {limits.event_bytes} bytes")
    return _parsed(kind, pieces)


def _parsed(kind: type[_M], data: bytes) -> _M:
    try:
        return kind.FromString(data)
    except DecodeError as fault:
        raise UndecodableBody(f"The body is not OTLP protobuf: {kind.__name__} cannot be read") from fault


def _text(walk: Walk, places: Iterable[tuple[int, int]]) -> str:
    text = ""
    for at, to in places:
        try:
            text = walk.buffer[at:to].decode()
        except UnicodeDecodeError as fault:
            raise UndecodableBody("The body is not OTLP protobuf: a text is not UTF-8") from fault
    return text


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as plain values; of a key sent twice the last one counts."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    # Nesting is bounded by the parser's own limit of some fifty AnyValues.
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "double_value":
        return double_value(value.double_value)
    if which == "bytes_value":
        return bytes_value(value.bytes_value)
    if which == "array_value":
        return [_value(v) for v in value.array_value.values]
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
