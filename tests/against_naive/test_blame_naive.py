"""Kernels of blame against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.analysis.excess import _peers_median
from crossrank.analysis.replay import build_replay, replay_ns
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import GcPause, SlowCompute
from crossrank.simulate.job import simulate
from tests.support.naive_replay import naive_peers_median, naive_replay_ns
from tests.support.pipeline import timeline_of


@pytest.mark.parametrize("overlap", [False, True])
def test_replay_equals_its_definition(overlap: bool):
    config = JobConfig(dp=2, tp=2, pp=2, steps=3, ranks_per_host=2, overlap=overlap)
    simulated = simulate(config, [SlowCompute(rank=3, extra_ns=3_000_000), GcPause(rank=1)], seed=5)
    graph = build_replay(timeline_of(simulated.events))
    rng = np.random.default_rng(5)
    removed = (graph.weight_ns * (rng.random(len(graph.weight_ns)) < 0.2) * rng.random(len(graph.weight_ns))).astype(np.int64)
    removed[graph.owner < 0] = 0
    removed[graph.launch_during[graph.launch_during >= 0]] = 0
    expected = naive_replay_ns(graph, removed)
    found = replay_ns(graph, removed)
    assert {s: int(found[s]) for s in expected} == expected


@pytest.mark.parametrize("overlap", [False, True])
def test_unchanged_replay_is_the_recording_to_the_nanosecond(overlap: bool):
    config = JobConfig(dp=4, tp=2, pp=4, steps=6, ranks_per_host=4, overlap=overlap)
    graph = build_replay(timeline_of(simulate(config, [GcPause(rank=9)], seed=11).events))
    assert np.array_equal(replay_ns(graph)[graph.order], graph.recorded_ns[graph.order])


@pytest.mark.parametrize("seed", range(20))
def test_median_of_peers(seed: int):
    rng = np.random.default_rng(seed)
    own = rng.integers(0, 50, size=(int(rng.integers(3, 9)), 7)).astype(float)
    own[rng.random(own.shape) < 0.2] = np.nan
    assert np.array_equal(_peers_median(own), naive_peers_median(own), equal_nan=True)
