"""The same events give the same columns whatever format, encoding, key order or batching they come in."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from crossrank.ingest.accept import accept
from crossrank.limits import Limits
from crossrank.model.kinds import KINDS
from tests.support.naive_ingest import arrow_stream, every_body, naive_row, post

LIMITS = Limits()
word = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
int32 = st.integers(0, 2**31 - 1)
int63 = st.integers(0, 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | finite | word
nested = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=3), max_leaves=6)


def hex_id(width: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=width, max_size=width).filter(any).map(bytes.hex)


events_of_any_kind = st.fixed_dictionaries(
    {
        "job": word,
        "rank": int32,
        "name": word,
        "kind": st.sampled_from(KINDS),
        "op": st.sampled_from(["all_reduce", "broadcast", "send", "my_op"]),
        "start_ns": st.integers(1, 2**63 - 1),
        "end_ns": st.integers(1, 2**63 - 1),
        "trace_id": hex_id(16),
        "span_id": hex_id(8),
    },
    optional={
        "attempt": int32,
        "host": word,
        "clock": word,
        "lane": word,
        "step": int63,
        "group": word,
        "seq": int63,
        "group_ranks": st.lists(int32, min_size=1, max_size=4),
        "peer": int32,
        "bytes": int63,
        "dtype": word,
        "is_async": st.booleans(),
        "parent_span_id": hex_id(8),
        "links": st.lists(hex_id(8), min_size=1, max_size=3),
        "value": finite.filter(lambda v: abs(v) < 1e300),
        "attrs": st.dictionaries(word.map(lambda w: f"x.{w}"), nested, max_size=4),
    },
)


def rows(admitted):
    assert admitted.rejections == ()
    return admitted.events.drop_columns(["otel"])


@settings(max_examples=25)
@given(st.lists(events_of_any_kind, min_size=1, max_size=6))
def test_every_format_gives_the_same_columns(events):
    decoded = {name: rows(accept(body, LIMITS)) for name, body in every_body(events).items()}
    expected = decoded.pop("ndjson")
    for name, table in decoded.items():
        assert table.equals(expected), name
    stream = post("events", "application/vnd.apache.arrow.stream", arrow_stream(expected))
    assert rows(accept(stream, LIMITS)).equals(expected)


@settings(max_examples=25)
@given(st.lists(events_of_any_kind, min_size=1, max_size=6))
def test_columns_are_what_the_field_table_says(events):
    found = rows(accept(every_body(events)["ndjson"], LIMITS)).to_pylist()
    for row, event in zip(found, events, strict=True):
        expected = naive_row(event)
        attrs, expected_attrs = row.pop("attrs"), expected.pop("attrs")
        assert row == expected
        assert (json.loads(attrs) if attrs else None) == (json.loads(expected_attrs) if expected_attrs else None)


@settings(max_examples=25)
@given(st.lists(events_of_any_kind, min_size=2, max_size=6), st.data())
def test_batching_and_key_order_do_not_matter(events, data):
    whole = rows(accept(every_body(events)["ndjson"], LIMITS)).to_pylist()
    cut = data.draw(st.integers(1, len(events) - 1))
    shuffled = [dict(data.draw(st.permutations(list(e.items())))) for e in events]
    parts = [rows(accept(every_body(part)["array"], LIMITS)).to_pylist() for part in (shuffled[:cut], shuffled[cut:])]
    assert parts[0] + parts[1] == whole


@settings(max_examples=25)
@given(st.lists(events_of_any_kind, min_size=1, max_size=4))
def test_an_event_without_a_span_id_gets_the_same_one_every_time(events):
    for event in events:
        del event["span_id"]
    lines = "\n".join(map(json.dumps, events)).encode()
    first = accept(post("events", "application/x-ndjson", lines), LIMITS).events
    again = accept(post("events", "application/json", json.dumps(events[::-1]).encode()), LIMITS).events
    assert first["span_id"].to_pylist() == again["span_id"].to_pylist()[::-1]
    distinct = {json.dumps(naive_row(e | {"span_id": "00" * 8}), sort_keys=True, default=bytes.hex) for e in events}
    assert len(set(first["span_id"].to_pylist())) == len(distinct)


@pytest.mark.parametrize("parts", [1, 3])
def test_more_events_than_one_chunk(parts):
    events = [
        {"job": "j", "rank": i % 7, "name": f"n{i}", "start_ns": 1 + i, "end_ns": 2 + i, "kind": "compute"} for i in range(20_000)
    ]
    size = len(events) // parts + 1
    found = [
        accept(post("events", "application/json", json.dumps(events[at : at + size]).encode()), LIMITS).events.to_pylist()
        for at in range(0, len(events), size)
    ]
    assert [(r["rank"], r["name"], r["start_ns"]) for part in found for r in part] == [
        (e["rank"], e["name"], e["start_ns"]) for e in events
    ]
