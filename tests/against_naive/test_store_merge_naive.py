"""The vectorised merge agrees with the one-by-one reference, for any order of the rows."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.flags import EventFlag
from crossrank.store.condense import condense
from crossrank.store.content import marks
from crossrank.store.merge import cleared, merge
from tests.support.naive_merge import Oracle, naive_merge
from tests.support.store_posts import row, table

ATTRS = (None, "{}", '{"a":1,"z":12345678901234567890}', '{"a":[2],"b":"x"}')


@st.composite
def a_row(draw):
    start, end = draw(st.sampled_from([(0, 10), (0, None), (None, 10), (5, 10), (20, 10), (5, None)]))
    return row(
        draw(st.integers(1, 3)),
        start,
        end,
        rank=draw(st.integers(0, 1)),
        attempt=draw(st.integers(0, 1)),
        attrs=draw(st.sampled_from(ATTRS)),
        step=draw(st.sampled_from([None, 4])),
        group_ranks=draw(st.sampled_from([None, [0, 1]])),
    )


def shown(events: pa.Table) -> list[dict]:
    return sorted(events.to_pylist(), key=lambda r: (r["attempt"], r["rank"], r["span_id"]))


def flagged(rows: list[dict]) -> pa.Table:
    """Rows received one a nanosecond, without those the identity table drops; amending ones are marked as it does."""
    oracle, kept = Oracle(), []
    for received, sent in enumerate(rows):
        version = table([sent], received).to_pylist()[0]
        before = dict(oracle.tally)
        seen = oracle.versions.get((version["attempt"], version["rank"], version["span_id"]))
        oracle.receive(version)
        if oracle.tally["accepted"] > before["accepted"]:
            flags = int(EventFlag.AMENDS) if seen else 0
            flags |= int(EventFlag.CONFLICT) if oracle.tally["conflict"] > before["conflict"] else 0
            kept.append({**version, "flags": version["flags"] | flags})
    return pa.Table.from_pylist(kept, schema=EVENT_SCHEMA)


@given(st.lists(a_row(), max_size=14), st.randoms(use_true_random=False))
def test_merge_is_the_reference_whatever_the_order(rows, random):
    events = flagged(rows)
    groups: dict = {}
    for version in events.to_pylist():
        groups.setdefault((version["attempt"], version["rank"], version["span_id"]), []).append(version)
    expected = [naive_merge(groups[k]) for k in sorted(groups)]
    shuffled = list(range(len(events)))
    random.shuffle(shuffled)
    assert shown(merge(events)) == expected
    assert merge(events.take(pa.array(shuffled, pa.int64()))).to_pylist() == merge(events).to_pylist()


@given(st.lists(a_row(), max_size=14), st.lists(st.integers(0, 14), max_size=3))
def test_condensing_any_stretches_before_merging_changes_nothing(rows, cuts):
    events = flagged(rows)
    bounds = [0, *sorted(min(c, len(events)) for c in cuts), len(events)]
    stretches = [events.slice(a, b - a).combine_chunks() for a, b in itertools.pairwise(bounds) if b > a]
    segments = [condense(s, marks(s)) for s in stretches]
    together = pa.concat_tables([*(s.select(EVENT_SCHEMA.names) for s in segments), EVENT_SCHEMA.empty_table()])
    assert shown(merge(together.unify_dictionaries().combine_chunks())) == shown(merge(events))
    kept = np.concatenate([np.zeros(0, np.int32), *(s.column("marks").combine_chunks().flatten().to_numpy() for s in segments)])
    assert sorted(kept.tolist()) == sorted(marks(events).tolist())


def test_rows_without_versions_are_untouched():
    events = table([row(1), row(2, 0, None), row(3, None, 5)])
    assert cleared(events) is events
    assert shown(merge(events)) == shown(events)
