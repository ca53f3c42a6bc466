"""Uneven pipeline stages: the stage that has more to do, and what spreading its work evenly would save."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.findings import Finding
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import Fault, LostEvents, SlowCompute
from crossrank.simulate.job import simulate
from crossrank.simulate.truth import true_cost
from tests.support.pipeline import timeline_of, topology_of

SHAPE = JobConfig(dp=4, tp=2, pp=2, steps=8)
ACCUSING = {"straggler", "straggler_host", "data_stall", "jitter", "slow_link"}


def findings(config: JobConfig, faults: list[Fault], seed: int = 3) -> dict[str, Finding]:
    timeline = timeline_of(simulate(config, faults, seed=seed).events)
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    found = find_bottlenecks(timeline, topology, steps, find_stragglers(timeline, topology, steps))
    return {f.class_: f for f in found}


@pytest.mark.parametrize(("stages", "stage", "factor"), [(2, 1, 1.5), (2, 0, 1.3), (4, 2, 1.4)])
def test_the_stage_with_more_work_is_named_with_what_evening_out_saves(stages: int, stage: int, factor: float):
    config = replace(SHAPE, pp=stages)
    ranks = tuple(range(stage * 8, stage * 8 + 8))
    more: list[Fault] = [SlowCompute(rank=r, phase=p, factor=factor) for r in ranks for p in ("forward", "backward")]  # type: ignore[arg-type]
    even = 1 + (factor - 1) / stages
    spread = replace(config, forward_ns=round(config.forward_ns * even), backward_ns=round(config.backward_ns * even))
    gain = int(true_cost(config, more, 3).step_ns.sum() - true_cost(spread, [], 3).step_ns.sum())
    found = findings(config, more)
    assert not ACCUSING & found.keys()
    assert found["imbalance"].ranks == ranks
    assert found["imbalance"].cost_ns == pytest.approx(gain, rel=0.1)
    assert f"stage {stage}" in found["imbalance"].sentence


@pytest.mark.parametrize("seed", range(4))
def test_even_stages_and_a_slow_rank_are_no_imbalance(seed: int):
    lost: list[Fault] = [LostEvents(0.01)] if seed % 2 else []
    slow: list[Fault] = [SlowCompute(rank=3, phase="forward", steps=(2, 6), extra_ns=8_000_000)] if seed >= 2 else []
    assert "imbalance" not in findings(SHAPE, [*lost, *slow], seed)


def test_without_a_pipeline_there_is_none():
    assert "imbalance" not in findings(replace(SHAPE, pp=1, dp=8), [SlowCompute(rank=1, phase="forward", factor=1.5)])
