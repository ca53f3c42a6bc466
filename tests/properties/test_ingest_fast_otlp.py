"""The compiled OTLP decoder gives what the plain one gives: same columns, same rejections, same warnings, same refusals."""

import json
import random

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crossrank.ingest import otlp_fast, otlp_protobuf
from crossrank.ingest.otlp_index import index_body
from crossrank.ingest.otlp_names import NAMES
from crossrank.ingest.otlp_walk import walk
from crossrank.limits import Limits
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import otlp_protobuf as encode_otlp
from crossrank.simulate.job import simulate
from tests.support.naive_ingest import any_value
from tests.support.same_decoding import same

USUAL = Limits()
SMALL = Limits(body_bytes=1 << 16, attrs_per_event=5, key_bytes=12, value_bytes=64, name_bytes=20, json_depth=3, event_bytes=2000)


def check(body, job=None, limits=USUAL):
    return same(otlp_fast.decode, otlp_protobuf.decode, body, job, limits)


def slow_share(body, limits=USUAL):
    buf = np.frombuffer(body, np.uint8)
    return walk(buf, index_body(buf, limits)[0], limits).spans.slow.mean()


word = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        "",
        "true",
        "false",
        "7",
        "0123",
        "9" * 19,
        "99999999999999999999",
        "COMPUTE",
        "mark",
        "a\0b",
        '"\\\n\x1f',
        "é" * 9,
        "😀" * 30,
        "x" * 70,
    ]
)
number = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 70) | st.sampled_from([2**31 - 1, 2**31, 2**53, 2**53 + 1, -(2**53)])
double = st.floats() | st.floats(-10, 10).map(lambda v: round(v, 2)) | st.sampled_from([1e16, 1e-5, -0.0, 123456789.125])
scalar = st.none() | st.booleans() | number | double | word | st.binary(max_size=4)
value = st.recursive(scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=2), max_leaves=4)
ranks = st.lists(st.integers(0, 9) | number, max_size=4)
key = (
    st.sampled_from(
        [*NAMES, "thread.id", "thread.name", "service.instance.id", "process.pid", "service.name", "x", "layer", "long key " * 3]
    )
    | word
)
attribute = st.tuples(key, value | word | number | ranks)
attribute_lists = st.lists(attribute, max_size=7)


def put(message, attributes):
    for name, content in attributes:
        message.attributes.add(key=name, value=any_value(content))


@st.composite
def span_fields(draw):
    fields = {
        "trace_id": draw(st.sampled_from([b"\1" * 16, b"\2" * 16, b"\1" * 16, b"\0" * 16, b"\1" * 15])),
        "span_id": draw(st.binary(min_size=8, max_size=8) | st.sampled_from([b"", b"\0" * 8])),
        "name": draw(word),
        "start_time_unix_nano": draw(st.integers(1, 2**63 - 1) | st.sampled_from([0, 2**63, 5])),
        "end_time_unix_nano": draw(st.integers(0, 2**63 - 1) | st.sampled_from([0, 2**63])),
    }
    optional = {
        "parent_span_id": st.sampled_from([b"\3" * 8, b"\0" * 8, b"\3" * 7]),
        "trace_state": word,
        "kind": st.integers(-1, 9),
        "flags": st.integers(0, 2**32 - 1),
        "dropped_attributes_count": st.integers(0, 2**32 - 1),
        "dropped_events_count": st.integers(0, 3),
        "dropped_links_count": st.integers(0, 3),
    }
    for name, strategy in optional.items():
        if draw(st.integers(0, 3)) == 0:
            fields[name] = draw(strategy)
    return fields


@st.composite
def requests(draw):
    request = ExportTraceServiceRequest()
    usual = draw(attribute_lists)
    for _ in range(draw(st.integers(0, 2))):
        resource = request.resource_spans.add(schema_url=draw(word))
        put(resource.resource, draw(attribute_lists))
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_spans.add(schema_url=draw(word))
            scope.scope.name = draw(word)
            put(scope.scope, draw(st.lists(attribute, max_size=2)))
            for _ in range(draw(st.integers(0, 4))):
                span = scope.spans.add(**draw(span_fields()))
                put(span, draw(st.just(usual) | attribute_lists))
                if draw(st.integers(0, 3)) == 0:
                    span.status.code = draw(st.integers(0, 3))
                    span.status.message = draw(word)
                if draw(st.integers(0, 5)) == 0:
                    event = span.events.add(time_unix_nano=draw(st.integers(0, 9)), name=draw(word))
                    put(event, draw(st.lists(attribute, max_size=2)))
                if draw(st.integers(0, 5)) == 0:
                    link = span.links.add(trace_id=b"\1" * 16, span_id=draw(st.sampled_from([b"\5" * 8, b"\5", b"\0" * 8])))
                    put(link, draw(st.lists(attribute, max_size=2)))
    return request.SerializeToString()


@settings(max_examples=150)
@given(requests(), st.sampled_from([None, "asked"]))
def test_any_request(body, job):
    check(body, job)


@settings(max_examples=60)
@given(requests())
def test_any_request_with_small_limits(body):
    check(body, None, SMALL)


@settings(max_examples=60)
@given(requests(), st.integers(0, 2**32))
def test_broken_requests(body, seed):
    rng = random.Random(seed)
    for _ in range(8):
        edited = bytearray(body or b"\x0a\x00")
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(edited))
            match rng.randrange(4):
                case 0:
                    edited[at] ^= 1 << rng.randrange(8)
                case 1:
                    edited[at] = rng.choice([0, 0x7F, 0x80, 0xFF, 0x0A, 0x12, 0x4A])
                case 2:
                    del edited[at : at + rng.randrange(1, 4)]
                case _:
                    edited[at:at] = rng.choice([b"\x0a\x00", b"\x80", b"\x4a\x02\x0a\x00", b"\xf8\x01\x05", b"\x0b\x0c"])
            edited = edited or bytearray(b"\0")
        body_now = bytes(edited)
        found = check(body_now)
        try:
            ExportTraceServiceRequest.FromString(body_now)
        except DecodeError:
            assert found == "UndecodableBody", body_now.hex()
        else:
            assert not isinstance(found, str), body_now.hex()


def request_of(attributes, spans=3, resource=(("crossrank.rank", 1), ("service.name", "svc"))):
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    put(part.resource, resource)
    scope = part.scope_spans.add()
    for i in range(spans):
        span = scope.spans.add(
            trace_id=b"\1" * 16, span_id=(i + 1).to_bytes(8, "big"), name="n", start_time_unix_nano=5, end_time_unix_nano=7
        )
        put(span, attributes(i) if callable(attributes) else attributes)
    return request


def test_usual_spans_are_not_read_slowly():
    attributes = [
        ("crossrank.step", 3),
        ("group", "dp"),
        ("loss", 0.25),
        ("ok", True),
        ("x", None),
        ("ranks", [1, 2]),
        ("b", b"\0"),
    ]
    body = request_of([*attributes, ("crossrank.group_ranks", [0, 1])]).SerializeToString()
    assert slow_share(body) == 0
    check(body)
    events = simulate(JobConfig(steps=3), seed=2).events
    assert slow_share(encode_otlp(events)) == 0


def test_simulated_jobs():
    check(encode_otlp(simulate(JobConfig(steps=6), seed=5).events))


@pytest.mark.parametrize("count", [127, 128, 129, 300])
def test_many_attributes(count):
    check(request_of([(f"k{(i * 7) % count:03d}", i) for i in range(count)]).SerializeToString())


def test_more_distinct_keys_and_texts_than_the_tables_hold_at_first():
    body = request_of(
        lambda i: [(f"key {i} {j}", f"value {i} {j} {'é' * (j % 7)}") for j in range(9)], spans=700
    ).SerializeToString()
    assert slow_share(body) == 0
    check(body)


def test_texts_of_every_length_and_escape():
    texts = ["".join(chr(32 + (i * 7 + j) % 90) for j in range(i)) for i in range(40)]
    texts += [
        t + chr(c) for t in ("", "abcdefg", "abcdefgh") for c in (*range(33), 127, 128, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF)
    ]
    check(request_of(lambda i: [(f"k{texts[i]}", texts[i]), ("k", texts[-i])], spans=len(texts)).SerializeToString())


@pytest.mark.parametrize(
    "bad", [b"\xff", b"ab\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"12345678\xff12345678", b"\xf0\x9f\x98"]
)
def test_texts_that_are_not_utf8_are_refused(bad):
    good = request_of([("k" * len(bad), "v" * len(bad))]).SerializeToString()
    for place in (b"k", b"v"):
        body = good.replace(place * len(bad), bad)
        with pytest.raises(DecodeError):
            ExportTraceServiceRequest.FromString(body)
        assert check(body) == "UndecodableBody"


def test_doubles_are_written_in_their_shortest_form():
    rng = np.random.default_rng(3)
    numbers = [
        *rng.normal(size=200),
        *np.round(rng.normal(size=200), 3),
        *(10.0 ** rng.integers(-30, 30, 50)),
        5e-324,
        1.7976931348623157e308,
    ]
    numbers += [*rng.integers(0, 2**63, 100).astype(np.int64).view(np.float64), float("nan"), float("inf"), float("-inf"), -0.0]
    check(request_of(lambda i: [("a", float(numbers[i])), ("b", float(numbers[-i]))], spans=len(numbers)).SerializeToString())


def test_fields_in_any_order_and_in_pieces():
    request = request_of([("step", 1)])
    span = request.resource_spans[0].scope_spans[0].spans[0].SerializeToString()
    pieces = [
        b"\x0a",
        b"\x12",
        b"\x2a\x01z",
        b"\x7a\x02\x18\x01",
        b"\x7a\x04\x12\x02hi",
        b"\x4a\x05\x0a\x01k\x12\x00",
        b"\x4a\x04\x12\x02\x18\x05",
    ]
    rng = random.Random(1)
    for _ in range(60):
        chosen = rng.sample(pieces[2:], rng.randrange(1, 5))
        wrapped = ExportTraceServiceRequest.FromString(request.SerializeToString())
        scope = wrapped.resource_spans[0].scope_spans[0]
        del scope.spans[:]
        mixed = b"".join(rng.choice(chosen) for _ in range(4)) + span + b"".join(chosen)
        body = wrapped.SerializeToString()
        inner = b"\x12" + bytes([len(mixed)]) + mixed
        scope_bytes = b"\x12" + bytes([len(inner)]) + inner
        check(body + b"\x0a" + len(scope_bytes).to_bytes(1, "little") + scope_bytes if len(scope_bytes) < 128 else body)


def test_a_merged_table_keeps_the_order_of_the_request():
    request = request_of(lambda i: [("i", i)], spans=50)
    for i, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        if i % 3 == 0:
            span.events.add(time_unix_nano=4, name="e")
        if i % 7 == 0:
            span.span_id = b""
    rows, index, rejections, _ = check(request.SerializeToString())
    assert index == [i for i in range(50) if i % 7]
    assert [json.loads(text)["i"] for text in rows.column("attrs").to_pylist()] == index
    assert [r.index for r in rejections] == [i for i in range(50) if i % 7 == 0]
    assert pa.types.is_string(rows.schema.field("name").type)
