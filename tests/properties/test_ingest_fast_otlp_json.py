"""The compiled decoder of OTLP/JSON gives what the plain one gives: same columns, rejections, warnings and refusals."""

import json
import random

import hypothesis.strategies as st
from hypothesis import given, settings

from crossrank.ingest import otlp_json, otlp_json_fast
from crossrank.limits import Limits
from tests.support.same_decoding import same

USUAL = Limits()
SMALL = Limits(attrs_per_event=3, key_bytes=12, value_bytes=64, name_bytes=20, json_depth=3, event_bytes=900)
PLAIN_ATTRIBUTES = (
    ("crossrank.step", {"intValue": "3"}), ("seq", {"intValue": 4}), ("group", {"stringValue": "dp"}), ("loss", {"doubleValue": 0.25}),
    ("ok", {"boolValue": True}), ("none", {}), ("group_ranks", {"arrayValue": {"values": [{"intValue": "0"}, {"intValue": "1"}]}}),
    ("map", {"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "é"}}]}}), ("raw", {"bytesValue": "AAH/"}),
)  # fmt: skip
SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319C", "spanId": "b7ad6b7169203331", "parentSpanId": "", "name": "forward", "kind": 1,
    "startTimeUnixNano": "1800000000000000000", "endTimeUnixNano": 1800000000000000005, "flags": 257, "status": {"code": 1}, "events": [],
    "links": [], "droppedAttributesCount": 0, "attributes": [{"key": k, "value": v} for k, v in PLAIN_ATTRIBUTES],
}  # fmt: skip
RESOURCE = {
    "attributes": [{"key": "crossrank.rank", "value": {"intValue": "1"}}, {"key": "service.name", "value": {"stringValue": "s"}}]
}


def body_of(spans, **options):
    request = {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"scope": {"name": "t"}, "spans": spans}]}]}
    return json.dumps(request, **options).encode(errors="surrogatepass")


def check(body, limits=USUAL):
    return same(otlp_json_fast.decode, otlp_json.decode, body, None, limits)


text = st.text(max_size=6) | st.sampled_from(["", '"\\\n\x1f', "é" * 9, "x" * 70, "\ud800", "5", "0" * 32, "NaN"])
number = st.integers(-(2**64), 2**64) | st.integers(0, 5) | st.integers(0, 2**63 - 1).map(str)
anything = st.none() | st.booleans() | number | st.floats() | text | st.just([]) | st.just({}) | st.just([{}])
kinds = ("stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue", "string_value", "other")
odd_value = st.dictionaries(st.sampled_from(kinds), anything, max_size=2) | anything
odd_attribute = st.fixed_dictionaries({"key": text, "value": odd_value}) | anything
attribute = st.sampled_from(SPAN["attributes"])


@st.composite
def odd_spans(draw):
    span = {key: value for key, value in SPAN.items() if draw(st.integers(0, 12))}
    if draw(st.booleans()):
        span["attributes"] = draw(st.lists(attribute | odd_attribute, max_size=5))
    if draw(st.integers(0, 2)) == 0:
        span[draw(st.sampled_from([*SPAN, "traceState", "start_time_unix_nano", "more"]))] = draw(anything)
    return span


@settings(max_examples=150)
@given(st.lists(odd_spans(), max_size=4), st.booleans())
def test_any_spans(spans, ascii_only):
    check(body_of(spans, ensure_ascii=ascii_only))
    check(body_of(spans, ensure_ascii=ascii_only, separators=(",", ":")))


@settings(max_examples=60)
@given(st.lists(odd_spans(), max_size=4))
def test_any_spans_with_small_limits(spans):
    check(body_of(spans), SMALL)


@settings(max_examples=80)
@given(st.lists(odd_spans(), min_size=1, max_size=3), st.integers(0, 2**32))
def test_broken_bodies(spans, seed):
    rng = random.Random(seed)
    good = body_of([*spans, SPAN])
    for _ in range(8):
        edited = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(edited))
            match rng.randrange(3):
                case 0:
                    edited[at] ^= 1 << rng.randrange(8)
                case 1:
                    edited[at : at + 1] = rng.choice(
                        [b"\xff", b"\0", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b" ", b"9" * 25]
                    )
                case _:
                    del edited[at : at + rng.randrange(1, 4)]
        check(bytes(edited))


def test_usual_and_many_spans():
    check(body_of([SPAN] * 3))
    check(body_of([SPAN] * 3, indent=1))
    many = [
        SPAN
        | {"spanId": f"{i + 1:016x}", "attributes": [{"key": f"k{i}{j}", "value": {"stringValue": f"v{i}{j}"}} for j in range(9)]}
        for i in range(600)
    ]
    check(body_of(many))
    check(body_of([SPAN | {"attributes": [{"key": f"d{j}", "value": {"doubleValue": j / 7}} for j in range(60)]}] * 200))
