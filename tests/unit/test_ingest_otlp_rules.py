"""OTLP conformance, one test a rule; the number in a name is the rule's in docs/formats.md (transport rules are tested over HTTP)."""

import json
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from crossrank.errors import UndecodableBody, UnsupportedType
from crossrank.limits import Limits
from crossrank.model.flags import EventFlag
from tests.support.naive_ingest import any_value, take

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
GOOD = {"traceId": TRACE, "spanId": SPAN, "name": "forward", "startTimeUnixNano": "100", "endTimeUnixNano": "200"}


def json_body(*spans, resource=(("crossrank.job", {"stringValue": "j"}), ("rank", {"intValue": "3"}))):
    attributes = [{"key": key, "value": value} for key, value in resource]
    return json.dumps(
        {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": list(spans)}]}]}
    ).encode()


def from_json(*spans, **options):
    return take("traces", "application/json", json_body(*spans, **options))


def from_protobuf(*spans, resource=(("crossrank.job", "j"), ("rank", 3)), job=None):
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    for key, value in resource:
        part.resource.attributes.add(key=key, value=any_value(value))
    part.scope_spans.add().spans.extend(spans)
    return take("traces", "application/x-protobuf", request.SerializeToString(), job=job)


def span(**changes):
    fields = {
        "trace_id": bytes.fromhex(TRACE),
        "span_id": bytes.fromhex(SPAN),
        "name": "forward",
        "start_time_unix_nano": 100,
        "end_time_unix_nano": 200,
    }
    attributes = changes.pop("attributes", {})
    built = Span(**(fields | changes))
    for key, value in attributes.items():
        built.attributes.add(key=key, value=any_value(value))
    return built


def only(admitted):
    assert admitted.rejections == ()
    (row,) = admitted.events.to_pylist()
    return row


def with_value(value):
    return only(from_json(GOOD | {"attributes": [{"key": "k", "value": value}]}))["attrs"]


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8", "APPLICATION/JSON"])
def test_rule_03_content_type_parameters_and_case(content_type):
    assert take("traces", content_type, json_body(GOOD)).events.num_rows == 1


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-ndjson", "application/grpc"])
def test_rule_05_other_content_types(content_type):
    with pytest.raises(UnsupportedType):
        take("traces", content_type, json_body(GOOD))


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate"])
def test_rule_09_bad_compressed_bytes(encoding):
    with pytest.raises(UndecodableBody):
        take("traces", "application/x-protobuf", b"\x0a\x00", encoding=encoding)


def test_rule_10_unknown_encoding():
    with pytest.raises(UnsupportedType):
        take("traces", "application/x-protobuf", b"\x0a\x00", encoding="br")


def test_rule_22_empty_requests():
    assert take("traces", "application/x-protobuf", b"").events.num_rows == 0
    assert take("traces", "application/x-protobuf", b"\x0a\x00").events.num_rows == 0
    for body in (
        b"{}",
        b'{"resourceSpans":[]}',
        b'{"resourceSpans":null}',
        b'{"resourceSpans":[{}]}',
        b'{"resourceSpans":[{"scopeSpans":[{}]}]}',
    ):
        assert take("traces", "application/json", body).events.num_rows == 0
    for body in (b"", b"[]", b"null", b"17"):
        with pytest.raises(UndecodableBody):
            take("traces", "application/json", body)


def test_rule_24_warning_without_rejection():
    admitted = from_json(GOOD, resource=[("service.name", {"stringValue": "trainer"})])
    assert (only(admitted)["job"], only(admitted)["rank"]) == ("trainer", 0)
    assert "no rank" in admitted.warnings[0]


def test_rule_25_all_spans_invalid_is_still_decodable():
    admitted = from_json(GOOD | {"spanId": ""}, GOOD | {"traceId": ""})
    assert [r.reason for r in admitted.rejections] == ["invalid_span_id", "invalid_trace_id"]


def test_rule_34_hex_of_either_case_and_never_base64():
    row = only(from_json(GOOD | {"traceId": TRACE.upper(), "spanId": SPAN.upper(), "parentSpanId": "AbCdEf0123456789"}))
    assert (row["trace_id"].hex(), row["span_id"].hex(), row["parent_span_id"].hex()) == (TRACE, SPAN, "abcdef0123456789")
    (rejection,) = from_json(GOOD | {"traceId": "Z6z8LqVvEI+kU1/Ci6mXBQ=="}).rejections
    assert rejection.reason == "invalid_trace_id"
    assert "base64" in rejection.detail


@pytest.mark.parametrize("sent", [1764425654123456789, "1764425654123456789"])
def test_rule_35_int64_as_number_or_text(sent):
    row = only(from_json(GOOD | {"startTimeUnixNano": sent, "endTimeUnixNano": sent}))
    assert (row["start_ns"], row["end_ns"]) == (1764425654123456789, 1764425654123456789)
    assert with_value({"intValue": sent}) == '{"k":1764425654123456789}'


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"low": 1, "high": 2}, "bad_type"),
        (1.5, "bad_type"),
        (1e18, "bad_type"),
        ("1e18", "bad_type"),
        (" 5", "bad_type"),
        (True, "bad_type"),
        (-1, "time_range"),
        (2**64, "time_range"),
        (str(2**64), "time_range"),
        ("9" * 21, "bad_type"),
    ],
    ids=str,
)
def test_rule_35_what_is_not_a_uint64(sent, reason):
    admitted = from_json(GOOD | {"startTimeUnixNano": sent}, GOOD)
    assert [(r.index, r.reason) for r in admitted.rejections] == [(0, reason)]
    assert admitted.events.num_rows == 1


def test_rule_35_doubles_as_text():
    assert with_value({"doubleValue": "1.5"}) == '{"k":1.5}'
    assert with_value({"doubleValue": 1}) == '{"k":1.0}'
    assert with_value({"doubleValue": "NaN"}) == '{"k":{"double":"NaN"}}'
    assert with_value({"doubleValue": "-Infinity"}) == '{"k":{"double":"-Infinity"}}'
    assert only(from_protobuf(span(attributes={"k": float("inf")})))["attrs"] == '{"k":{"double":"Infinity"}}'


def test_rule_36_enums():
    otel = json.loads(only(from_json(GOOD | {"kind": 99, "status": {"code": 7}}))["otel"])
    assert (otel["kind"], otel["status"]) == (99, {"code": 7})
    otel = json.loads(only(from_json(GOOD | {"kind": "SPAN_KIND_CLIENT", "status": {"code": "STATUS_CODE_ERROR"}}))["otel"])
    assert (otel["kind"], otel["status"]) == (3, {"code": 2})


def test_rule_37_snake_case():
    sent = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "start_time_unix_nano": 100,
        "end_time_unix_nano": "200",
        "parent_span_id": "abcdef0123456789",
    }
    sent["attributes"] = [{"key": "k", "value": {"array_value": {"values": [{"string_value": "v"}, {"int_value": 1}]}}}]
    body = json.dumps({"resource_spans": [{"scope_spans": [{"spans": [sent]}]}]}).encode()
    row = only(take("traces", "application/json", body, job="j"))
    assert (row["start_ns"], row["end_ns"], row["attrs"]) == (100, 200, '{"k":["v",1]}')


def test_rule_38_unknown_fields():
    assert (
        only(from_json(GOOD | {"new": {"a": [1, {"b": None}]}, "attributes": [{"key": "k", "value": {"newValue": 1}, "x": 2}]}))[
            "attrs"
        ]
        == '{"k":null}'
    )


def test_rule_39_null_is_unset_and_the_last_key_counts():
    nulls = dict.fromkeys(
        ("parentSpanId", "attributes", "events", "links", "status", "kind", "flags", "traceState", "droppedEventsCount")
    )
    assert only(from_json(GOOD | nulls))["attrs"] is None
    body = json_body(GOOD).replace(b'"name": "forward"', b'"name": "first", "name": "last"')
    assert only(take("traces", "application/json", body))["name"] == "last"


def test_rule_40_bytes_are_base64():
    assert with_value({"bytesValue": "AAH/"}) == '{"k":{"base64":"AAH/"}}'
    assert only(from_protobuf(span(attributes={"k": b"\0\1\xff"})))["attrs"] == '{"k":{"base64":"AAH/"}}'


def test_rule_41_every_kind_of_value():
    sent = {
        "s": "",
        "b": False,
        "i": -(2**63),
        "d": 0.0,
        "none": None,
        "l": [1, "a", [True, None], {}],
        "m": {"x": {"y": [b"\0"]}},
        "e": [],
    }
    expected = '{"b":false,"d":0.0,"e":[],"i":-9223372036854775808,"l":[1,"a",[true,null],{}],"m":{"x":{"y":[{"base64":"AA=="}]}},"none":null,"s":""}'
    assert only(from_protobuf(span(attributes=sent)))["attrs"] == expected
    assert with_value({}) == '{"k":null}'
    assert with_value({"arrayValue": {}}) == '{"k":[]}'
    assert with_value({"kvlistValue": {"values": [{"key": "x", "value": {"boolValue": True}}]}}) == '{"k":{"x":true}}'


@pytest.mark.parametrize("token", [b"NaN", b"Infinity", b"-Infinity"])
def test_rule_42_bare_nan(token):
    body = json_body(GOOD | {"attributes": [{"key": "k", "value": {"doubleValue": 12345}}]}).replace(b"12345", token)
    with pytest.raises(UndecodableBody):
        take("traces", "application/json", body)


def test_rule_43_bad_text():
    body = json_body(GOOD | {"name": "NAME"}, GOOD)
    assert [r.reason for r in take("traces", "application/json", body.replace(b"NAME", b"\xff\xfe")).rejections] == ["bad_json"]
    with pytest.raises(UndecodableBody):
        take("traces", "application/json", body.replace(b"NAME", b"\\ud800"))
    with pytest.raises(UndecodableBody):
        take(
            "traces",
            "application/x-protobuf",
            ExportTraceServiceRequest().SerializeToString() + b"\x0a\x08\x12\x06\x12\x04\x2a\x02\xff\xfe",
        )


def test_rule_43_nul():
    assert only(from_json(GOOD | {"name": "a\0b"}))["name"] == "a\N{REPLACEMENT CHARACTER}b"
    assert only(from_protobuf(span(name="a\0b")))["name"] == "a\N{REPLACEMENT CHARACTER}b"


def bad_ids() -> Iterator[tuple[str, bytes, str]]:
    for size in (0, 1, 15, 17, 32):
        yield "trace_id", b"\1" * size, "invalid_trace_id"
    yield "trace_id", bytes(16), "invalid_trace_id"
    for size in (0, 1, 7, 9, 16):
        yield "span_id", b"\1" * size, "invalid_span_id"
    yield "span_id", bytes(8), "invalid_span_id"


@pytest.mark.parametrize(("field", "raw", "reason"), list(bad_ids()), ids=str)
def test_rule_44_one_bad_id_among_512(field, raw, reason):
    spans = [span(span_id=(i + 1).to_bytes(8, "big")) for i in range(512)]
    spans[77] = span(**{field: raw})
    admitted = from_protobuf(*spans)
    assert admitted.events.num_rows == 511
    assert [(r.index, r.reason, r.job, r.rank) for r in admitted.rejections] == [(77, reason, "j", 3)]
    camel = {"trace_id": "traceId", "span_id": "spanId"}[field]
    assert [r.reason for r in from_json(GOOD | {camel: raw.hex()}).rejections] == [reason]


def test_rule_45_parent_ids():
    for raw, flags in ((b"", 0), (bytes(8), 0), (b"\1" * 7, EventFlag.INVALID_PARENT), (b"\1" * 16, EventFlag.INVALID_PARENT)):
        row = only(from_protobuf(span(parent_span_id=raw)))
        assert (row["parent_span_id"], row["flags"]) == (None, flags)
    assert only(from_json(GOOD | {"parentSpanId": "not hex!"}))["flags"] == EventFlag.INVALID_PARENT


def test_rule_46_bad_links_and_events_are_dropped_and_counted():
    sent = span(
        links=[
            Span.Link(trace_id=b"\1" * 16, span_id=b"\2" * 8, trace_state="a=b"),
            Span.Link(trace_id=b"\1" * 16, span_id=b"\2" * 7),
        ],
        events=[Span.Event(time_unix_nano=150, name="ok"), Span.Event(time_unix_nano=0, name="no clock")],
    )
    row = only(from_protobuf(sent))
    otel = json.loads(row["otel"])
    assert row["links"] == [b"\2" * 8]
    assert otel["links"] == [{"trace_id": "01" * 16, "span_id": "02" * 8, "trace_state": "a=b"}]
    assert otel["events"] == [{"time_ns": 150, "name": "ok"}]
    assert (otel["dropped_links_count"], otel["dropped_events_count"]) == (1, 1)


def test_rule_47_end_before_start():
    row = only(from_protobuf(span(start_time_unix_nano=100_000_000, end_time_unix_nano=50_000_000)))
    assert (row["start_ns"], row["end_ns"], row["flags"]) == (100_000_000, 50_000_000, EventFlag.END_BEFORE_START)


def test_rule_48_zero_times():
    assert [r.reason for r in from_protobuf(span(start_time_unix_nano=0)).rejections] == ["start_zero"]
    assert only(from_protobuf(span(end_time_unix_nano=0)))["end_ns"] is None
    assert only(from_json({k: v for k, v in GOOD.items() if k != "endTimeUnixNano"}))["end_ns"] is None


@pytest.mark.parametrize("field", ["start_time_unix_nano", "end_time_unix_nano"])
def test_rule_49_beyond_int64(field):
    for value in (2**63, 2**64 - 1):
        assert [r.reason for r in from_protobuf(span(**{field: value})).rejections] == ["time_range"]
    assert only(from_protobuf(span(**{field: 2**63 - 1}))) is not None


def test_rule_52_duplicate_attribute_keys():
    sent = span()
    for value in (1, 2):
        sent.attributes.add(key="k", value=any_value(value))
        sent.attributes.add(key="crossrank.step", value=any_value(value))
    row = only(from_protobuf(sent))
    assert (row["attrs"], row["step"]) == ('{"k":2}', 2)


def test_all_other_fields_are_kept_in_otel():
    sent = span(
        kind=3, trace_state="v=1", flags=257, dropped_attributes_count=1, dropped_events_count=2, dropped_links_count=3,
        status=Status(code=2, message="slow"), links=[Span.Link(trace_id=b"\1" * 16, span_id=b"\2" * 8, flags=1, dropped_attributes_count=4)],
        events=[Span.Event(time_unix_nano=150, name="e", dropped_attributes_count=5)],
    )  # fmt: skip
    sent.events[0].attributes.add(key="a", value=any_value(1))
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add(schema_url="https://r")
    part.resource.attributes.add(key="site", value=any_value("north"))
    part.resource.dropped_attributes_count = 6
    inner = part.scope_spans.add(schema_url="https://s")
    inner.scope.name, inner.scope.version, inner.scope.dropped_attributes_count = "train", "1.2", 7
    inner.scope.attributes.add(key="b", value=any_value(True))
    inner.spans.append(sent)
    row = only(take("traces", "application/x-protobuf", request.SerializeToString(), job="j"))
    assert json.loads(row["otel"]) == {
        "kind": 3, "trace_state": "v=1", "flags": 257, "status": {"code": 2, "message": "slow"},
        "dropped_attributes_count": 1, "dropped_events_count": 2, "dropped_links_count": 3,
        "events": [{"time_ns": 150, "name": "e", "attributes": {"a": 1}, "dropped_attributes_count": 5}],
        "links": [{"trace_id": "01" * 16, "span_id": "02" * 8, "flags": 1, "dropped_attributes_count": 4}],
        "resource": {"attributes": {"site": "north"}, "dropped_attributes_count": 6, "schema_url": "https://r"},
        "scope": {"name": "train", "version": "1.2", "attributes": {"b": True}, "dropped_attributes_count": 7, "schema_url": "https://s"},
    }  # fmt: skip


def test_a_resource_in_pieces_is_merged_as_protobuf_does():
    first, second = ExportTraceServiceRequest(), ExportTraceServiceRequest()
    first.resource_spans.add().resource.attributes.add(key="crossrank.job", value=any_value("j"))
    second.resource_spans.add().resource.attributes.add(key="rank", value=any_value(4))
    second.resource_spans[0].scope_spans.add().spans.append(span())
    inside = b"".join(r.resource_spans[0].SerializeToString() for r in (first, second))
    body = b"\x0a" + bytes([0x80 | len(inside) & 0x7F, len(inside) >> 7]) + inside
    assert ExportTraceServiceRequest.FromString(body).resource_spans[0].resource.attributes[1].key == "rank"
    row = only(take("traces", "application/x-protobuf", body))
    assert (row["job"], row["rank"]) == ("j", 4)


@pytest.mark.parametrize(
    ("resource", "header", "job"),
    [
        ([("crossrank.job", "a"), ("service.name", "b")], "c", "a"),
        ([("service.name", "b")], "c", "c"),
        ([("service.name", "b")], None, "b"),
    ],
)
def test_which_job(resource, header, job):
    assert only(from_protobuf(span(), resource=[*resource, ("rank", 1)], job=header))["job"] == job


def test_no_job_at_all():
    assert [r.reason for r in from_protobuf(span(), resource=[("rank", 1)]).rejections] == ["missing_job"]


@pytest.mark.parametrize(
    ("attributes", "resource", "rank"),
    [
        ({"crossrank.rank": 5, "rank": 6}, [("rank", 7)], 5),
        ({"rank": 6}, [("crossrank.rank", 7)], 6),
        ({}, [("rank", "7")], 7),
        ({}, [("dist.rank", 8)], 8),
        ({"dist.rank": 9}, [("rank", 7)], 9),
        ({}, [("service.instance.id", "rank-10")], 10),
        ({}, [("service.instance.id", "job1/rank11")], 11),
    ],
)
def test_which_rank(attributes, resource, rank):
    admitted = from_protobuf(span(attributes=attributes), resource=[("crossrank.job", "j"), *resource])
    assert only(admitted)["rank"] == rank
    assert admitted.warnings == ()


@pytest.mark.parametrize("sent", [-1, 2**31, "five", 1.0, True])
def test_a_rank_that_is_none_refuses_the_span(sent):
    assert [r.reason for r in from_protobuf(span(attributes={"crossrank.rank": sent})).rejections] == ["bad_type"]


def test_a_resource_rank_that_is_none_refuses_spans_without_their_own():
    resource = [("crossrank.job", "j"), ("rank", "five")]
    admitted = from_protobuf(span(), span(attributes={"rank": 5}), resource=resource)
    assert [(r.index, r.reason) for r in admitted.rejections] == [(0, "bad_type")]
    assert admitted.events.column("rank").to_pylist() == [5]


def test_entity_references_of_a_resource_are_kept():
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    part.resource.entity_refs.add(type="host", id_keys=["host.id"], schema_url="https://e")
    part.scope_spans.add().spans.append(span())
    entity = {"schema_url": "https://e", "type": "host", "id_keys": ["host.id"], "description_keys": []}
    assert json.loads(only(take("traces", "application/x-protobuf", request.SerializeToString(), job="j"))["otel"])["resource"][
        "entity_refs"
    ] == [entity]
    sent = {"entityRefs": [{"type": "host", "idKeys": ["host.id"], "schemaUrl": "https://e"}]}
    body = json.dumps({"resourceSpans": [{"resource": sent, "scopeSpans": [{"spans": [GOOD]}]}]}).encode()
    assert json.loads(only(take("traces", "application/json", body, job="j"))["otel"])["resource"]["entity_refs"] == [entity]


def test_a_value_that_does_not_fit_its_column_stays_an_attribute():
    admitted = from_protobuf(span(attributes={"crossrank.step": "warmup", "bytes": -1, "kind": "weird", "op": 7}))
    row = only(admitted)
    assert row["attrs"] == '{"bytes":-1,"crossrank.step":"warmup","kind":"weird","op":7}'
    assert (row["step"], row["bytes"], row["kind"], row["op"]) == (None, None, "compute", None)
    assert admitted.warnings == ("1 values of crossrank.step do not fit their column and were kept as attributes",)


def test_lanes():
    assert only(from_protobuf(span(attributes={"thread.id": 12})))["lane"] == "tid:12"
    assert only(from_protobuf(span(attributes={"thread.name": "main"})))["lane"] == "main"
    assert only(from_protobuf(span(attributes={"crossrank.lane": "cuda:7", "thread.id": 12})))["lane"] == "cuda:7"
    rankless = [("crossrank.job", "j"), ("service.instance.id", "abc")]
    assert only(from_protobuf(span(), resource=rankless))["lane"] == "abc/main"


def test_a_span_alone_larger_than_the_limit():
    admitted = from_protobuf(span(attributes={"k": "x" * (1 << 20)}), span())
    assert [(r.index, r.reason) for r in admitted.rejections] == [(0, "too_large")]
    assert admitted.events.num_rows == 1


def test_a_large_resource_kept_with_many_spans_is_bounded():
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    for i in range(100):
        part.resource.attributes.add(key=f"k{i}", value=any_value("x" * 4000))
    spans = part.scope_spans.add().spans
    spans.extend(span(span_id=(i + 1).to_bytes(8, "big")) for i in range(500))
    with pytest.raises(Exception, match="too large to be kept"):
        take("traces", "application/x-protobuf", request.SerializeToString(), job="j", limits=Limits(body_bytes=10 << 20))
