"""Matching: what is one operation, whom it binds, and what is left over by reason."""

import numpy as np
import pytest

from crossrank.reconstruct.match import match
from tests.support.events import collective, message, trace_of


def shown(trace, matches):
    """(group, seq, ranks, synchronising) per instance."""
    c = matches.collectives
    return [
        (trace.groups[c.group[k]], int(c.seq[k]), trace.rank[c.member[c.ptr[k] : c.ptr[k + 1]]].tolist(), bool(c.synchronising[k]))
        for k in range(len(c))
    ]


def test_collectives_match_by_group_and_seq_and_count_who_is_missing():
    members = {"group_ranks": [0, 1, 2]}
    trace = trace_of(
        collective(2, 2, (30, 40), **members),
        collective(0, 1, (0, 10), **members),
        collective(1, 1, (5, None), **members),
        collective(2, 1, (1, 10), **members),
        collective(0, 2, (30, 40), **members),
        collective(0, 3, (50, 60), **members),
    )
    matches = match(trace)
    assert shown(trace, matches) == [("g", 1, [0, 1, 2], True), ("g", 2, [0, 2], True), ("g", 3, [0], False)]
    assert matches.collectives.expected.tolist() == [3, 3, 3]
    assert matches.collectives.complete.tolist() == [True, False, False]
    assert matches.unmatched == {"alone": 1, "incomplete": 1}


def test_groups_of_one_name_are_kept_apart_by_their_members():
    trace = trace_of(
        collective(0, 1, (0, 10), "tp", group_ranks=[0, 1]),
        collective(1, 1, (0, 10), "tp", group_ranks=[1, 0]),
        collective(2, 1, (0, 10), "tp", group_ranks=[2, 3]),
        collective(3, 1, (0, 10), "tp"),
    )
    assert shown(trace, match(trace)) == [("tp", 1, [0, 1], True), ("tp", 1, [2, 3], True)]


def test_the_first_span_of_a_rank_counts_and_the_second_is_counted_as_doubled():
    trace = trace_of(
        collective(0, 1, (20, 30), lane="a"),
        collective(0, 1, (0, 10), lane="b"),
        collective(1, 1, (0, 10)),
        collective(1, 2, (40, 50)),
    )
    matches = match(trace)
    assert trace.start_ns[matches.collectives.member].tolist() == [0, 0, 40]
    assert matches.unmatched == {"doubled": 1}


@pytest.mark.parametrize("odd", [{"op": "all_gather"}, {"bytes": 7}])
def test_members_that_disagree_bind_nobody(odd):
    trace = trace_of(*(collective(r, 1, (0, 10), bytes=64) for r in (0, 2)), collective(1, 1, (0, 10), **{"bytes": 64, **odd}))
    matches = match(trace)
    assert shown(trace, matches) == [("g", 1, [0, 1, 2], False)]
    assert matches.unmatched == {"mismatched": 1}
    assert trace.ops[matches.collectives.op[0]] == "all_reduce"


def test_spellings_of_one_operation_and_uneven_all_to_all_agree():
    trace = trace_of(
        collective(0, 1, (0, 10), op="AllReduce", bytes=4),
        collective(1, 1, (0, 10), op="all_reduce", bytes=None),
        collective(0, 2, (20, 30), op="all_to_all", bytes=4),
        collective(1, 2, (20, 30), op="all_to_all", bytes=9),
    )
    assert match(trace).collectives.synchronising.tolist() == [True, True]


def test_rooted_operations_know_their_root():
    trace = trace_of(
        *(collective(r, 1, (0, 10), op="broadcast", peer=1) for r in range(3)),
        *(collective(r, 2, (20, 30), op="reduce", peer=2) for r in range(3)),
        *(collective(r, 3, (40, 50), op="gather", peer=r) for r in range(3)),
    )
    c = match(trace).collectives
    assert [int(trace.rank[s]) if s >= 0 else None for s in c.root] == [1, 2, None]
    assert c.root_sends.tolist() == [True, False, False]
    assert not c.synchronising.any()


def test_launches_strangers_and_nameless_groups_are_left_out_and_counted():
    trace = trace_of(
        collective(0, 1, (0, 10), is_async=True),
        collective(5, 1, (0, 10), group_ranks=[0, 1]),
        collective(0, 1, (0, 10), group=None),
        message("recv", 1, 0, 1, (0, 5), is_async=True),
        message("send", 0, None, 1, (0, 5)),
    )
    matches = match(trace)
    assert len(matches.collectives) == 0
    assert len(matches.messages) == 0
    assert matches.unmatched == {"async_launch": 2, "no_group": 1, "no_peer": 1, "not_a_member": 1}


def test_without_seq_the_order_within_each_step_counts():
    rows = [collective(r, None, (100 * s + 10 * i, 100 * s + 10 * i + 5), step=s) for r in (0, 1) for s in (0, 1) for i in (0, 1)]
    lost_in_step_0 = [row for row in rows if not (row["rank"] == 1 and row["at"][0] == 0)]
    trace = trace_of(*lost_in_step_0)
    matches = match(trace)
    assert shown(trace, matches) == [("g", 1, [0, 1], False), ("g", 2, [0], False), ("g", 3, [0, 1], True), ("g", 4, [0, 1], True)]
    assert matches.unmatched == {"by_order": 4, "order_doubtful": 3}


def test_messages_match_by_seq_else_by_order():
    trace = trace_of(
        message("send", 0, 1, 7, (0, 5)),
        message("recv", 1, 0, 7, (1, 9)),
        message("recv", 0, 1, 7, (1, 9)),
        message("send", 2, 3, None, (0, 5)),
        message("send", 2, 3, None, (10, 15)),
        message("recv", 3, 2, None, (3, 9)),
        message("recv", 3, 2, None, (13, 19)),
        message("send", 4, 5, 1, (0, 1)),
    )
    m = match(trace)
    pairs = [
        (int(trace.rank[s]), int(trace.start_ns[s]), int(trace.start_ns[r]))
        for s, r in zip(m.messages.send, m.messages.recv, strict=True)
    ]
    assert pairs == [(0, 0, 1), (2, 0, 3), (2, 10, 13)]
    assert m.unmatched == {"by_order": 4, "unreceived": 1, "unsent": 1}


def test_hostile_numbers_do_not_overflow():
    big = np.iinfo(np.int64)
    trace = trace_of(*(collective(r, s, (0, 10)) for r in (0, 2**31 - 1) for s in (big.min, -1, 0, big.max)))
    assert [n for _, n, ranks, ok in shown(trace, match(trace)) if ok and len(ranks) == 2] == [big.min, -1, 0, big.max]


def test_nothing_in_nothing_out():
    trace = trace_of()
    assert len(match(trace).collectives) == 0
    assert match(trace).collectives.ptr.tolist() == [0]
