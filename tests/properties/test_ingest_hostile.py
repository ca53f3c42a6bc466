"""Whatever bytes come, the answer is admitted events or one of three declared faults, soon and in bounded memory."""

import gzip
import json
import random

import hypothesis.strategies as st
import pyarrow as pa
import pytest
import zstandard
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crossrank.errors import BodyTooLarge, UndecodableBody, UnsupportedType
from crossrank.ingest.reasons import REASONS
from crossrank.ingest.wire import within
from crossrank.limits import Limits
from tests.support.naive_ingest import any_value, arrow_stream, every_body, take

EVENTS = [
    {
        "job": "j", "rank": i, "name": "all_reduce", "kind": "collective", "op": "all_reduce", "group": "dp", "seq": i, "step": 1,
        "group_ranks": [0, 1], "start_ns": 10**18 + i, "end_ns": 10**18 + i + 5, "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": f"{i + 1:016x}", "parent_span_id": "b7ad6b7169203331", "links": ["b7ad6b7169203332"],
        "attrs": {"x": 1, "y": [1.5, None, {"z": "é"}], "w": "v"},
    }
    for i in range(5)
]  # fmt: skip
BODIES = every_body(EVENTS)
TYPES = [
    ("events", "application/x-ndjson"),
    ("events", "application/json"),
    ("events", "application/vnd.apache.arrow.stream"),
    ("traces", "application/x-protobuf"),
    ("traces", "application/json"),
]
LIMITS = Limits(body_bytes=1 << 20, events_per_body=10_000)


def attempt(route, content_type, body, encoding="", limits=LIMITS):
    """The admitted events, or None when the body was refused as a whole; anything else is a fault of ours."""
    try:
        admitted = take(route, content_type, body, encoding=encoding, limits=limits)
    except (UndecodableBody, BodyTooLarge, UnsupportedType):
        return None
    assert {r.reason for r in admitted.rejections} <= set(REASONS)
    return admitted


@settings(max_examples=60)
@given(st.binary(max_size=300), st.sampled_from(TYPES), st.sampled_from(["", "gzip", "deflate", "zstd"]))
def test_random_bytes(body, kind, encoding):
    attempt(*kind, body, encoding)


json_text = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*EVENTS[0], "event", "timestamp_ns", "events", "?"]), inner, max_size=5)
    ),
    max_leaves=20,
).map(json.dumps)


@settings(max_examples=60)
@given(json_text, st.sampled_from([kind for kind in TYPES if "json" in kind[1]]))
def test_json_of_any_shape(text, kind):
    attempt(*kind, text.encode(errors="surrogatepass"))


@settings(max_examples=60)
@given(st.data())
def test_events_with_fields_of_any_type(data):
    odd = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2)
        | st.just({})
    )
    events = [e | data.draw(st.dictionaries(st.sampled_from([*e, "event", "timestamp_ns"]), odd, max_size=3)) for e in EVENTS]
    admitted = attempt("events", "application/json", json.dumps(events).encode())
    assert admitted is not None
    assert admitted.events.num_rows + len(admitted.rejections) == len(events)


def mutations(body: bytes, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    out = [body[: rng.randrange(len(body))] for _ in range(8)]
    for _ in range(24):
        edited = bytearray(body)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(len(edited))
            match rng.randrange(4):
                case 0:
                    edited[at] ^= 1 << rng.randrange(8)
                case 1:
                    edited[at : at + 1] = rng.choice([b"\xff", b"\0", b"\x80", b'"', b"{", b"[", b",", b"9" * 30, b"\\u0000"])
                case 2:
                    del edited[at : at + rng.randrange(1, 9)]
                case 3:
                    edited[at:at] = edited[: rng.randrange(min(64, len(edited)) + 1)]
            if not edited:
                edited = bytearray(b"\0")
        out.append(bytes(edited))
    return out


@pytest.mark.parametrize("name", BODIES)
def test_mutated_bodies(name):
    good = BODIES[name]
    for i, body in enumerate(mutations(good.body, seed=len(name)) * 2):
        attempt(good.route, good.content_type, body, good.content_encoding if i % 2 else "")


def test_mutated_arrow_streams():
    stream = arrow_stream(take("events", "application/x-ndjson", BODIES["ndjson"].body).events)
    assert attempt("events", "application/vnd.apache.arrow.stream", stream).events.num_rows == len(EVENTS)
    for seed in range(12):
        for body in mutations(stream, seed):
            attempt("events", "application/vnd.apache.arrow.stream", body)


def test_protobuf_is_accepted_exactly_when_protobuf_accepts_it():
    accepted = refused = 0
    for seed in range(25):
        for body in mutations(BODIES["otlp protobuf"].body, seed):
            try:
                spans = sum(len(s.spans) for r in ExportTraceServiceRequest.FromString(body).resource_spans for s in r.scope_spans)
            except DecodeError:
                assert attempt("traces", "application/x-protobuf", body) is None, body.hex()
                refused += 1
                continue
            admitted = attempt("traces", "application/x-protobuf", body)
            assert admitted is not None, body.hex()
            assert admitted.events.num_rows + len(admitted.rejections) == spans
            accepted += 1
    assert accepted > 50
    assert refused > 50


def deep_any_value(depth: int) -> bytes:
    """A span whose attribute nests array values, written on the wire from the inside out."""

    def field(number: int, payload: bytes) -> bytes:
        size, out = len(payload), bytearray([number << 3 | 2])
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        return bytes(out) + bytes([size]) + payload

    value = b"\x18\x01"
    for _ in range(depth):
        value = field(5, field(1, value))
    span = (
        field(1, b"\1" * 16)
        + field(2, b"\2" * 8)
        + field(9, field(1, b"k") + field(2, value))
        + b"\x39"
        + (5).to_bytes(8, "little")
    )
    return field(1, field(2, field(2, span)))


@pytest.mark.parametrize("depth", [10, 10**2, 10**3, 10**4])
def test_deep_nesting(depth):
    nested = b'{"arrayValue":{"values":[' * depth + b"{}" + b"]}}" * depth
    span = b'{"traceId":"%s","spanId":"%s","startTimeUnixNano":1,"attributes":[{"key":"k","value":%s}]}' % (
        b"1" * 32,
        b"2" * 16,
        nested,
    )
    bodies = [
        ("traces", "application/json", b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + span + b"]}]}]}"),
        ("traces", "application/json", b"[" * depth),
        ("traces", "application/json", b'{"resourceSpans":' + b"[" * depth),
        ("events", "application/json", b'[{"rank":0,"attrs":{"a":' + b"[" * depth + b"]" * depth + b"}}]"),
        ("events", "application/json", b'{"events":' * depth),
        ("events", "application/x-ndjson", b'{"rank":' + b"[" * depth),
        ("events", "application/x-ndjson", b'{"x":' * depth),
    ]
    if depth <= 10**3:  # beyond it, writing the nested lengths is what takes the time
        bodies.append(("traces", "application/x-protobuf", deep_any_value(depth)))
    for route, kind, body in bodies:
        admitted = attempt(route, kind, body)
        assert admitted is None or admitted.events.num_rows == (1 if depth == 10 and route == "traces" else 0) or depth == 10


def test_a_million_levels_are_refused_at_once():

    for route, kind in TYPES:
        for opening in (b"[", b'{"a":', b'{"events":[', b"\x0a" * 2, b"\x0b"):
            admitted = attempt(route, kind, opening * (10**6 // len(opening)), limits=Limits())
            assert admitted is None or admitted.events.num_rows == 0


def test_bodies_of_tiny_parts_are_bounded():
    small = Limits(events_per_body=1000)
    for body in (
        b"\x0a\x00" * 100_000,
        b"\x08\x01" * 100_000,
        b"\x0a\x02\x12\x00" * 100_000,
        b"\x0a\x04\x12\x02\x12\x00" * 100_000,
    ):
        assert attempt("traces", "application/x-protobuf", body, limits=small) is None
    for body in (b"[" + b"0," * 100_000 + b"0]", b"0\n" * 100_000, b'[{"job":"a"}' + b',{"job":"a"}' * 100_000 + b"]"):
        assert attempt("events", "application/json", body, limits=small) is None
    spans = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 100_000 + b"{}]}]}]}"
    assert attempt("traces", "application/json", spans, limits=small) is None


def test_bombs_of_every_encoding_stop_at_the_cap():
    line = json.dumps(EVENTS[0]).encode() + b"\n"
    clear = line * (LIMITS.body_bytes // len(line) + 1)
    for encoding, squeeze in (("gzip", gzip.compress), ("zstd", zstandard.compress)):
        assert attempt("events", "application/x-ndjson", squeeze(clear), encoding) is None
        assert attempt("events", "application/x-ndjson", squeeze(clear[: LIMITS.body_bytes]), encoding) is not None


def arrow_body(columns: dict[str, pa.Array], **options) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


ONE = {"job": pa.array(["j"]), "rank": pa.array([0]), "start_ns": pa.array([5]), "end_ns": pa.array([7])}


@pytest.mark.parametrize(
    "column",
    [
        {"rank": pa.array([0.0])},
        {"rank": pa.array(["0"])},
        {"start_ns": pa.array([1.5e18])},
        {"bytes": pa.array([2**64 - 1], pa.uint64())},
        {"name": pa.array([b"x"])},
        {"name": pa.array(["x"], pa.string_view())},
        {"attrs": pa.array(["{}"]).dictionary_encode()},
        {"attrs": pa.array([{"a": 1}])},
        {"span_id": pa.array([b"abc"])},
        {"links": pa.array([["00"]])},
        {"group_ranks": pa.array([1])},
        {"value": pa.array(["1"])},
        {"lane": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], pa.string()))},
    ],
    ids=lambda c: f"{next(iter(c))} {next(iter(c.values())).type}",
)
def test_arrow_columns_of_other_types_are_refused(column):
    assert attempt("events", "application/vnd.apache.arrow.stream", arrow_body(ONE | column)) is None


def test_arrow_columns_of_compatible_types_are_cast():
    columns = ONE | {
        "rank": pa.array([3], pa.uint8()),
        "start_ns": pa.array([5], pa.timestamp("us")),
        "name": pa.array(["forward"], pa.large_string()),
        "lane": pa.array(["a"]).dictionary_encode(),
        "span_id": pa.array(["00000000000000A1"]),
        "value": pa.array([1], pa.int32()),
        "attrs": pa.array(['{"b":1, "a":2}']),
        "group_ranks": pa.array([[1, 2]], pa.large_list(pa.int16())),
        "mine": pa.array([1]),
    }
    admitted = attempt("events", "application/vnd.apache.arrow.stream", arrow_body(columns))
    (row,) = admitted.events.to_pylist()
    assert (row["rank"], row["start_ns"], row["name"], row["lane"], row["value"]) == (3, 5000, "forward", "a", 1.0)
    assert (row["span_id"].hex(), row["attrs"], row["group_ranks"]) == ("00000000000000a1", '{"a":2,"b":1}', [1, 2])
    assert admitted.warnings == ("columns that are not event columns were ignored: mine",)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_arrow_buffers_are_refused(codec):
    assert attempt("events", "application/vnd.apache.arrow.stream", arrow_body(ONE)) is not None
    assert attempt("events", "application/vnd.apache.arrow.stream", arrow_body(ONE, compression=codec)) is None
    words = {"job": pa.array(["j" * 50] * 3).dictionary_encode()}
    assert attempt("events", "application/vnd.apache.arrow.stream", arrow_body(words, compression=codec)) is None


@pytest.mark.parametrize("attribute", ["crossrank.host", "crossrank.group_ranks"])
def test_a_large_resource_before_many_spans_is_not_multiplied(attribute):
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    value = any_value("h" * 60_000 if attribute.endswith("host") else list(range(1, 20_000)))
    resource.resource.attributes.add(key=attribute, value=value)
    spans = resource.scope_spans.add().spans
    for i in range(2000):
        spans.add(trace_id=b"\1" * 16, span_id=(i + 1).to_bytes(8, "big"), start_time_unix_nano=5)
    assert attempt("traces", "application/x-protobuf", request.SerializeToString()) is None


def test_the_depth_of_groups_and_messages_is_counted_as_protobuf_counts_it():
    for depth in (97, 98, 99, 100, 101):
        for inside in ([], [1], [1, 2], [1, 2, 2], [1, 1], [1, 2, 1]):
            body = within(b"\x7b" * depth + b"\x7c" * depth, *inside)
            try:
                ExportTraceServiceRequest.FromString(body)
            except DecodeError:
                assert attempt("traces", "application/x-protobuf", body) is None, (depth, inside)
            else:
                assert attempt("traces", "application/x-protobuf", body) is not None, (depth, inside)
    for depth in range(20, 60):
        body = deep_any_value(depth)
        try:
            ExportTraceServiceRequest.FromString(body)
        except DecodeError:
            assert attempt("traces", "application/x-protobuf", body) is None, depth
        else:
            assert attempt("traces", "application/x-protobuf", body) is not None, depth
