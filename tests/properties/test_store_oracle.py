"""Any batches, duplicates, orders, seals, compactions, restarts, kills and deletions: the store agrees with an in-memory oracle."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from crossrank.store.content import marks
from crossrank.store.filter import EventFilter
from tests.support.campaigns import record
from tests.support.naive_merge import Oracle
from tests.support.store_posts import T0, crashed, decode, open_store, post, row, table

ATTRS = (None, '{"a":1,"z":2}', '{"a":[2],"b":"x"}')
FORMS = [(0, 10), (0, None), (None, 10), (5, 12), (5, None)]


@st.composite
def a_row(draw):
    start, end = draw(st.sampled_from(FORMS))
    return row(
        draw(st.integers(1, 3)),
        start,
        end,
        rank=draw(st.integers(0, 1)),
        attrs=draw(st.sampled_from(ATTRS)),
        step=draw(st.sampled_from([None, 4, 5])),
        kind=draw(st.sampled_from(["compute", "data"])),
        group=draw(st.sampled_from([None, "g"])),
        trace_id=draw(st.sampled_from([None, "ab" * 16])),
    )


BATCH = st.lists(a_row(), min_size=1, max_size=5)
ACTIONS = st.lists(
    st.one_of(BATCH, BATCH, BATCH, st.sampled_from(["seal", "close", "kill", "resend", "compact"])), min_size=1, max_size=14
)
FILTERS = st.builds(
    EventFilter,
    attempt=st.sampled_from([None, 0, 1]),
    ranks=st.sampled_from([None, (0,), (0, 1), ()]),
    step_from=st.sampled_from([None, 4, 5]),
    step_to=st.sampled_from([None, 5]),
    kinds=st.sampled_from([None, ("data",)]),
    groups=st.sampled_from([None, ("g",)]),
    from_ns=st.sampled_from([None, T0 + 10, T0 + 11]),
    to_ns=st.sampled_from([None, T0 + 1, T0 + 6]),
    trace_id=st.sampled_from([None, bytes.fromhex("ab" * 16)]),
    span_ids=st.sampled_from([None, ((1).to_bytes(8, "big"),)]),
)
FOUND_ONLY = (Phase.explicit, Phase.generate)  # shrinking opens thousands of folders


def by_identity(rows):
    return sorted(rows, key=lambda r: (r["rank"], r["span_id"]))


def wanted(r, w):
    """The documented meaning of a filter, for one row."""
    return (
        (w.attempt is None or r["attempt"] == w.attempt)
        and (w.ranks is None or r["rank"] in w.ranks)
        and (w.step_from is None or (r["step"] is not None and r["step"] >= w.step_from))
        and (w.step_to is None or (r["step"] is not None and r["step"] < w.step_to))
        and (w.kinds is None or r["kind"] in w.kinds)
        and (w.groups is None or r["group"] in w.groups)
        and (w.from_ns is None or r["end_ns"] is None or r["end_ns"] >= w.from_ns)
        and (w.to_ns is None or r["start_ns"] is None or r["start_ns"] < w.to_ns)
        and (w.trace_id is None or r["trace_id"] == w.trace_id)
        and (w.span_ids is None or r["span_id"] in w.span_ids)
    )


def check(store, oracle, where):
    rows = by_identity(oracle.rows())
    snapshot = store.snapshot("j")
    assert by_identity(snapshot.events().to_pylist()) == rows
    assert snapshot.partial == ()
    some = ["span_id", "rank", "name", "attrs"]
    found = by_identity(snapshot.events(some, where).to_pylist())
    assert found == [{k: r[k] for k in r if k in some} for r in rows if wanted(r, where)]
    assert store.tallies("j") == dict(oracle.tally)


def run(actions, where, folder, **limits):
    oracle, sent = Oracle(), []
    limits = {"compact_segments": 2, **limits}
    store, kills = open_store(folder, **limits), 0
    try:
        for received, action in enumerate(actions, 1):
            if action == "seal":
                store.seal()
            elif action == "compact":
                store.seal()
                store.compact()
            elif action == "close":
                store.close()
                store = open_store(folder, **limits)
            elif action == "kill":
                kills += 1
                folder = crashed(folder, folder.with_name(f"killed{kills}"))
                store.close()
                store = open_store(folder, **limits)
            else:
                batch = sent[len(sent) // 2] if action == "resend" and sent else action
                if batch == "resend":
                    continue
                sent.append(batch)
                request = post(batch, received)
                store.append(request, decode(request)).result(30)
                events = table(batch, received)
                for version, mark in zip(events.to_pylist(), marks(events).tolist(), strict=True):
                    oracle.receive(version, mark)
            if sent:
                check(store, oracle, where)
    finally:
        store.close()


@settings(max_examples=12, phases=FOUND_ONLY)
@given(ACTIONS, FILTERS)
def test_store_agrees_with_the_oracle(actions, where):
    with tempfile.TemporaryDirectory() as folder:
        run(actions, where, Path(folder) / "data")


@pytest.mark.long
def test_store_agrees_with_the_oracle_for_ten_thousand_steps():
    steps = 0

    @settings(max_examples=1500, phases=FOUND_ONLY)
    @given(ACTIONS, FILTERS, st.sampled_from([1 << 20, 4]))
    def campaign(actions, where, memtable_bytes):
        nonlocal steps
        steps += len(actions)
        with tempfile.TemporaryDirectory() as folder:
            run(actions, where, Path(folder) / "data", memtable_bytes=memtable_bytes << 10, wal_segment_bytes=500)

    campaign()
    assert steps >= 10_000
    record("random batches, resends, seals, compactions, kills against an in-memory model", f"{steps:,} steps, the same answers")


@given(st.lists(BATCH, min_size=1, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=5, phases=FOUND_ONLY)
def test_shuffled_and_resent_batches_of_agreeing_events_give_the_same_rows(batches, random):
    """Without contradictions, neither order nor repetition nor the moments of sealing show in the answer."""
    agreeing = {}
    for sent in (r for batch in batches for r in batch):
        form = (sent["start_ns"] is None, sent["end_ns"] is None)
        agreeing.setdefault((sent["rank"], sent["span_id"], form), sent)
    rows = list(agreeing.values())
    answers = []
    for _ in range(2):
        delivery = rows + random.choices(rows, k=len(rows))
        random.shuffle(delivery)
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(Path(folder) / "data")
            for at in range(0, len(delivery), 3):
                request = post(delivery[at : at + 3], 1)
                store.append(request, decode(request)).result(30)
                if random.random() < 0.2:
                    store.seal()
            answers.append(by_identity(store.snapshot("j").events().to_pylist()))
            assert store.tallies("j")["conflict"] == 0
            store.close()
    assert answers[0] == answers[1]
