"""Matching against dictionaries, on traces in which anything may be wrong."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.reconstruct.match import match
from tests.support.events import trace_of
from tests.support.naive_match import agree, naive_instances, naive_messages

OPS = ("all_reduce", "AllReduce", "barrier", "all_to_all", "broadcast", None)


def anything(seed, events):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(events):
        start = int(rng.integers(0, 60))
        kind = str(rng.choice(["collective", "collective", "send", "recv"]))
        group = rng.choice(["a", "b"]) if rng.random() < 0.95 else None
        seq = int(rng.integers(0, 3)) if kind != "collective" or rng.random() < 0.7 else None
        rows.append(
            {
                "rank": int(rng.integers(0, 4)), "lane": str(rng.integers(0, 2)), "kind": kind, "at": (start, start + 5),
                "op": OPS[rng.integers(len(OPS))] if kind == "collective" else kind, "group": None if group is None else str(group),
                "group_ranks": [[0, 1], [0, 1, 2, 3], None][rng.integers(3)],
                "seq": seq,
                "peer": int(rng.integers(0, 4)) if rng.random() < 0.9 else None, "bytes": [None, 8, 8, 16][rng.integers(4)],
                "is_async": bool(rng.random() < 0.1), "step": int(rng.integers(0, 2)) if seq is None or rng.random() < 0.5 else None, "span_id": i + 1,
            }
        )  # fmt: skip
    return rows


def messages(seed, events):
    """Messages between two ranks, all with a tag or some without, with and without numbers, sharing them and not."""
    rng = np.random.default_rng(seed)
    tagged, numbered, numbers = rng.choice([0.0, 0.8, 1.0]), rng.choice([0.0, 0.5, 1.0]), int(rng.choice([2, 6]))
    rows = []
    for i in range(events):
        start, rank = int(rng.integers(0, 60)), int(rng.integers(0, 2))
        kind = str(rng.choice(["send", "recv"]))
        rows.append(
            {
                "rank": rank, "lane": str(rng.integers(0, 2) if rng.random() < 0.2 else 0), "kind": kind, "at": (start, start + 5),
                "op": kind, "group": "p", "peer": 1 - rank, "step": int(rng.integers(0, 2)), "span_id": i + 1,
                "seq": int(rng.integers(0, numbers)) if rng.random() < numbered else None, "is_async": bool(rng.random() < 0.1),
                "attrs": f'{{"tag":{rng.integers(0, 3)}}}' if rng.random() < tagged else None,
            }
        )  # fmt: skip
    return rows


@given(st.integers(0, 10**6), st.integers(0, 24))
def test_messages_equal_dictionaries(seed, events):
    trace = trace_of(*messages(seed, events))
    found = match(trace).messages
    assert set(zip(found.send.tolist(), found.recv.tolist(), strict=True)) == naive_messages(trace)
    assert len(set(found.send.tolist())) == len(set(found.recv.tolist())) == len(found)


@given(st.integers(0, 10**6), st.integers(0, 60))
def test_equals_dictionaries(seed, events):
    trace = trace_of(*anything(seed, events))
    found = match(trace)
    c = found.collectives
    expected = naive_instances(trace)
    members = [c.member[c.ptr[k] : c.ptr[k + 1]].tolist() for k in range(len(c))]
    assert sorted(members) == sorted(expected.values())
    for k, m in enumerate(members):
        if c.synchronising[k]:
            assert len(m) > 1
            assert agree(trace, m)
        assert c.root[k] in (-1, *m)
    assert found.unmatched.get("mismatched", 0) == sum(not agree(trace, m) for m in members)
    assert (np.lexsort((c.seq, c.group)) == np.arange(len(c))).all()
    assert set(zip(found.messages.send.tolist(), found.messages.recv.tolist(), strict=True)) == naive_messages(trace)


@given(st.integers(0, 10**6))
def test_the_order_of_delivery_does_not_matter(seed):
    rows = anything(seed, 40)
    one, two = (match(trace_of(*r)) for r in (rows, [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]))
    for name in ("group", "seq", "op", "ptr", "member", "expected", "synchronising", "root", "root_sends"):
        assert np.array_equal(getattr(one.collectives, name), getattr(two.collectives, name)), name
    assert np.array_equal(one.messages.send, two.messages.send)
    assert one.unmatched == two.unmatched
