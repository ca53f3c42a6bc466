"""Blame on input that no job sends: it answers in bounded time and memory, and accuses nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.columns import EVENT_SCHEMA
from tests.support.events import collective, event_table
from tests.support.pipeline import timeline_of, topology_of


def answers(events: pa.Table) -> tuple[list[Any], list[str]]:
    timeline = timeline_of(events, job=str(events.column("job")[0].as_py()) if len(events) else "j")
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    stragglers = find_stragglers(timeline, topology, steps)
    found = find_bottlenecks(timeline, topology, steps, stragglers)
    return [(s.rank, s.cause.name) for s in stragglers], [f.class_ for f in found]


def columns(n: int, **given: Any) -> pa.Table:
    """n events without Python objects: compute spans of rank 0 unless said otherwise."""
    values = {
        "job": np.repeat("j", n), "attempt": np.zeros(n), "rank": np.zeros(n), "clock": np.repeat("c", n),
        "lane": np.repeat("main", n), "name": np.repeat("forward", n), "kind": np.repeat("compute", n),
        "start_ns": np.arange(n) * 10, "end_ns": np.arange(n) * 10 + 5, "is_async": np.zeros(n, dtype=bool),
        "span_id": [int(i + 1).to_bytes(8, "big") for i in range(n)], "flags": np.zeros(n), "received_ns": np.zeros(n), **given,
    }  # fmt: skip
    arrays = []
    for field in EVENT_SCHEMA:
        if field.name not in values:
            arrays.append(pa.nulls(n, field.type))
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values[field.name], pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values[field.name]).cast(field.type))
    return pa.table(arrays, schema=EVENT_SCHEMA)


def test_nothing_at_all():
    assert answers(EVENT_SCHEMA.empty_table()) == ([], [])


def test_every_event_is_a_step_of_its_own_on_a_rank_of_its_own():
    n = 20_000
    assert answers(columns(n, rank=np.arange(n) * 100_000, step=np.arange(n) * 2**40))[0] == []


def test_every_event_has_its_own_name():
    n = 20_000
    names = np.char.add("layer", np.arange(n).astype(str))
    assert answers(columns(n, name=names, rank=np.arange(n) % 8, step=np.arange(n) // 100)) == ([], [])


def test_spans_nested_deeper_than_the_stack():
    n = 3_000
    start = np.arange(n)
    assert answers(columns(n, start_ns=start, end_ns=3 * n - start, step=np.arange(n) // 1500)) == ([], [])


def test_a_collective_everybody_enters_and_nobody_leaves():
    rows = [collective(r, 1, (10 * r, None), step=0, group_ranks=list(range(4))) for r in range(3)]
    stragglers, classes = answers(event_table(*rows))
    assert stragglers == []
    assert "mismatch" not in classes
