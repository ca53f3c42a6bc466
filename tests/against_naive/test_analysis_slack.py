"""Slack and the next limit against replays of the whole job: grow an operation, shrink a stretch, look at the step's end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossrank.analysis.critical_path import critical_path, path_index
from crossrank.analysis.lane_work import NO_OWNER
from crossrank.analysis.replay import build_replay, replay_ns
from crossrank.analysis.slack import NONE, UNREACHED, latest, longest_way, step_slack
from crossrank.analysis.step_edges import SOURCE, step_edges
from crossrank.analysis.steps import find_steps
from crossrank.errors import NotFound
from crossrank.reconstruct.topology import infer_topology
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support import pipeline
from tests.support.events import collective
from tests.support.naive_slack import longest_ns, step_end_ns
from tests.support.random_jobs import random_rows
from tests.support.timelines import timeline_of


class Case:
    """A timeline with all that its slack is computed from."""

    def __init__(self, timeline):
        self.timeline, self.trace = timeline, timeline.trace
        self.steps = find_steps(timeline, infer_topology(timeline.trace, timeline.matches, None))
        self.index, self.graph = path_index(timeline), build_replay(timeline)

    def path(self, step):
        return critical_path(self.timeline, self.steps, step, self.index)

    def slack(self, step, most=20):
        return step_slack(self.graph, self.steps, self.path(step), most)

    def end_ns(self, step, removed=None, transfer=None):
        row = self.steps.row_of(step)
        return step_end_ns(self.graph, self.steps, row, replay_ns(self.graph, removed, transfer))


@pytest.fixture(scope="module")
def simulated():
    config = JobConfig(dp=2, tp=2, pp=2, steps=4, microbatches=3)
    fault = SlowCompute(rank=3, phase="forward", steps=range(1, 3), extra_ns=9_000_000)
    return Case(pipeline.timeline_of(simulate(config, [fault], seed=5).events))


def small_job(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, ranks=4, operations=40)
    last = max(start if end is None else end for start, end in (row["at"] for row in rows)) + 10 if rows else 10
    for row in rows:
        row["at"] = tuple(None if t is None else t * 1000 for t in row["at"])
    for r in range(4):
        edges = [0, last * 500, last * 1000 + int(rng.integers(0, 1000))]
        rows += [{"rank": r, "kind": "step", "step": n, "at": (edges[n], edges[n + 1])} for n in range(2)]
    return Case(timeline_of(*({**row, "span_id": i + 1} for i, row in enumerate(rows))))


def step(rank, at, number=0):
    return {"rank": rank, "kind": "step", "name": "step", "step": number, "at": at}


def test_by_hand_the_second_slowest_rank_limits_next():
    rows = [step(r, (0, 100)) for r in range(3)]
    rows += [{"rank": r, "name": "forward", "step": 0, "at": (0, end)} for r, end in enumerate((30, 70, 55))]
    rows += [collective(r, 1, (start, 80 + r), step=0) for r, start in enumerate((30, 70, 55))]
    case = Case(timeline_of(*rows))
    found = case.slack(0)
    forward = found.segments[0]
    assert forward.slack_ns == 0
    assert (forward.next_limit.rank, forward.next_limit.name, forward.next_limit.after_ns) == (2, "forward", 15)
    by_rank = {o.rank: o.slack_ns for o in found.near if o.name == "forward"}
    assert by_rank == {0: 40, 2: 15}


def test_an_unknown_step_is_told():
    case = Case(timeline_of(step(0, (0, 10))))
    with pytest.raises(NotFound):
        step_slack(case.graph, case.steps, case.path(0).__class__(7, 0, 1, (), ()))


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_leaving_an_edge_out_costs_what_its_detour_says(seed):
    case = small_job(seed)
    for row in range(len(case.steps)):
        edges = step_edges(case.graph, case.steps, row)
        assert longest_ns(edges) == edges.node_ns[edges.sink]
        found = latest(edges)
        way = longest_way(edges, found)
        for edge, detour in zip(way.path.tolist(), way.detour.tolist(), strict=True):
            other = longest_ns(edges, without=edge)
            assert (None if detour == NONE else int(edges.node_ns[edges.sink] - found.slack_ns[detour])) == other


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_the_step_grows_just_beyond_the_slack(seed):
    case = small_job(seed)
    rng = np.random.default_rng(seed)
    for number in case.steps.step.tolist():
        edges = step_edges(case.graph, case.steps, case.steps.row_of(number))
        slack = latest(edges).slack_ns
        assert (slack >= 0).all()
        pieces = np.flatnonzero((edges.owner != NO_OWNER) & ~edges.after_gate & (edges.src != SOURCE) & (slack != UNREACHED))
        for e in rng.permutation(pieces)[:5].tolist():
            for more, longer in ((0, 0), (1, 1)):
                grown = np.zeros(len(case.graph.weight_ns), dtype=np.int64)
                grown[edges.at[e]] = -(int(slack[e]) + more)
                assert case.end_ns(number, grown) == case.end_ns(number) + longer


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_stretch_shrinks_the_step_in_full_until_the_next_limit(simulated, number):
    case = simulated
    path, found = case.path(number), case.slack(number)
    before, checked = case.end_ns(number), 0
    edges = step_edges(case.graph, case.steps, case.steps.row_of(number))
    origin = case.graph.origin_ns
    for segment, slack in zip(path.segments, found.segments, strict=True):
        assert slack.slack_ns == 0
        pieces = np.flatnonzero((edges.owner == (segment.span if segment.span is not None else -2)) & ~edges.after_gate)
        ends = case.graph.recorded_ns[edges.at[pieces]] + origin
        pieces = pieces[(ends > segment.start_ns) & (ends <= segment.end_ns) & (edges.src[pieces] != SOURCE)]
        length = int(edges.weight_ns[pieces].sum())
        if segment.kind == "recv" or len(pieces) != 1 or length != segment.on_path_ns:  # a receive may end by its message
            continue
        gain = min(segment.on_path_ns, slack.next_limit.after_ns if slack.next_limit else segment.on_path_ns)
        for removed_ns in (gain, length):  # one stretch in one piece: beyond the next limit nothing more is gained
            removed = np.zeros(len(case.graph.weight_ns), dtype=np.int64)
            removed[edges.at[pieces]] = removed_ns
            assert before - case.end_ns(number, removed) == gain
        checked += 1
    assert checked >= 3


def test_the_slow_rank_is_on_the_path_and_a_peer_limits_next(simulated):
    path, found = simulated.path(1), simulated.slack(1)
    slow = [
        s.next_limit
        for p, s in zip(path.segments, found.segments, strict=True)
        if (p.rank, p.name) == (3, "forward") and s.next_limit is not None
    ]
    assert slow
    assert all(n.rank != 3 or n.name != "forward" for n in slow)
    assert all(o.slack_ns >= 0 for o in found.near)
    assert [o.slack_ns for o in found.near] == sorted(o.slack_ns for o in found.near)
