"""The order of a segment's rows: by start, then rank, then span id, whatever order they came in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from crossrank.store.condense import condense
from crossrank.store.content import marks

KEYS = ("start_ns", "rank", "span_id")


def sorted_by_arrow(events: pa.Table) -> list[tuple[object, ...]]:
    taken = events.take(pc.sort_indices(events, sort_keys=[(key, "ascending") for key in KEYS]))
    return list(zip(*(taken[key].to_pylist() for key in KEYS), strict=True))


@pytest.mark.parametrize("grain_ns", [1, 10_000_000, 10_000_000_000])
@pytest.mark.parametrize("has_halves", [False, True])
def test_rows_lie_in_order(grain_ns, has_halves):
    rng = np.random.default_rng(5)
    print("seed 5")
    events = simulate(JobConfig(steps=3), seed=2).events.combine_chunks()
    start = events["start_ns"].to_numpy() // grain_ns * grain_ns  # coarse stamps: many rows start together
    absent = rng.random(len(events)) < (0.1 if has_halves else 0.0)
    at = events.schema.get_field_index("start_ns")
    events = events.set_column(at, events.schema.field(at), pa.array(start, mask=absent))
    events = events.take(pa.array(rng.permutation(len(events))))
    rows = condense(events, marks(events))
    assert list(zip(*(rows[key].to_pylist() for key in KEYS), strict=True)) == sorted_by_arrow(events)
    assert sorted(rows["attrs"].to_pylist(), key=str) == sorted(events["attrs"].to_pylist(), key=str)
