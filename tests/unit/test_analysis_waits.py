"""Arrivals, waits, transfers and bandwidth of collectives and messages."""

import numpy as np
import pytest

from crossrank.analysis.waits import collective_times, message_times
from crossrank.model.clockmap import UNALIGNED_NS
from tests.support.events import collective, message
from tests.support.timelines import timeline_of


def test_each_member_waits_for_the_last_one_and_then_all_transfer():
    times = collective_times(
        timeline_of(*(collective(r, 1, at, bytes=400, step=2) for r, at in enumerate([(0, 101), (60, 100), (20, 109), (10, 100)])))
    )
    assert times.first_arrival_ns.tolist() == [0]
    assert times.last_arrival_ns.tolist() == [60]
    assert times.last_arriver.tolist() == [1]
    assert times.decided.tolist() == [True]
    assert times.wait_ns.tolist() == [60, 0, 40, 50]
    assert times.spread_ns.tolist() == [60]
    assert times.transfer_ns.tolist() == [40]
    assert times.algbw_gbs.tolist() == [10.0]
    assert times.busbw_gbs.tolist() == [15.0]
    assert times.step.tolist() == [2]


@pytest.mark.parametrize(("op", "factor"), [("all_gather", 0.75), ("reduce_scatter", 0.75), ("broadcast", 1.0)])
def test_bus_bandwidth_factors(op, factor):
    times = collective_times(timeline_of(*(collective(r, 1, (0, 100), op=op, bytes=100, peer=0) for r in range(4))))
    assert times.busbw_gbs.tolist() == [factor]


@pytest.mark.parametrize(
    ("starts", "bound", "decided"),
    [((0, 10), 9, True), ((0, 10), 10, False), ((10, 10), 0, False), ((0, 9, 10), 5, False)],
)
def test_the_last_arriver_is_only_named_beyond_the_clock_bound(starts, bound, decided):
    times = collective_times(timeline_of(*(collective(r, 1, (s, 20)) for r, s in enumerate(starts)), bound_ns=bound))
    assert times.decided.tolist() == [decided]
    assert times.spread_bound_ns.tolist() == [bound]


def test_ranks_of_one_clock_need_no_bound_and_unrelated_clocks_decide_nothing():
    rows = [collective(0, 1, (0, 20), clock="c"), collective(1, 1, (1, 20), clock="c")]
    assert collective_times(timeline_of(*rows, bound_ns=50)).decided.tolist() == [True]
    rows = [collective(0, 1, (0, 20)), collective(1, 1, (10**15, 10**15 + 1))]
    assert collective_times(timeline_of(*rows, bound_ns=UNALIGNED_NS)).decided.tolist() == [False]


def test_a_member_nobody_saw_may_have_been_the_last():
    times = collective_times(timeline_of(*(collective(r, 1, (r, 20), group_ranks=[0, 1, 2]) for r in (0, 1))))
    assert times.decided.tolist() == [False]


def test_an_operation_still_open_has_no_transfer():
    times = collective_times(timeline_of(collective(0, 1, (0, None)), collective(1, 1, (30, 40))))
    assert times.ended.tolist() == [False]
    assert times.transfer_ns.tolist() == [0]
    assert np.isnan(times.algbw_gbs).all()
    assert times.wait_ns.tolist() == [0, 0]


def test_in_a_broadcast_all_wait_for_the_root_and_in_a_reduce_the_root_for_all():
    rows = [collective(r, 1, at, op="broadcast", peer=0) for r, at in enumerate([(30, 40), (0, 41), (35, 42)])]
    assert collective_times(timeline_of(*rows)).wait_ns.tolist() == [0, 30, 0]
    rows = [collective(r, 1, at, op="reduce", peer=0) for r, at in enumerate([(0, 40), (30, 31), (20, 21)])]
    assert collective_times(timeline_of(*rows)).wait_ns.tolist() == [30, 0, 0]


def test_a_receive_waits_until_its_send_starts():
    times = message_times(
        timeline_of(
            message("send", 0, 1, 1, (50, 60)),
            message("recv", 1, 0, 1, (10, 70)),
            message("send", 0, 1, 2, (80, 90)),
            message("recv", 1, 0, 2, (100, 105)),
            message("send", 0, 1, 3, (200, 205)),
            message("recv", 1, 0, 3, (110, None)),
        )
    )
    assert times.wait_ns.tolist() == [40, 0, 0]
    assert times.transfer_ns.tolist() == [20, 5, 0]


def test_no_collectives():
    assert len(collective_times(timeline_of()).wait_ns) == 0
    assert len(message_times(timeline_of()).wait_ns) == 0
