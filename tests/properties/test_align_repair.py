from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.align.repair import repair
from crossrank.align.violations import count_violations
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from tests.support.events import trace_of
from tests.support.naive_clocks import violations, worst_chain_violation
from tests.support.naive_order import happened_before
from tests.support.random_jobs import random_rows


def random_case(seed: int, *, garbage: bool):
    rows = random_rows(seed, garbage_clocks=garbage)
    trace = trace_of(*rows)
    matches = match(trace)
    return trace, matches, replay(trace, matches)


def moved(trace, start, end, new_start, new_end) -> dict[int, int]:
    move = np.stack((new_start - start, new_end - end), axis=1).ravel()
    return {int(s): int(move[s]) for s in trace.lane_stamps}


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0, 3, 1000, 10**12]))
def test_whatever_the_times_were_no_edge_is_violated_and_nothing_moves_more_than_half_the_worst(seed, scale):
    trace, matches, order = random_case(seed, garbage=True)
    rng = np.random.default_rng(seed)
    start = trace.start_ns + rng.integers(-scale, scale + 1, len(trace))
    end = np.where(trace.is_open, start, trace.end_ns + rng.integers(-scale, scale + 1, len(trace)))
    graph = happened_before(trace, matches, order.broken)
    stamps = np.stack((start, end), axis=1).ravel()
    worst = worst_chain_violation(graph, {int(s): int(stamps[s]) for s in graph.nodes})
    new_start, new_end = repair(trace, matches, order, start, end)
    repaired = np.stack((new_start, new_end), axis=1).ravel()
    for before, after in graph.edges:
        assert repaired[before] <= repaired[after]
    assert max(map(abs, moved(trace, start, end, new_start, new_end).values()), default=0) <= (worst + 1) // 2
    if not order.broken:
        assert count_violations(matches, new_start, new_end, trace.is_open) == 0
    again = repair(trace, matches, order, new_start, new_end)
    assert (again[0] == new_start).all()
    assert (again[1] == new_end).all()


@given(seed=st.integers(0, 10**6))
def test_right_times_do_not_move(seed):
    trace, matches, order = random_case(seed, garbage=False)
    start, end = repair(trace, matches, order, trace.start_ns, trace.end_ns)
    assert (start == trace.start_ns).all()
    assert (end == trace.end_ns).all()


@given(seed=st.integers(0, 10**6))
def test_violations_are_counted_as_by_looking_at_every_pair(seed):
    trace, matches, _ = random_case(seed, garbage=True)
    counted = count_violations(matches, trace.start_ns, trace.end_ns, trace.is_open)
    assert counted == violations(matches, trace.start_ns, trace.end_ns, trace.is_open)


@given(seed=st.integers(0, 10**6))
def test_the_repair_does_not_depend_on_where_time_begins(seed):
    trace, matches, order = random_case(seed, garbage=True)
    shifted = repair(trace, matches, order, trace.start_ns + 10**15, np.where(trace.is_open, trace.start_ns, trace.end_ns) + 10**15)
    plain = repair(trace, matches, order, trace.start_ns, np.where(trace.is_open, trace.start_ns, trace.end_ns))
    assert (shifted[0] - plain[0] == 10**15).all()
    assert (shifted[1] - plain[1] == 10**15).all()


@given(seed=st.integers(0, 10**6))
def test_the_repair_is_the_same_with_time_running_backwards(seed):
    trace, matches, order = random_case(seed, garbage=True)
    if trace.is_open.any():  # the mirror image of an open span would have no start
        return
    collectives, messages = matches.collectives, matches.messages
    mirrored_matches = replace(
        matches,
        collectives=replace(collectives, root_sends=~collectives.root_sends),
        messages=replace(messages, send=messages.recv, recv=messages.send),
    )
    mirrored_order = replace(order, stamps=(order.stamps ^ 1)[::-1].copy())
    start, end = repair(trace, matches, order, trace.start_ns, trace.end_ns)
    other_start, other_end = repair(trace, mirrored_matches, mirrored_order, -trace.end_ns, -trace.start_ns)
    assert np.abs(other_start + end).max(initial=0) <= 1  # halves are rounded down in either direction
    assert np.abs(other_end + start).max(initial=0) <= 1
