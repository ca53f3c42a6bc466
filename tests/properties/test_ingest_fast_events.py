"""The compiled NDJSON decoder gives what the plain one gives: same columns, same rejections, same warnings, same refusals."""

import json
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from crossrank.ingest import events_fast, events_json
from crossrank.ingest.ndjson_walk import walk
from crossrank.limits import Limits
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import ndjson, seed_form
from crossrank.simulate.job import simulate
from tests.support.same_decoding import same

USUAL = Limits()
SMALL = Limits(attrs_per_event=3, key_bytes=12, value_bytes=64, name_bytes=20, json_depth=3, event_bytes=400, events_per_body=6)
EVENT = {
    "job": "j", "attempt": 0, "rank": 3, "host": "h", "clock": "c", "lane": "cuda:0", "name": "all_reduce", "kind": "collective",
    "start_ns": 10**18, "end_ns": 10**18 + 5, "step": 1, "group": "dp", "seq": 7, "group_ranks": [0, 1], "op": "all_reduce", "peer": 2,
    "bytes": 512, "dtype": "bf16", "is_async": False, "trace_id": "0af7651916cd43dd8448eb211c80319C",
    "span_id": "b7ad6b7169203331", "parent_span_id": "00000000000000a1", "links": ["00000000000000a2"], "value": 0.5,
    "attrs": {"x": 1, "y": [1.5, None, {"z": "é"}], "w": "v", "f": 1.25e-7, "n": None, "t": True},
}  # fmt: skip


def check(body, job=None, limits=USUAL):
    return same(events_fast.decode_lines, events_json.decode_lines, body, job, limits)


def lines_of(events, **options):
    return "\n".join(json.dumps(event, **options) for event in events).encode(errors="surrogatepass")


def slow_lines(body, limits=USUAL):
    return int(walk(body, limits).lines.slow.sum())


text = st.text(max_size=8) | st.sampled_from(["", "a\0b", '"\\\n\x1f\x7f', "é" * 9, "😀" * 30, "x" * 70, "\ud800", "/", "COMPUTE"])
number = (
    st.integers(-(2**64), 2**64) | st.integers(-3, 70) | st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**18])
)
double = st.floats() | st.floats(-10, 10).map(lambda v: round(v, 2)) | st.sampled_from([1e16, 1e-5, -0.0, 1e22, 5e-324])
scalar = st.none() | st.booleans() | number | double | text
value = st.recursive(scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=2), max_leaves=4)
field = st.sampled_from([*EVENT, "event", "timestamp_ns", "otel", "more", "layer"]) | text
changes = st.dictionaries(field, value, max_size=3)


@st.composite
def odd_events(draw):
    event = {key: EVENT[key] for key in EVENT if draw(st.integers(0, 9))}
    if draw(st.booleans()):
        event["attrs"] = draw(st.dictionaries(text, value, max_size=4) | value)
    return event | (draw(changes) if draw(st.booleans()) else {})


@settings(max_examples=150)
@given(st.lists(odd_events(), max_size=5), st.booleans(), st.sampled_from([None, "asked"]))
def test_any_events(events, ascii_only, job):
    check(lines_of(events, ensure_ascii=ascii_only), job)
    check(lines_of(events, ensure_ascii=ascii_only, separators=(",", ":")), job)


@settings(max_examples=60)
@given(st.lists(odd_events(), max_size=8))
def test_any_events_with_small_limits(events):
    check(lines_of(events), None, SMALL)


@settings(max_examples=80)
@given(st.lists(odd_events(), min_size=1, max_size=4), st.integers(0, 2**32))
def test_broken_lines(events, seed):
    rng = random.Random(seed)
    good = lines_of([*events, EVENT])
    for _ in range(8):
        edited = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(edited))
            match rng.randrange(4):
                case 0:
                    edited[at] ^= 1 << rng.randrange(8)
                case 1:
                    edited[at : at + 1] = rng.choice(
                        [b"\xff", b"\0", b'"', b"{", b"}", b"[", b",", b":", b"\\", b"\n", b"\r\n", b" ", b"9" * 25, b".5", b"e9", b"-", b"\x0b", b"null"]
                    )  # fmt: skip
                case 2:
                    del edited[at : at + rng.randrange(1, 4)]
                case _:
                    edited[at:at] = edited[: rng.randrange(min(64, len(edited)) + 1)]
            edited = edited or bytearray(b"0")
        check(bytes(edited))


def test_usual_lines_are_not_read_slowly():
    assert slow_lines(lines_of([EVENT] * 3)) == 0
    assert slow_lines(lines_of([dict.fromkeys(EVENT) | {"rank": 1}] * 3)) == 0
    check(lines_of([EVENT] * 3))
    events = simulate(JobConfig(steps=4), seed=5).events
    assert slow_lines(ndjson(events)) == 0
    check(ndjson(events))
    check(seed_form(events.slice(0, 500)))


LITERALS = (
    *("0", "-0", "00", "01", "-1", "1.", ".5", "1.0", "-0.0", "1e5", "1E+5", "1e-05", "1e", "1e400", "1e-400", "0.1", "-", "+1"),
    *("9" * 18, "9" * 19, "9" * 20, "9" * 4301, "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("0." + "3" * 30, "0." + "3" * 50, "123456789012345678.5", "1.7976931348623157e308", "2.5e-10", "NaN", "Infinity"),
    *("truE", "true", "nulL", "null", "[]", "{}", "[1,2]", '"x"', '"\\u00e9"', '"\\ud800"', '"\\u0000"'),
)


@pytest.mark.parametrize("literal", LITERALS, ids=lambda text: text[:24])
def test_every_literal_in_every_kind_of_column(literal):
    for name in ("rank", "seq", "value", "is_async", "host", "more", "group_ranks", "links", "attrs", "otel", "span_id"):
        body = f'{{"job":"j","rank0":1,"{name}":{literal}}}\n{{"job":"j","rank":1,"attrs":{{"{name}":{literal}}}}}'
        check(body.encode())


def test_keys_and_separators_of_any_shape():
    for line in (
        '{"rank":1,"rank":2}', '{"attrs":{"a":1,"a":2}}', '{"a":1,"attrs":{"a":2}}', '{"attrs":{},"attrs":{"a":1}}', '{"attrs":null,"attrs":{}}',
        '{"rank":1,}', '{,"rank":1}', '{"rank":1 "seq":2}', '{"rank" : 1 , "seq" :\t2 }\r', '{"rank":1}}', '{"rank":1} x', '{"rank":1}{"rank":2}',
        '{"attrs":{"rank":1,"seq":2},"rank":3}', '{"attrs":{"attrs":{"b":1}},"rank":3}', '{"attrs":{"attrs":1 "x":2}}', '{"attrs":{"a":1},}', "{}", "{", "[]",
        '{"r\\u0061nk":1}', '{"":1}', '{"attrs":{"":1}}', '{"rank":1,"attrs":{"a":1}', "\ufeff{}", '{"a":{"b":[1,{"c":"}"}]}}', '{"a":[1,2}', '{"a":"\\q"}',
    ):  # fmt: skip
        body = f"{json.dumps(EVENT)}\n{line}\n{json.dumps(EVENT)}\n{line}"
        check(body.encode())
        check(line.encode())


def test_blank_lines_white_space_and_byte_order_mark():
    event = json.dumps(EVENT)
    for body in (
        "",
        "\n",
        " \n\t\n",
        f"\n\n{event}\n\n",
        f"  {event}  \r\n\x0b\x0c\n {event}",
        f"\ufeff{event}",
        f"{event}\n" * 300 + " \n",
    ):
        check(body.encode())


def test_more_keys_texts_and_lines_than_the_tables_hold_at_first():
    events = [EVENT | {"attrs": {f"key {i} {j}": f"value {i} {j} {'é' * (j % 7)}" for j in range(9)}} for i in range(700)]
    assert slow_lines(lines_of(events, ensure_ascii=False)) == 0
    check(lines_of(events, ensure_ascii=False))
    check(lines_of([{"rank": i} for i in range(5000)]))
    check(lines_of([{"rank": i, "attrs": {f"{j}": j / 7 for j in range(60)}} for i in range(300)]))


def test_many_lines_are_counted():
    for count in (5, 6, 7):
        check(b'{"rank":1}\n\n' * count, None, SMALL)
