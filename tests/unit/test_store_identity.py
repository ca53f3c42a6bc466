"""Resends are recognised: the rules of relation, growth of the table, and what happens at the memory bound."""

import numpy as np
import pyarrow as pa
import pytest

from crossrank.store.content import CLOSED, END, OPEN, forms, identity_keys, marks
from crossrank.store.identity import AMENDING, CONFLICTING, DUPLICATE, NEW, IdentityTable
from tests.support.store_posts import row, table


def classified(*pairs):
    """Classes of (key, mark) pairs given one at a time."""
    one = IdentityTable()
    return [int(one.classify(np.array([k]), np.array([m], np.int32))[0]) for k, m in pairs]


O1, O2, E1, E2, C1, C2 = (4 * n | form for form in (OPEN, END, CLOSED) for n in (1, 2))


@pytest.mark.parametrize(
    ("received", "classes"),
    [
        ([C1, C1, C2, C1, C2], [NEW, DUPLICATE, CONFLICTING, DUPLICATE, DUPLICATE]),
        ([O1, C1, O1, O2], [NEW, AMENDING, DUPLICATE, DUPLICATE]),
        ([C1, O1, E1], [NEW, DUPLICATE, DUPLICATE]),
        ([O1, E1, O1, E1], [NEW, AMENDING, DUPLICATE, DUPLICATE]),
        ([E1, O1, E2, O2], [NEW, AMENDING, CONFLICTING, CONFLICTING]),
        ([O1, O2, E1, C1], [NEW, CONFLICTING, AMENDING, AMENDING]),
    ],
)
def test_relations(received, classes):
    assert classified(*((7, mark) for mark in received)) == classes
    rows = np.array(received, np.int32)
    assert IdentityTable().classify(np.full(len(rows), 7), rows).tolist() == classes, "within one batch as across batches"


def test_the_table_grows_and_tells_every_key_apart():
    one, rng = IdentityTable(), np.random.default_rng(1)
    keys = rng.permutation(np.concatenate([np.arange(2_000) << 20, np.arange(1, 30_000)]))  # crowded low bits
    mark = np.full(len(keys), C1, np.int32)
    for part in np.array_split(np.arange(len(keys)), 17):
        assert (one.classify(keys[part], mark[part]) == NEW).all()
    assert len(one) == len(keys)
    assert (one.classify(keys, mark) == DUPLICATE).all()
    assert (one.classify(keys, np.full(len(keys), C2, np.int32)) == CONFLICTING).all()


def test_endless_versions_of_one_identity_stay_cheap_and_are_conflicts():
    one = IdentityTable()
    mark = (np.arange(1, 50_001, dtype=np.int32) << 2) | CLOSED
    out = one.classify(np.full(50_000, 3), mark)
    assert out[0] == NEW
    assert (out[1:] == CONFLICTING).all()
    assert len(one) == 16


def test_marks_depend_on_every_column_that_was_sent_and_nothing_else():
    base = row(1, trace_id="ab" * 16, parent_span_id="01" * 8, group_ranks=[1, 2], links=[b"12345678"], value=1.5, attrs="{}")
    others = {
        "job": "k", "attempt": 1, "rank": 1, "host": None, "clock": "c", "lane": "l", "name": "m", "kind": "data", "start_ns": 5,
        "end_ns": None, "step": 3, "group": "g", "seq": 4, "group_ranks": [2, 1], "op": "x", "peer": 0, "bytes": 9, "dtype": "f",
        "is_async": True, "trace_id": None, "span_id": 2, "parent_span_id": None, "links": [], "value": None, "attrs": None,
        "otel": "{}", "flags": 4,
    }  # fmt: skip
    events = table([base, *({**base, name: value} for name, value in others.items())])
    assert len(np.unique(marks(events))) == len(events)
    again = table([{**base, "received_ns": 99, "flags": 32 | 64}])
    assert marks(again)[0] == marks(events)[0]


def test_marks_and_keys_do_not_depend_on_how_the_columns_are_stored():
    rows = [
        row(i, attrs="x" * (i % 11), name=f"n{i % 3}", group_ranks=list(range(i % 4)), step=i if i % 2 else None)
        for i in range(1, 40)
    ]
    events = table(rows)
    pieces = pa.concat_tables([table(rows[:7]), table(rows[3:30]).slice(4, 20), events.slice(27)])
    for pieced in (pieces, pieces.unify_dictionaries().combine_chunks(), events.take(pa.array(range(39)))):
        assert len(pieced) == 39
        assert np.array_equal(marks(pieced), np.concatenate([marks(events.slice(i, 1)) for i in range(39)]))
        assert np.array_equal(identity_keys(pieced, 5), identity_keys(events, 5))
    assert forms(table([row(1), row(2, 0, None), row(3, None, 1)])).tolist() == [CLOSED, OPEN, END]


def test_marks_are_part_of_the_segment_format_and_must_not_change():
    events = table(
        [row(1, attrs='{"a":1}', group_ranks=[0, 1], trace_id="0f" * 16, value=-0.5), row(2, 0, None, seq=3, is_async=True)]
    )
    assert marks(events).tolist() == [-179200813, -636611703]


def test_the_table_forgets_what_the_seal_before_the_last_one_wrote():
    one = IdentityTable()
    for first in (0, 100, 200):
        assert (one.classify(np.arange(first, first + 50), np.full(50, C1, np.int32)) == NEW).all()
        one.rotate()
        assert len(one) == 50
    assert (one.classify(np.arange(200, 250), np.full(50, C1, np.int32)) == DUPLICATE).all()
    assert one.unseen(np.array([0, 210, 999]), np.full(3, C1, np.int32)).tolist() == [0, 2]
    assert one.unseen(np.array([0, 210, 999]), np.full(3, C2, np.int32)).tolist() == [0, 1, 2], "another version is to be looked up"


def test_versions_in_segments_count_like_those_in_the_table():
    keys, mark = np.array([1, 2, 3, 4, 5]), np.array([C1, C1, O1, E1, C1], np.int32)
    stored = np.array([1, 2, 3, 4]), np.array([C1, C2, C1, O1], np.int32)
    one = IdentityTable()
    assert one.classify(keys, mark, stored).tolist() == [DUPLICATE, CONFLICTING, DUPLICATE, AMENDING, NEW]
    assert one.classify(keys, mark, stored).tolist() == [DUPLICATE] * 5
