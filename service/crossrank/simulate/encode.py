"""Events as the bytes a rank would send: NDJSON (full form), NDJSON (seed form), Arrow stream and OTLP protobuf.

The JSON forms are built column by column (text of a column, then one join over all columns), not event by event, so that a
simulated job can be posted faster than a service reads it. Nulls are left out; an open span has an explicit `"end_ns":null`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from crossrank.model.columns import EVENT_COLUMNS

NDJSON_TYPE: Final = "application/x-ndjson"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
PROTOBUF_TYPE: Final = "application/x-protobuf"

_SENT: Final = tuple(c.name for c in EVENT_COLUMNS if c.sent)
_SLICE_ROWS: Final = 65_536
_SEED_OUTSIDE: Final = ("trace_id", "span_id", "parent_span_id", "rank")  # top-level fields of the seed form
_SEED_ELSEWHERE: Final = (*_SEED_OUTSIDE, "name", "start_ns", "end_ns", "links", "attrs", "otel")
_RESOURCE: Final = ("job", "attempt", "rank", "host", "clock")  # OTLP: said once a rank
_SPAN_FIELDS: Final = ("lane", "kind", "step", "group", "seq", "group_ranks", "op", "peer", "bytes", "dtype", "value")


def ndjson(events: pa.Table) -> bytes:
    """The full form, one line an event in row order."""
    parts = []
    for part in _slices(events):
        texts = {name: _json_text(_column(part, name)) for name in _SENT}
        open_end = pc.is_null(_column(part, "end_ns"))
        texts["end_ns"] = pc.if_else(open_end, "null", texts["end_ns"])
        texts["is_async"] = pc.if_else(_column(part, "is_async"), "true", pa.scalar(None, pa.string()))
        parts.append(_lines(_fields(texts)))
    return b"".join(parts)


def seed_form(events: pa.Table) -> bytes:
    """Halves of pairs in the order of their stamps: `forward_start` with all that is known, `forward_end` with what joins them."""
    parts = []
    for part in _slices(events):
        outside = {name: _json_text(_column(part, name)) for name in _SEED_OUTSIDE}
        inside = {name: _json_text(_column(part, name)) for name in _SENT if name not in _SEED_ELSEWHERE}
        more = pc.binary_join_element_wise(",", pc.utf8_slice_codeunits(_column(part, "attrs"), 1, -1), "")
        whole = pc.binary_join_element_wise(_fields(inside), pc.coalesce(more, ""), "")
        identity = _fields({name: inside[name] for name in ("job", "attempt")})
        closed = pc.is_valid(_column(part, "end_ns"))
        lines = [_half(part, outside, whole, "start")]
        lines.append(_half(part, outside, identity, "end").filter(closed))
        stamps = pa.concat_arrays([_column(part, "start_ns"), _column(part, "end_ns").filter(closed)])
        order = np.argsort(stamps.to_numpy(zero_copy_only=False), kind="stable")
        parts.append("".join(pa.concat_arrays(lines).take(pa.array(order)).to_pylist()).encode())
    return b"".join(parts)


def arrow_stream(events: pa.Table) -> bytes:
    """An Arrow IPC stream of the columns a sender has."""
    sink = pa.BufferOutputStream()
    sent = events.select(list(_SENT))
    with pa.ipc.new_stream(sink, sent.schema) as writer:
        writer.write_table(sent)
    return sink.getvalue().to_pybytes()


def otlp_protobuf(events: pa.Table) -> bytes:
    """One ExportTraceServiceRequest: a resource for each rank, known fields as `crossrank.*` attributes, the rest as they are.

    An open span has the end time 0, the protocol's way to say "not set".
    """
    request = ExportTraceServiceRequest()
    scopes: dict[tuple[Any, ...], Any] = {}
    for row in _rows(events):
        key = tuple(row[name] for name in _RESOURCE)
        if key not in scopes:
            resource = request.resource_spans.add()
            resource.resource.attributes.extend(_attribute(f"crossrank.{n}", row[n]) for n in _RESOURCE if row[n] is not None)
            scopes[key] = resource.scope_spans.add()
            scopes[key].scope.name = "crossrank.simulate"
        scopes[key].spans.append(_span(row))
    return request.SerializeToString()


def _slices(events: pa.Table) -> Iterator[pa.Table]:
    for at in range(0, events.num_rows, _SLICE_ROWS):
        yield events.slice(at, _SLICE_ROWS)


def _rows(events: pa.Table) -> Iterator[dict[str, Any]]:
    for part in _slices(events):
        yield from part.to_pylist()


def _column(events: pa.Table, name: str) -> pa.Array:
    column = events.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _fields(texts: dict[str, pa.Array]) -> pa.Array:
    """`"a":1,"b":2` for each row. The first column is never null (job); the others bring their comma."""
    pieces = []
    for number, (name, text) in enumerate(texts.items()):
        start = f'"{name}":' if number == 0 else f',"{name}":'
        pieces.append(pc.coalesce(pc.binary_join_element_wise(start, text, ""), ""))
    return pc.binary_join_element_wise(*pieces, "")


def _lines(fields: pa.Array) -> bytes:
    return "".join(pc.binary_join_element_wise("{", fields, "}\n", "").to_pylist()).encode()


def _half(events: pa.Table, outside: dict[str, pa.Array], attrs: pa.Array, half: str) -> pa.Array:
    name = _column(events, "name")
    event = _json_text(pa.DictionaryArray.from_arrays(name.indices, pc.binary_join_element_wise(name.dictionary, half, "_")))
    stamp = _json_text(_column(events, f"{half}_ns"))
    first = {"event": event, **outside, "timestamp_ns": stamp}
    return pc.binary_join_element_wise("{", _fields(first), ',"attrs":{', attrs, "}}\n", "")


def _json_text(column: pa.Array) -> pa.Array:
    """Each value as JSON text; null stays null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = pa.array([json.dumps(word) for word in column.dictionary.to_pylist()], pa.string())
        return words.take(column.indices)
    if pa.types.is_fixed_size_binary(kind):
        return pc.binary_join_element_wise('"', _hex(column), '"', "")
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "true", "false")
    if pa.types.is_string(kind):  # attrs and otel are JSON text already
        return column
    if pa.types.is_list(kind):
        return _json_list(column)
    return column.cast(pa.string())


def _json_list(column: pa.Array) -> pa.Array:
    values = _json_text(column.values)
    texts = pa.ListArray.from_arrays(column.offsets, values)
    joined = pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")
    return pc.if_else(pc.is_valid(column), joined, pa.scalar(None, pa.string()))


def _hex(column: pa.Array) -> pa.Array:
    """Ids as lower-case hex text."""
    width, n = column.type.byte_width, len(column)
    raw = column.buffers()[1]
    digits = raw[column.offset * width : (column.offset + n) * width].to_pybytes().hex().encode() if n else b""
    offsets = np.arange(n + 1, dtype=np.int32) * (2 * width)
    text = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(digits))
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))


def _span(row: dict[str, Any]) -> Span:
    span = Span(
        trace_id=row["trace_id"] or b"",
        span_id=row["span_id"],
        parent_span_id=row["parent_span_id"] or b"",
        name=row["name"],
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=row["start_ns"],
        end_time_unix_nano=row["end_ns"] or 0,
    )
    span.attributes.extend(_attribute(f"crossrank.{n}", row[n]) for n in _SPAN_FIELDS if row[n] is not None)
    if row["is_async"]:
        span.attributes.append(_attribute("crossrank.is_async", True))
    if row["attrs"]:
        span.attributes.extend(_attribute(key, value) for key, value in json.loads(row["attrs"]).items())
    return span


def _attribute(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=_any_value(value))


def _any_value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[_any_value(item) for item in value]))
        case _:
            return AnyValue(string_value=str(value))
