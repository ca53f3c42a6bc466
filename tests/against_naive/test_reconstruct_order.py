"""The replay against a plain graph: topological, Lamport exact, cycles found and only cycles broken."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import STANDSTILLS_MAX, replay
from tests.support.events import collective, message, trace_of
from tests.support.naive_order import happened_before, lamport_depths
from tests.support.random_jobs import random_rows


def check(trace):
    matches = match(trace)
    order = replay(trace, matches)
    assert sorted(order.stamps.tolist()) == sorted(trace.lane_stamps.tolist())
    graph = happened_before(trace, matches, order.broken)
    place = {stamp: i for i, stamp in enumerate(order.stamps.tolist())}
    assert all(place[a] < place[b] for a, b in graph.edges)
    assert {stamp: int(order.lamport[stamp]) for stamp in place} == lamport_depths(graph)
    assert (order.lamport[1::2][trace.is_open] == 0).all()
    return matches, order


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 40))
def test_equals_the_graph_on_runs_that_could_happen(seed, ranks, operations):
    _, order = check(trace_of(*random_rows(seed, ranks=ranks, operations=operations, garbage_clocks=True)))
    assert order.broken == ()


@given(st.integers(0, 10**6))
def test_swapped_seqs_are_broken_only_where_the_graph_has_cycles(seed):
    rows = random_rows(seed, ranks=3, operations=30, loss=0)
    rng = np.random.default_rng(seed)
    for row in rows:
        if row.get("seq") and rng.random() < 0.15:
            row["seq"] = int(rng.integers(1, 6))
    trace = trace_of(*rows)
    matches, order = check(trace)
    assert bool(order.broken) == (not nx.is_directed_acyclic_graph(happened_before(trace, matches)))


def test_the_weakest_constraint_of_a_cycle_is_dropped():
    rows = [collective(r, 1, (0, 10)) for r in (0, 1, 2)]
    rows += [message("recv", 0, 1, 1, (-9, -5)), message("send", 1, 0, 1, (20, 30))]
    trace = trace_of(*rows)
    _, order = check(trace)
    assert order.broken == (("message", 0),)


def test_two_collectives_in_crossed_order_lose_one_of_them():
    rows = [
        collective(0, 1, (0, 10), "a"),
        collective(0, 1, (20, 30), "b"),
        collective(1, 1, (0, 10), "b"),
        collective(1, 1, (20, 30), "a"),
    ]
    _, order = check(trace_of(*rows))
    assert order.broken == (("collective", 0),)


def test_a_message_to_oneself_that_comes_before_it_is_sent():
    rows = [message("recv", 0, 0, 1, (0, 10)), message("send", 0, 0, 1, (20, 30))]
    _, order = check(trace_of(*rows))
    assert order.broken == (("message", 0),)


def test_no_stamps_no_order():
    _, order = check(trace_of())
    assert len(order.stamps) == 0


def test_garbage_without_end_is_given_up_in_bounded_time():
    rows = []
    for i in range(STANDSTILLS_MAX + 50):
        for r in (0, 1):
            rows += [message("recv", r, 1 - r, i, (10 * i, 10 * i + 1)), message("send", r, 1 - r, i, (10 * i + 2, 10 * i + 3))]
    matches, order = check(trace_of(*rows))
    assert STANDSTILLS_MAX < len(order.broken) <= len(matches.messages)
