from __future__ import annotations

import numpy as np
import pytest

from crossrank.align.fit import fit_clocks
from crossrank.model.clockmap import UNALIGNED_NS, ClockMap
from crossrank.model.trace import JobTrace, trace_from_arrow
from crossrank.reconstruct.match import match
from tests.support.events import collective, message, trace_of
from tests.support.pipeline import events_of

EPOCH_NS = 1_780_272_000_000_000_000


def aligned(trace: JobTrace) -> ClockMap:
    clocks = fit_clocks(trace, match(trace))
    for values in (clocks.sigma_ns, clocks.bias_floor_ns):
        assert np.isfinite(values).all()
    assert (clocks.bound_lo_ns <= 0).all()
    assert (clocks.bound_hi_ns >= 0).all()
    assert (clocks.pairs.between_ns >= 0).all()
    assert (np.diag(clocks.pairs.between_ns) == 0).all()
    return clocks


def unchanged(trace: JobTrace, clocks: ClockMap) -> bool:
    return bool((clocks.to_reference(trace.domain, trace.start_ns) == trace.start_ns).all())


def test_no_events_at_all():
    trace = trace_of()
    clocks = aligned(trace)
    assert clocks.epochs == ()
    assert clocks.pairs.between_ns.shape == (0, 0)


def test_one_rank_keeps_its_clock_exactly():
    trace = trace_of({"at": (EPOCH_NS, EPOCH_NS + 7)}, {"at": (EPOCH_NS + 9, EPOCH_NS + 11)})
    clocks = aligned(trace)
    assert unchanged(trace, clocks)
    assert clocks.component.tolist() == [0]


def test_ranks_of_one_host_share_a_clock_and_nothing_moves():
    trace = trace_of(*(collective(rank, seq, (10 * seq + rank, 10 * seq + 5), host="h") for seq in (1, 2) for rank in (0, 1)))
    clocks = aligned(trace)
    assert unchanged(trace, clocks)
    assert clocks.pairs.between_ns.tolist() == [[0]]


def test_hosts_that_never_meet_are_unaligned_and_keep_their_clocks():
    trace = trace_of(*({"rank": r, "at": (r * 10**9, r * 10**9 + 5)} for r in range(3)))
    clocks = aligned(trace)
    assert unchanged(trace, clocks)
    assert clocks.component.tolist() == [0, 1, 2]
    assert (clocks.pairs.between_ns[~np.eye(3, dtype=bool)] == UNALIGNED_NS).all()


def test_two_groups_of_hosts_are_two_components_with_a_reference_each():
    rows = [
        collective(rank, seq, (seq * 1000 + rank * 100_000, seq * 1000 + 50 + rank * 100_000), group=f"g{rank // 2}")
        for seq in range(1, 5)
        for rank in range(4)
    ]
    clocks = aligned(trace_of(*rows))
    assert clocks.component.tolist() == [0, 0, 1, 1]
    assert clocks.reference.tolist() == [0, 2]
    assert clocks.pairs.between_ns[0, 1] < UNALIGNED_NS
    assert clocks.pairs.between_ns[1, 2] == UNALIGNED_NS


def test_messages_one_way_join_nothing():
    rows = [
        row
        for seq in range(1, 9)
        for row in (message("send", 0, 1, seq, (100 * seq, 100 * seq + 5)), message("recv", 1, 0, seq, (100 * seq, 100 * seq + 40)))
    ]
    trace = trace_of(*rows)
    clocks = aligned(trace)
    assert clocks.component.tolist() == [0, 1]
    assert unchanged(trace, clocks)


def test_messages_both_ways_give_half_the_difference_of_the_delays():
    ahead = 1_000_000  # host 1
    rows = []
    for seq in range(1, 40):
        t = EPOCH_NS + seq * 10_000_000
        rows += [
            message("send", 0, 1, seq, (t, t + 5)),
            message("recv", 1, 0, seq, (t + ahead, t + 20_000 + ahead)),
            message("send", 1, 0, seq, (t + 1_000_000 + ahead, t + 1_000_005 + ahead)),
            message("recv", 0, 1, seq, (t + 1_000_000, t + 1_020_000)),
        ]
    trace = trace_of(*rows)
    clocks = aligned(trace)
    moved = clocks.to_reference(trace.domain, trace.start_ns) - trace.start_ns
    assert (moved[trace.rank == 0] == 0).all()
    assert np.abs(moved[trace.rank == 1] + ahead).max() <= 2
    assert 20_000 <= clocks.pairs.between_ns[0, 1] <= 30_000


def test_one_collective_of_two_hosts_is_enough_for_an_offset():
    ahead = 5_000_000
    trace = trace_of(
        collective(0, 1, (EPOCH_NS, EPOCH_NS + 1000)), collective(1, 1, (EPOCH_NS + 400 + ahead, EPOCH_NS + 1000 + ahead))
    )
    clocks = aligned(trace)
    moved = clocks.to_reference(trace.domain, trace.end_ns)
    assert moved[0] == moved[1]


def test_a_host_without_matches_stands_alone_beside_an_aligned_pair():
    rows = [collective(r, seq, (1000 * seq, 1000 * seq + 10)) for r in (0, 1) for seq in (1, 2, 3)]
    clocks = aligned(trace_of(*rows, {"rank": 2, "at": (5, 6)}))
    assert clocks.component.tolist() == [0, 0, 1]


def test_open_spans_and_launches_bind_nothing():
    rows = [collective(0, 1, (100, None)), collective(1, 1, (5000, 5010)), collective(0, 2, (200, 210), is_async=True)]
    clocks = aligned(trace_of(*rows, collective(1, 2, (9000, 9100))))
    assert clocks.component.tolist() == [0, 1]


@pytest.mark.parametrize("wild", [0, 2**61])
def test_one_wild_stamp_does_not_move_the_others(wild):
    rows = [
        collective(r, seq, (EPOCH_NS + 10**7 * seq, EPOCH_NS + 10**7 * seq + 1000 + 10 * r), group_ranks=[0, 1])
        for r in (0, 1)
        for seq in range(1, 60)
    ]
    rows[30]["at"] = (wild, wild + 5)
    trace = trace_of(*rows)
    clocks = aligned(trace)
    moved = clocks.to_reference(trace.domain, trace.start_ns) - trace.start_ns
    sane = np.abs(trace.start_ns - EPOCH_NS) < 10**12
    assert np.abs(moved[sane]).max() < 1000


def test_more_clocks_than_pairs_can_be_bounded_for() -> None:
    """A sender may claim a clock for every event: memory grows with their number, not with its square."""
    claimed = 4_000
    work = {"kind": "collective", "op": "all_reduce", "group": "world", "seq": 1}
    rows = [{"rank": r, "name": "a", "start_ns": EPOCH_NS + r, "end_ns": EPOCH_NS + r + 50_000, **work} for r in range(claimed)]
    trace = trace_from_arrow(events_of(rows), job="job", attempt=0)
    clocks = fit_clocks(trace, match(trace))
    assert len(trace.domains) == claimed
    assert clocks.pairs.between_ns is None
    assert clocks.pairs.of(trace.domain[:2], trace.domain[1:3]).tolist() == [UNALIGNED_NS, UNALIGNED_NS]
    assert clocks.pairs.of(trace.domain[:2], trace.domain[:2]).tolist() == [0, 0]
