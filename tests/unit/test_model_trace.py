"""A JobTrace depends on the events alone, and its lanes are in program order."""

import numpy as np
import pyarrow as pa

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.flags import EventFlag
from crossrank.model.trace import trace_from_arrow

T0 = 1_800_000_000_000_000_001


def events(*rows: dict) -> pa.Table:
    base = {
        "job": "j",
        "attempt": 0,
        "rank": 0,
        "host": "h",
        "clock": "h",
        "lane": "main",
        "kind": "compute",
        "is_async": False,
        "flags": 0,
        "received_ns": 0,
    }
    full = [{**base, **row, "span_id": int(row["span_id"]).to_bytes(8, "big")} for row in rows]
    return pa.Table.from_pylist(full, schema=EVENT_SCHEMA)


def test_stamps_of_nested_equal_and_empty_spans_are_in_program_order():
    table = events(
        {"span_id": 1, "name": "step", "start_ns": T0, "end_ns": T0 + 10},
        {"span_id": 2, "name": "inner", "start_ns": T0, "end_ns": T0 + 10},
        {"span_id": 3, "name": "mark", "start_ns": T0 + 10, "end_ns": T0 + 10},
        {"span_id": 4, "name": "after", "start_ns": T0 + 10, "end_ns": T0 + 12},
        {"span_id": 5, "name": "hung", "start_ns": T0 + 11, "end_ns": None},
    )
    trace = trace_from_arrow(table, job="j", attempt=0)
    names = [trace.names[c] for c in trace.name]
    shown = [names[s // 2] + ("<" if s % 2 == 0 else ">") for s in trace.lane_stamps.tolist()]
    assert shown == ["step<", "inner<", "inner>", "step>", "after<", "mark<", "mark>", "hung<", "after>"]


def test_delivery_order_does_not_matter_and_epoch_times_survive():
    rows = [
        {
            "span_id": i + 1,
            "rank": i % 3,
            "name": f"n{i % 2}",
            "start_ns": T0 + 7 * (i % 5),
            "end_ns": T0 + 7 * (i % 5) + 3,
            "group": "g",
            "group_ranks": [0, 1, 2],
        }
        for i in range(30)
    ]
    one = trace_from_arrow(events(*rows), job="j", attempt=0)
    rng = np.random.default_rng(3)
    two = trace_from_arrow(events(*[rows[i] for i in rng.permutation(30)]), job="j", attempt=0)
    for field in ("rank", "lane", "start_ns", "end_ns", "span_id", "name", "lane_stamps"):
        assert np.array_equal(getattr(one, field), getattr(two, field)), field
    assert set(one.start_ns.tolist()) == {T0 + 7 * k for k in range(5)}
    assert one.group_ranks == ((0, 1, 2),)


def test_events_that_cannot_stand_on_a_timeline_are_left_out_and_counted():
    table = events(
        {"span_id": 1, "name": "a", "start_ns": T0, "end_ns": T0 + 1},
        {"span_id": 2, "name": "b", "start_ns": T0, "end_ns": T0 - 5, "flags": int(EventFlag.END_BEFORE_START)},
        {"span_id": 3, "name": "c", "start_ns": None, "end_ns": T0, "flags": int(EventFlag.START_MISSING)},
    )
    trace = trace_from_arrow(table, job="j", attempt=0)
    assert len(trace) == 1
    assert trace.excluded == {"end_before_start": 1, "start_missing": 1}
