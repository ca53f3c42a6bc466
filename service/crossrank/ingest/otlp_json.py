"""OTLP/HTTP JSON bodies to columns: a decoder of our own, since protobuf's json_format reads ids as base64 and refuses new fields.

Ids are hex of either case. 64-bit integers come as decimal text or as numbers and never pass through a float. Keys may be
camelCase (the standard) or snake_case (some senders); unknown ones are ignored, null is "not set", of a key sent twice the last
one counts. The levels that only hold others are cut into slices first, so a span that cannot be read costs only itself.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.ingest import reasons
from crossrank.ingest.event_form import Refused
from crossrank.ingest.ids import is_unset
from crossrank.ingest.json_slices import ABSENT, fields, is_too_long_a_list
from crossrank.ingest.otlp_common import Around, Span, SpanEvent, SpanLink, SpanRows
from crossrank.ingest.otlp_values import bytes_value, double_value
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep
from crossrank.model.decoded import Decoded

_ANY: Final = msgspec.json.Decoder()
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_UINT32: Final = 2**32
_UINT64: Final = 2**64
_DOUBLES: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def decode(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """An ExportTraceServiceRequest in JSON. Raises UndecodableBody, BodyTooLarge."""
    rows = SpanRows(job, limits)
    for context, items in scopes(body, rows, limits):
        for item in items:
            add_span(item, rows.next_index(), context, rows, limits)
    return rows.decoded()


def scopes(body: bytes, rows: SpanRows, limits: Limits) -> Iterator[tuple[Around, list[msgspec.Raw]]]:
    """What surrounds the spans of each scope, and these as slices of the body. Raises UndecodableBody, BodyTooLarge."""
    if is_too_long_a_list(body):
        raise BodyTooLarge("The body holds too many values; send it in parts")
    request = fields(body, _Request, "The OTLP JSON body")
    for part in _either(request.resource_spans, request.resource_spans_snake):
        resource = _around_part(part.resource, part.schema_url, "resource", limits)
        for inner in _either(part.scope_spans, part.scope_spans_snake):
            try:
                context = rows.around(resource, _around_part(inner.scope, inner.schema_url, "scope", limits))
            except TooDeep:
                raise UndecodableBody("Attributes of the resource or scope are nested too deeply") from None
            yield context, inner.spans or []


class _WithSchema(msgspec.Struct, gc=False):
    schema_url_camel: msgspec.Raw = msgspec.field(name="schemaUrl", default=ABSENT)
    schema_url_snake: msgspec.Raw = msgspec.field(name="schema_url", default=ABSENT)

    @property
    def schema_url(self) -> msgspec.Raw:
        return self.schema_url_camel if bytes(self.schema_url_camel) else self.schema_url_snake


class _ScopeSpans(_WithSchema, gc=False):
    scope: msgspec.Raw = ABSENT
    spans: list[msgspec.Raw] | None = None


class _ResourceSpans(_WithSchema, gc=False):
    resource: msgspec.Raw = ABSENT
    scope_spans: list[_ScopeSpans] | None = msgspec.field(name="scopeSpans", default=None)
    scope_spans_snake: list[_ScopeSpans] | None = msgspec.field(name="scope_spans", default=None)


class _Request(msgspec.Struct, gc=False):
    resource_spans: list[_ResourceSpans] | None = msgspec.field(name="resourceSpans", default=None)
    resource_spans_snake: list[_ResourceSpans] | None = msgspec.field(name="resource_spans", default=None)


_Part = TypeVar("_Part")


def _either(camel: list[_Part] | None, snake: list[_Part] | None) -> list[_Part]:
    return (snake if camel is None else camel) or []


def _around_part(data: msgspec.Raw, schema_url: msgspec.Raw, key: str, limits: Limits) -> dict[str, Any]:
    """A resource or scope, with the schema URL that stands beside it."""
    if len(memoryview(data)) + len(memoryview(schema_url)) > limits.event_bytes:
        raise BodyTooLarge(f"A {key} is larger than {limits.event_bytes} bytes")
    try:
        part = _map(_ANY.decode(bytes(data) or b"null"), key)
        schema = _ANY.decode(bytes(schema_url) or b"null")
        return {
            "name": _text(part, "name", "name"),
            "version": _text(part, "version", "version"),
            "attributes": _attributes(part),
            "dropped_attributes_count": _unsigned(part, "droppedAttributesCount", "dropped_attributes_count", _UINT32),
            "schema_url": _text({"schemaUrl": schema}, "schemaUrl", "schema_url"),
            "entity_refs": [
                _entity(_map(e, "entityRefs")) for e in _list({"entityRefs": _get(part, "entityRefs", "entity_refs")}, "entityRefs")
            ],
        }
    except Refused as refused:
        raise UndecodableBody(f"The {key} cannot be read: {refused.detail}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as fault:
        raise UndecodableBody(f"The {key} cannot be read: {fault}") from fault


def _entity(found: dict[str, Any]) -> dict[str, Any]:
    def names(camel: str, snake: str) -> list[str]:
        return [_string(name) for name in _list({camel: _get(found, camel, snake)}, camel)]

    return {
        "schema_url": _text(found, "schemaUrl", "schema_url"),
        "type": _text(found, "type", "type"),
        "id_keys": names("idKeys", "id_keys"),
        "description_keys": names("descriptionKeys", "description_keys"),
    }


def add_span(item: msgspec.Raw, index: int, context: Around, rows: SpanRows, limits: Limits) -> None:
    """Reads and adds one span, or refuses it."""
    if len(memoryview(item)) > limits.event_bytes:
        rows.refuse(index, reasons.TOO_LARGE, "", context)
        return
    try:
        span = _span(_map(_ANY.decode(item), "span"))
    except Refused as refused:
        rows.refuse(index, refused.reason, refused.detail, context)
    except RecursionError:
        rows.refuse(index, reasons.TOO_DEEP, "", context)
    except msgspec.ValidationError as fault:
        rows.refuse(index, reasons.OUT_OF_RANGE, str(fault), context)
    except (msgspec.DecodeError, UnicodeError) as fault:
        rows.refuse(index, reasons.BAD_JSON, str(fault), context)
    else:
        rows.add(index, span, context)


def _span(found: dict[str, Any]) -> Span:
    status = _map(found.get("status"), "status")
    parent = _text(found, "parentSpanId", "parent_span_id")
    parent_id = _hex(parent)
    return Span(
        trace_id=_id(found, "traceId", "trace_id", reasons.INVALID_TRACE_ID),
        span_id=_id(found, "spanId", "span_id", reasons.INVALID_SPAN_ID),
        parent_span_id=parent_id or b"",
        parent_invalid=parent_id is None,
        name=_text(found, "name", "name"),
        start_ns=_unsigned(found, "startTimeUnixNano", "start_time_unix_nano", _UINT64),
        end_ns=_unsigned(found, "endTimeUnixNano", "end_time_unix_nano", _UINT64),
        attrs=_attributes(found),
        kind=_enum(found, "kind"),
        trace_state=_text(found, "traceState", "trace_state"),
        flags=_unsigned(found, "flags", "flags", _UINT32),
        events=[_event(_map(e, "event")) for e in _list(found, "events")],
        links=[_link(_map(ln, "link")) for ln in _list(found, "links")],
        status_code=_enum(status, "code"),
        status_message=_text(status, "message", "message"),
        dropped_attributes=_unsigned(found, "droppedAttributesCount", "dropped_attributes_count", _UINT32),
        dropped_events=_unsigned(found, "droppedEventsCount", "dropped_events_count", _UINT32),
        dropped_links=_unsigned(found, "droppedLinksCount", "dropped_links_count", _UINT32),
    )


def _event(found: dict[str, Any]) -> SpanEvent:
    return SpanEvent(
        time_ns=_unsigned(found, "timeUnixNano", "time_unix_nano", _UINT64),
        name=_text(found, "name", "name"),
        attrs=_attributes(found),
        dropped_attributes=_unsigned(found, "droppedAttributesCount", "dropped_attributes_count", _UINT32),
    )


def _link(found: dict[str, Any]) -> SpanLink:
    return SpanLink(
        trace_id=_hex(_text(found, "traceId", "trace_id")) or b"",
        span_id=_hex(_text(found, "spanId", "span_id")) or b"",
        trace_state=_text(found, "traceState", "trace_state"),
        attrs=_attributes(found),
        flags=_unsigned(found, "flags", "flags", _UINT32),
        dropped_attributes=_unsigned(found, "droppedAttributesCount", "dropped_attributes_count", _UINT32),
    )


def _get(found: Mapping[str, Any], camel: str, snake: str) -> Any:
    value = found.get(camel)
    return found.get(snake) if value is None else value


def _map(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(reasons.BAD_TYPE, f"{what}: expected an object, got {type(value).__name__}")
    return value


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Refused(reasons.BAD_TYPE, f"{key}: expected an array, got {type(value).__name__}")
    return value


def _text(found: Mapping[str, Any], camel: str, snake: str) -> str:
    value = _get(found, camel, snake)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(reasons.BAD_TYPE, f"{camel}: expected a string, got {type(value).__name__}")
    return value


def _whole(value: Any, what: str) -> int:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    if type(value) is int:
        return value
    raise Refused(reasons.BAD_TYPE, f"{what}: expected an integer or its decimal text, got {type(value).__name__}")


def _unsigned(found: Mapping[str, Any], camel: str, snake: str, beyond: int) -> int:
    value = _get(found, camel, snake)
    if value is None:
        return 0
    number = _whole(value, camel)
    if not 0 <= number < beyond:
        raise Refused(reasons.TIME_RANGE if camel.endswith("Nano") else reasons.OUT_OF_RANGE, camel)
    return number


def _enum(found: Mapping[str, Any], key: str) -> int:
    """An enum by number; names, which senders must not use, are read as well. Unknown numbers are kept."""
    value = found.get(key)
    if isinstance(value, str) and value in _ENUM_NAMES:
        return _ENUM_NAMES[value]
    number = 0 if value is None else _whole(value, key)
    if not -(2**31) <= number < 2**31:
        raise Refused(reasons.OUT_OF_RANGE, key)
    return number


_ENUM_NAMES: Final = {
    f"{prefix}_{name}": number
    for prefix, names in (
        ("SPAN_KIND", ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")),
        ("STATUS_CODE", ("UNSET", "OK", "ERROR")),
    )
    for number, name in enumerate(names)
}


def _id(found: Mapping[str, Any], camel: str, snake: str, reason: str) -> bytes:
    text = _text(found, camel, snake)
    raw = _hex(text)
    if raw is None:
        raise Refused(reason, f"{camel} {text[:60]!r} is not hex (base64 is not accepted)")
    return raw


def _hex(text: str) -> bytes | None:
    """The bytes of a hex text of any length, None when it is not hex; an id of zeros only is no id."""
    if is_unset(text):
        return b""
    return bytes.fromhex(text) if _HEX.fullmatch(text) else None


def _attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    return _pairs(found.get("attributes"), "attributes")


def _pairs(value: Any, what: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for pair in _list({what: value}, what):
        pair_map = _map(pair, what)
        out[_text(pair_map, "key", "key")] = _value(pair_map.get("value"))
    return out


def _value(sent: Any) -> Any:
    """An AnyValue; its nesting is bounded because the parser's was (a thousand levels at most)."""
    for kind, value in _map(sent, "value").items():
        if value is None or kind not in READERS:
            continue
        return READERS[kind](value)
    return None


def _string(value: Any) -> str:
    return _text({"stringValue": value}, "stringValue", "")


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(reasons.BAD_TYPE, f"boolValue: expected true or false, got {type(value).__name__}")
    return value


def _int(value: Any) -> int:
    number = _whole(value, "intValue")
    if not -(2**63) <= number < 2**63:
        raise Refused(reasons.OUT_OF_RANGE, "intValue")
    return number


def _double(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return double_value(_DOUBLES[value] if value in _DOUBLES else float(value))
        except ValueError:
            raise Refused(reasons.BAD_TYPE, "doubleValue: not a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(reasons.BAD_TYPE, f"doubleValue: expected a number, got {type(value).__name__}")
    try:
        return double_value(float(value))
    except OverflowError:
        raise Refused(reasons.OUT_OF_RANGE, "doubleValue") from None


def _bytes(value: Any) -> Any:
    try:
        return bytes_value(b64decode(_string(value).replace("-", "+").replace("_", "/"), validate=True))
    except (Base64Error, ValueError):
        raise Refused(reasons.BAD_TYPE, "bytesValue: not base64") from None


def _array(value: Any) -> list[Any]:
    return [_value(v) for v in _list(_map(value, "arrayValue"), "values")]


def _kvlist(value: Any) -> dict[str, Any]:
    return _pairs(_map(value, "kvlistValue").get("values"), "values")


READERS: Final = {
    name: reader
    for names, reader in (
        (("stringValue", "string_value"), _string),
        (("boolValue", "bool_value"), _bool),
        (("intValue", "int_value"), _int),
        (("doubleValue", "double_value"), _double),
        (("bytesValue", "bytes_value"), _bytes),
        (("arrayValue", "array_value"), _array),
        (("kvlistValue", "kvlist_value"), _kvlist),
    )
    for name in names
}
