"""Packing `otel` changes nothing but the room it takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from crossrank.store.content import marks
from crossrank.store.memtable import Memtable
from crossrank.store.packed import PACKED_SCHEMA, packed, saved_bytes, unpacked

TEXTS = (None, "", "a", '{"resource":{"k":"' + "x" * 200 + '"}}', '{"resource":{"k":"' + "x" * 199 + 'y"}}', "ä" * 9)


def events_with(texts: list[str | None]) -> pa.Table:
    events = simulate(JobConfig(steps=3), seed=1).events.combine_chunks().slice(0, len(texts))
    at = EVENT_SCHEMA.get_field_index("otel")
    return events.set_column(at, EVENT_SCHEMA.field(at), pa.array(texts, pa.string()))


@pytest.mark.parametrize("repeats", [1, 7, 400])
def test_packed_rows_come_back(repeats):
    rng = np.random.default_rng(repeats)
    print(f"seed {repeats}")
    events = events_with([TEXTS[i] for i in np.repeat(rng.integers(0, len(TEXTS), 800 // repeats), repeats).tolist()])
    for part in (events, events.slice(13, 200), events.slice(5, 1), events.slice(0, 0)):
        rows = packed(part)
        assert rows.schema.equals(PACKED_SCHEMA)
        assert unpacked(rows).equals(part)
        rows.validate(full=True)
        assert (marks(rows) == marks(part)).all()
    assert repeats < 7 or saved_bytes(events, packed(events)) > 0


def test_a_memtable_joins_packed_rows():
    parts = [events_with([text] * 3) for text in TEXTS]
    memtable = Memtable()
    for part in parts:
        memtable.add(part, marks(part), 0, part.nbytes / len(part))
    joined = pa.concat_tables(parts)
    assert memtable.table()["otel"].to_pylist() == joined["otel"].to_pylist()
    assert memtable.table(2)["otel"].to_pylist() == joined.slice(0, 6)["otel"].to_pylist()
    assert memtable.table().schema.equals(EVENT_SCHEMA)
    assert (marks(memtable.packed_table()) == memtable.marks()).all()
