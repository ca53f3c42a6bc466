"""Hosts whose ranks are slow together, against the simulator's truth; one slow rank on a host is no slow host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.findings import Finding
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import Fault, LostEvents, SlowCompute, SlowLoader
from crossrank.simulate.job import simulate
from crossrank.simulate.truth import true_cost
from tests.support.pipeline import timeline_of, topology_of

SHAPES = (
    JobConfig(steps=14),  # two hosts a stage: compared with their own other steps
    JobConfig(dp=32, tp=2, pp=1, steps=14),
    JobConfig(dp=8, tp=2, pp=1, steps=14, ranks_per_host=4),
    JobConfig(dp=16, tp=1, pp=1, steps=14, ranks_per_host=2),
)
ACCUSING = {"straggler", "straggler_host", "data_stall", "jitter", "slow_link"}


def accusations(config: JobConfig, faults: list[Fault], seed: int) -> list[Finding]:
    timeline = timeline_of(simulate(config, faults, seed=seed).events)
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    found = find_bottlenecks(timeline, topology, steps, find_stragglers(timeline, topology, steps))
    return [f for f in found if f.class_ in ACCUSING]


def slow_host(config: JobConfig, host: int, extra_ns: int = 6_000_000) -> tuple[list[Fault], tuple[int, ...]]:
    ranks = tuple(range(host * config.ranks_per_host, (host + 1) * config.ranks_per_host))
    return [SlowCompute(rank=r, phase="forward", steps=(4, 9), extra_ns=extra_ns) for r in ranks], ranks


@pytest.mark.parametrize("seed", range(8))
def test_ranks_of_one_host_that_are_slow_together_are_one_finding(seed: int):
    config = SHAPES[seed % len(SHAPES)]
    faults, ranks = slow_host(config, seed % config.hosts)
    lost: list[Fault] = [LostEvents(0.005)] if seed >= 4 else []
    found = accusations(config, faults + lost, seed)
    assert [(f.class_, f.ranks, f.steps) for f in found] == [("straggler_host", ranks, tuple(range(4, 10)))]
    together = true_cost(config, faults, seed).total_ns
    assert together is not None
    assert found[0].cost_ns == pytest.approx(together, rel=0.1 if not lost else 0.2)
    assert found[0].confidence >= 0.9
    assert f"{len(ranks)} ranks of host" in found[0].sentence


@pytest.mark.parametrize("seed", range(8))
def test_one_slow_rank_of_a_host_stays_a_rank(seed: int):
    config = SHAPES[seed % len(SHAPES)]
    rank = (seed * 11 + 3) % config.world_size
    found = accusations(config, [SlowCompute(rank=rank, phase="backward", steps=(4, 9), extra_ns=8_000_000)], seed)
    assert [(f.class_, f.ranks) for f in found] == [("straggler", (rank,))]


def test_two_slow_ranks_of_two_hosts_are_two_findings():
    faults: list[Fault] = [SlowCompute(rank=r, phase="forward", steps=(4, 9), extra_ns=8_000_000 + r * 100_000) for r in (3, 21)]
    found = accusations(SHAPES[1], faults, 5)
    assert "straggler_host" not in {f.class_ for f in found}


def test_a_slow_loader_of_all_ranks_of_a_host():
    config = SHAPES[2]
    faults: list[Fault] = [SlowLoader(rank=r, steps=(3, 8), extra_ns=30_000_000) for r in range(4, 8)]
    (found,) = accusations(config, faults, 2)
    assert (found.class_, found.ranks) == ("straggler_host", (4, 5, 6, 7))
    assert "dataloader" in found.sentence


@pytest.mark.parametrize("seed", range(100, 112))
def test_healthy_jobs_have_no_slow_host(seed: int):
    config = replace(SHAPES[seed % len(SHAPES)], hiccup_probability=0.004)
    assert accusations(config, [LostEvents(0.01)] if seed % 3 == 0 else [], seed) == []
