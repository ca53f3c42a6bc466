"""Happened-before between spans against plain reachability, with every witness checked."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crossrank.model.trace import trace_from_arrow
from crossrank.reconstruct.causality import causal_index, cone, relation
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.events import collective, trace_of
from tests.support.naive_order import happened_before
from tests.support.random_jobs import random_rows


def prepared(*rows):
    trace = trace_of(*rows)
    matches = match(trace)
    order = replay(trace, matches)
    return trace, causal_index(trace, matches, order), happened_before(trace, matches, order.broken)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_equals_reachability_for_all_pairs(seed, ranks):
    rows = random_rows(seed, ranks=ranks, operations=12, garbage_clocks=True)
    rng = np.random.default_rng(seed)
    for row in rows:
        row["lane"] = str(rng.integers(2))
        if row.get("seq") and rng.random() < 0.05:
            row["seq"] = int(rng.integers(1, 4))
    trace, index, graph = prepared(*rows)
    after = {stamp: nx.descendants(graph, stamp) for stamp in graph}
    for a in range(len(trace)):
        for b in range(len(trace)):
            found = relation(index, a, b)
            before, later = (2 * b in after.get(2 * a + 1, ()), 2 * a in after.get(2 * b + 1, ()))
            assert found.relation == ("before" if before else "after" if later else "concurrent")
            check_witness(after, found, *((a, b) if before else (b, a)))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_the_cone_holds_all_that_is_reachable(seed, ranks):
    trace, index, graph = prepared(*random_rows(seed, ranks=ranks, operations=12, garbage_clocks=True))
    for a in range(len(trace)):
        found = cone(index, a)
        after = nx.descendants(graph, 2 * a + 1) if 2 * a + 1 in graph else set()
        assert found.stamps == len(after)
        lanes = {int(trace.lane[stamp // 2]) for stamp in after}
        assert set(np.flatnonzero(found.entry >= 0).tolist()) == lanes
        for lane in lanes:
            inside = [s for s in trace.lane_stamps.tolist() if s in after and trace.lane[s // 2] == lane]
            assert found.entry[lane] == inside[0]


def check_witness(after, found, first, last):
    if found.relation == "concurrent":
        assert found.path == ()
        return
    assert (found.path[0], found.path[-1]) == (first, last)
    for one, two in zip(found.path[:-1], found.path[1:], strict=True):
        assert any(2 * two + side in after.get(2 * one + end, ()) for end in (0, 1) for side in (0, 1))


def test_a_collective_orders_what_came_before_and_after_it_on_other_ranks():
    trace, index, _ = prepared(
        {"rank": 0, "name": "before", "at": (500, 600)},
        collective(0, 1, (600, 700)),
        collective(1, 1, (0, 10)),
        {"rank": 1, "name": "after", "at": (20, 30)},
        {"rank": 1, "name": "beside", "at": (-20, -10)},
    )
    span = {trace.names[n]: i for i, n in enumerate(trace.name.tolist())}
    reduces = [i for i, n in enumerate(trace.name.tolist()) if trace.names[n] == "all_reduce"]
    found = relation(index, span["before"], span["after"])
    assert found.relation == "before"
    assert found.path == (span["before"], reduces[0], reduces[1], span["after"])
    assert relation(index, span["after"], span["before"]).relation == "after"
    assert relation(index, span["before"], span["beside"]).relation == "concurrent"
    assert relation(index, *reduces).relation == "concurrent"


def test_an_open_span_is_before_nothing():
    _, index, _ = prepared({"name": "hung", "at": (0, None)}, {"name": "later", "at": (10, 20)})
    assert relation(index, 0, 1).relation == "concurrent"


def test_vectors_bound_the_search_and_change_no_answer():
    config = JobConfig(dp=4, tp=4, pp=2, steps=6)
    trace = trace_from_arrow(simulate(config, seed=911).events, job=config.job, attempt=0)
    matches = match(trace)
    index = causal_index(trace, matches, replay(trace, matches))
    assert 0 < index.vectors.after.nbytes <= 32 * len(trace)
    rng = np.random.default_rng(912)
    for a in rng.integers(0, len(trace), 40).tolist():
        reached = cone(index, a).entry
        for b in rng.integers(0, len(trace), 50).tolist():
            entry = reached[trace.lane[b]]
            inside = entry >= 0 and index.place[2 * b] >= index.place[entry]
            assert (relation(index, a, b).relation == "before") == inside
    # Every vector says exactly where the cones of the past begin: the last stamp of each lane that reaches its gate.
    marks = index.vectors
    for m in rng.integers(0, len(marks.place), 20).tolist():
        gate_end = index.stamps[marks.place[m]]
        lane = int(rng.integers(index.lanes))
        last = int(marks.after[marks.vector[m], lane])
        own = np.flatnonzero((trace.lane == lane) & ~trace.is_open)
        ends = index.place[2 * own + 1]
        for near in (own[ends <= last][-1:], own[ends > last][:1]):
            for a in near.tolist():
                entry = cone(index, a).entry[trace.lane[gate_end // 2]]
                comes_after = entry >= 0 and index.place[entry] <= marks.place[m]
                on_own_lane = lane == trace.lane[gate_end // 2]
                assert comes_after == (index.place[2 * a + 1] <= last) or on_own_lane
