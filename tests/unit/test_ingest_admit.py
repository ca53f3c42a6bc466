"""What is refused and why, what is kept with a flag, and what is filled in: one row a rule."""

import json

import pytest

from crossrank.errors import BodyTooLarge, UndecodableBody, UnsupportedType
from crossrank.ingest.reasons import REASONS
from crossrank.limits import Limits
from crossrank.model.flags import EventFlag
from tests.support.naive_ingest import take

GOOD = {"job": "j", "rank": 0, "name": "forward", "start_ns": 100, "end_ns": 200, "span_id": "00000000000000a1"}
DEEP = json.loads("[" * 70 + "]" * 70)

REFUSED = [
    ("missing_job", {"job": None}),
    ("bad_job", {"job": ""}),
    ("bad_job", {"job": "a\nb"}),
    ("bad_job", {"job": "é" * 101}),
    ("missing_rank", {"rank": None}),
    ("out_of_range", {"rank": -1}),
    ("out_of_range", {"rank": 2**31}),
    ("out_of_range", {"rank": 2**63}),
    ("out_of_range", {"rank": 2**64}),
    ("out_of_range", {"attempt": -1}),
    ("out_of_range", {"attempt": 2**31}),
    ("out_of_range", {"step": -1}),
    ("out_of_range", {"seq": -1}),
    ("out_of_range", {"peer": -1}),
    ("out_of_range", {"bytes": -1}),
    ("out_of_range", {"group_ranks": [0, -1]}),
    ("out_of_range", {"group_ranks": [2**31]}),
    ("out_of_range", {"start_ns": 2**63}),
    ("bad_type", {"rank": "0"}),
    ("bad_type", {"rank": 1.0}),
    ("bad_type", {"rank": True}),
    ("bad_type", {"start_ns": 1.7e18}),
    ("bad_type", {"start_ns": {"low": 1, "high": 2}}),
    ("bad_type", {"name": 5}),
    ("bad_type", {"group_ranks": [0, "1"]}),
    ("bad_type", {"group_ranks": "0,1"}),
    ("bad_type", {"attrs": [1]}),
    ("bad_type", {"is_async": 1}),
    ("bad_type", {"value": "1"}),
    ("bad_type", {"span_id": 17}),
    ("missing_start", {"start_ns": None, "end_ns": None}),
    ("start_zero", {"start_ns": 0}),
    ("time_range", {"start_ns": -5}),
    ("time_range", {"end_ns": 0}),
    ("time_range", {"end_ns": -1}),
    ("missing_span_id", {"span_id": None, "end_ns": None}),
    ("missing_span_id", {"span_id": None, "start_ns": None}),
    ("invalid_span_id", {"span_id": ""}),
    ("invalid_span_id", {"span_id": "00000000000000a"}),
    ("invalid_span_id", {"span_id": "0000000000000000"}),
    ("invalid_span_id", {"span_id": "Z6z8LqVvEI8="}),
    ("invalid_span_id", {"span_id": "0000 000000000a1"}),
    ("invalid_trace_id", {"trace_id": "Z6z8LqVvEI+kU1/Ci6mXBQ=="}),
    ("invalid_trace_id", {"trace_id": "0" * 32}),
    ("too_long", {"group": "g" * 1025}),
    ("too_long", {"host": "h" * 1025}),
    ("too_deep", {"attrs": {"a": DEEP}}),
    ("too_deep", {"unknown": DEEP}),
    ("too_large", {"attrs": {"a": "x" * (1 << 20)}}),
]


@pytest.mark.parametrize(("reason", "change"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused_alone_and_the_neighbours_stay(reason, change):
    events = [GOOD, GOOD | change, GOOD | {"span_id": "00000000000000a2"}]
    admitted = take("events", "application/x-ndjson", "\n".join(map(json.dumps, events)).encode())
    assert [(r.index, r.reason) for r in admitted.rejections] == [(1, reason)]
    assert admitted.events.num_rows == 2
    assert reason in REASONS


def test_a_rejection_says_whose_event_it_was():
    admitted = take(
        "events",
        "application/json",
        json.dumps([GOOD, GOOD | {"rank": 3, "start_ns": 0}, GOOD | {"rank": 4, "step": "x"}]).encode(),
    )
    assert [(r.job, r.rank, r.reason) for r in admitted.rejections] == [("j", 3, "start_zero"), ("j", 4, "bad_type")]
    assert "step" in admitted.rejections[1].detail


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"job":"j","rank":0,"name":"cut', "bad_json"),
        (b'{"job":"j","rank":0,"name":"\xff","start_ns":1}', "bad_json"),
        (b'{"job":"j","rank":0,"name":"\\ud800","start_ns":1}', "bad_json"),
        (b'{"job":"j","rank":0,"name":"a","start_ns":1,"attrs":{"a":NaN}}', "bad_json"),
        (b'{"job":"j","rank":0,"name":"a","start_ns":1,"attrs":{"a":1e400}}', "out_of_range"),
        (b'{"job":"j","rank":0,"name":"a","start_ns":1,"attrs":{"a":' + b"9" * 4301 + b"}}", "out_of_range"),
        (b'{"job":"j","rank":0,"name":"a","start_ns":' + b"9" * 4301 + b"}", "out_of_range"),
        (b'{"job":"j","rank":0,"name":"a","x":' + b"[" * 1_000_000, "too_deep"),
        (b'{"job":"j","rank":0,"attrs":' + b'{"a":' * 100_000, "too_deep"),
        (b"[]", "not_an_object"),
        (b"17", "not_an_object"),
        (b"null", "not_an_object"),
    ],
    ids=lambda v: str(v)[:60],
)
def test_bad_lines(line, reason):
    body = json.dumps(GOOD).encode() + b"\n\n \n" + line + b"\n"
    admitted = take("events", "application/x-ndjson", body, limits=Limits(event_bytes=4 << 20))
    assert [(r.index, r.reason) for r in admitted.rejections] == [(1, reason)]
    assert admitted.events.num_rows == 1


@pytest.mark.parametrize("body", [b"", b"\n \n", b"[]", b'{"events":[]}', b"\xef\xbb\xbf"])
def test_no_events_is_no_fault(body):
    for kind in ("application/json", "application/x-ndjson")[: 1 if b"[" in body else 2]:
        admitted = take("events", kind, body)
        assert (admitted.events.num_rows, admitted.rejections) == (0, ())
    assert take("events", "application/vnd.apache.arrow.stream", b"").events.num_rows == 0


@pytest.mark.parametrize(
    "body", [b"hello", b"\0\1\2\n\3\n", b"[{", b'{"events":[', b'{"events":5}', b"[" * 1_000_000, b'{"a":' * 1_000_000, b"<html>"]
)
def test_no_event_at_all_is_undecodable(body):
    with pytest.raises(UndecodableBody):
        take("events", "application/json", body)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/x-protobuf", "json"])
def test_other_types_are_unsupported(content_type):
    with pytest.raises(UnsupportedType):
        take("events", content_type, b"{}")


def test_too_many_events():
    with pytest.raises(BodyTooLarge):
        take("events", "application/x-ndjson", b"{}\n" * 11, limits=Limits(events_per_body=10))
    with pytest.raises(BodyTooLarge):
        take("events", "application/json", b"[" + b"0," * 1000 + b"0]", limits=Limits(events_per_body=10))
    for kind, body in (("events", b"[%s0]"), ("events", b'{"events":[%s0]}'), ("traces", b'{"resourceSpans":[%s0]}')):
        with pytest.raises(BodyTooLarge):
            take(kind, "application/json", body % (b"0," * 6_000_001))


def one(change, **options):
    admitted = take("events", "application/json", json.dumps([GOOD | change]).encode(), **options)
    assert admitted.rejections == ()
    return admitted.events.to_pylist()[0], admitted.warnings


def test_defaults():
    row, _ = one({"kind": None})
    assert {k: row[k] for k in ("attempt", "host", "clock", "lane", "kind", "is_async", "flags", "attrs")} == {
        "attempt": 0, "host": None, "clock": "rank:0", "lane": "main", "kind": "compute", "is_async": False, "flags": 0, "attrs": None,
    }  # fmt: skip
    assert one({"host": "h0"})[0]["clock"] == "h0"
    assert one({"host": "h0", "clock": "ptp"})[0]["clock"] == "ptp"
    assert one({"name": None})[0]["name"] == "unnamed"
    assert one({"job": None}, job="from header")[0]["job"] == "from header"
    assert one({"job": "own"}, job="from header")[0]["job"] == "own"


@pytest.mark.parametrize(
    ("sent", "kind", "op"),
    [
        ({"name": "AllReduce"}, "collective", "all_reduce"),
        ({"name": "nccl:all_gather_into_tensor"}, "collective", "all_gather"),
        ({"name": "gather"}, "other", None),
        ({"name": "gather", "group": "dp", "seq": 1}, "collective", "gather"),
        ({"name": "send"}, "send", "send"),
        ({"name": "x", "op": "ReduceScatter"}, "collective", "reduce_scatter"),
        ({"name": "x", "kind": "recv"}, "recv", "recv"),
        ({"name": "Backward"}, "compute", None),
        ({"name": "dataloader"}, "data", None),
        ({"name": "load_batch"}, "data", None),
        ({"name": "ProfilerStep#12"}, "step", None),
        ({"name": "step"}, "step", None),
        ({"name": "profiler_step"}, "other", None),
        ({"name": "save_checkpoint"}, "checkpoint", None),
        ({"name": "wait_all_reduce"}, "sync", None),
        ({"name": "loss", "value": 2.5}, "metric", None),
        ({"name": "all_reduce", "kind": "compute"}, "compute", None),
        ({"name": "all_reduce", "kind": "COLLECTIVE"}, "collective", "all_reduce"),
        ({"name": "my_thing"}, "other", None),
    ],
    ids=lambda v: str(v)[:50],
)
def test_kind_and_op(sent, kind, op):
    row, _ = one(sent)
    assert (row["kind"], row["op"]) == (kind, op)


def test_a_kind_that_is_not_ours_is_kept_as_sent():
    row, _ = one({"kind": "Tensor_Op", "name": "all_reduce"})
    assert (row["kind"], row["op"], row["attrs"]) == ("other", None, '{"kind":"Tensor_Op"}')


def test_moments_are_closed_and_spans_stay_open():
    assert one({"kind": "mark", "end_ns": None, "span_id": None})[0]["end_ns"] == 100
    assert one({"kind": "metric", "end_ns": None, "value": 1})[0]["end_ns"] == 100
    assert one({"kind": "compute", "end_ns": None})[0]["end_ns"] is None


def test_flags():
    assert one({"end_ns": 50})[0]["flags"] == EventFlag.END_BEFORE_START
    assert one({"start_ns": None})[0]["flags"] == EventFlag.START_MISSING
    row, _ = one({"parent_span_id": "zz"})
    assert (row["flags"], row["parent_span_id"]) == (EventFlag.INVALID_PARENT, None)
    row, _ = one({"parent_span_id": "0000000000000000"})
    assert (row["flags"], row["parent_span_id"]) == (0, None)


def test_what_is_too_long_is_cut_and_flagged():
    row, warnings = one({"name": "é" * 600})
    assert (row["name"], row["flags"]) == ("é" * 512, EventFlag.TRUNCATED)
    assert warnings == ("1 events had a name, key, value or list cut to its limit",)
    row, _ = one({"attrs": {f"k{i:03}": i for i in range(200)}})
    assert (len(json.loads(row["attrs"])), row["flags"]) == (128, EventFlag.TRUNCATED)
    row, _ = one({"attrs": {"k" * 300: 1, "v": "x" * 5000, "n": {"a": ["y" * 5000]}}})
    found = json.loads(row["attrs"])
    assert row["flags"] == EventFlag.TRUNCATED
    assert max(map(len, found)) == 256
    assert len(found["v"]) == 4096
    assert len(found["n"]) == 4096
    row, _ = one({"group": "g", "group_ranks": list(range(20))}, limits=Limits(group_ranks=10))
    assert (row["group_ranks"], row["flags"]) == (None, EventFlag.TRUNCATED)


def test_nul_is_replaced_in_words_and_kept_escaped_in_attributes():
    row, _ = one({"name": "a\0b", "attrs": {"k": "\0"}})
    assert (row["name"], row["attrs"]) == ("a\N{REPLACEMENT CHARACTER}b", '{"k":"\\u0000"}')


def test_unknown_keys_become_attributes_and_sent_attributes_win():
    row, _ = one({"foo": [1, 2.0, {"b": None}], "x": 1, "attrs": {"x": 2}})
    assert row["attrs"] == '{"foo":[1,2.0,{"b":null}],"x":2}'


def test_integers_of_any_size_survive_in_attributes():
    row, _ = one({"attrs": {"big": 2**64 - 1, "bigger": 10**30, "low": -(2**63)}})
    assert json.loads(row["attrs"]) == {"big": 2**64 - 1, "bigger": 10**30, "low": -(2**63)}


def test_bad_links_are_dropped_and_the_event_kept():
    row, _ = one({"links": ["00000000000000b1", "nope", "0000000000000000"]})
    assert row["links"] == [bytes.fromhex("00000000000000b1")]


def test_fields_beside_events_are_named():
    admitted = take("events", "application/json", json.dumps({"events": [GOOD], "host": "h"}).encode())
    assert admitted.warnings == ("fields beside `events` are ignored: host",)
