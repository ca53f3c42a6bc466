"""Blame against the simulator's truth: who, where, when, and the cost to within ten percent."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.findings import Finding, Straggler
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import Fault, GcPause, LostEvents, SlowCompute, SlowLink, SlowLoader
from crossrank.simulate.job import simulate
from crossrank.simulate.truth import true_cost
from tests.support.pipeline import timeline_of, topology_of

SHAPES = (
    JobConfig(steps=16),
    JobConfig(dp=8, tp=8, pp=1, steps=16),
    JobConfig(dp=16, tp=2, pp=2, steps=16),
    JobConfig(dp=64, tp=1, pp=1, steps=16),
    JobConfig(dp=8, tp=2, pp=4, steps=16),
)
ACCUSING = {"straggler", "data_stall", "jitter", "slow_link", "hang", "mismatch", "missing_rank"}


def analysed(config: JobConfig, faults: list[Fault], seed: int) -> tuple[tuple[Straggler, ...], tuple[Finding, ...]]:
    timeline = timeline_of(simulate(config, faults, seed=seed).events)
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    stragglers = find_stragglers(timeline, topology, steps)
    return stragglers, find_bottlenecks(timeline, topology, steps, stragglers)


def injected(seed: int) -> tuple[JobConfig, Fault, str]:
    rng = np.random.default_rng(seed)
    rank, first = int(rng.integers(64)), int(rng.integers(9))
    extra = int(rng.choice([4_000_000, 8_000_000, 20_000_000]))
    steps = (first, first + 5)
    kinds: tuple[tuple[Fault, str], ...] = (
        (SlowCompute(rank=rank, phase="forward", steps=steps, extra_ns=extra), "forward"),
        (SlowCompute(rank=rank, phase="backward", steps=steps, extra_ns=extra), "backward"),
        (SlowLoader(rank=rank, steps=steps, extra_ns=40_000_000), "dataloader"),
    )
    fault, name = kinds[seed % 3]
    return SHAPES[seed % len(SHAPES)], fault, name


@pytest.mark.parametrize("seed", range(20))
def test_the_injected_rank_and_phase_are_first_and_the_cost_is_true(seed: int):
    config, fault, name = injected(seed)
    (true_ns,) = true_cost(config, [fault], seed).fault_ns
    stragglers, _ = analysed(config, [fault], seed)
    if true_ns < 0.002 * 6 * config.nominal_ns / config.steps:  # slack hides all of it: nobody delayed anything
        assert stragglers == ()
        return
    first = stragglers[0]
    assert (first.rank, first.cause.name) == (fault.rank, name)
    assert first.steps == tuple(range(fault.steps[0], fault.steps[1] + 1))
    assert first.cost_ns == pytest.approx(true_ns, rel=0.1)
    assert len(stragglers) == 1


@pytest.mark.parametrize("seed", range(100, 110))
def test_healthy_jobs_accuse_nobody(seed: int):
    lost: list[Fault] = [LostEvents(fraction=0.01)] if seed % 2 else []
    stragglers, findings = analysed(SHAPES[seed % len(SHAPES)], lost, seed)
    assert stragglers == ()
    assert [f.sentence for f in findings if f.class_ in ACCUSING] == []


@pytest.mark.parametrize("seed", range(3))
def test_two_faults_at_once_are_both_named_with_their_own_cost(seed: int):
    config = SHAPES[seed]
    faults: list[Fault] = [
        SlowCompute(rank=5, phase="forward", steps=(2, 8), extra_ns=8_000_000),
        SlowLoader(rank=34, steps=(7, 12), extra_ns=40_000_000),
    ]
    forward_ns, loader_ns = true_cost(config, faults, seed).fault_ns
    found = {(s.rank, s.cause.name): s.cost_ns for s in analysed(config, faults, seed)[0]}
    assert found == {
        (5, "forward"): pytest.approx(forward_ns, rel=0.1),
        (34, "dataloader"): pytest.approx(loader_ns, rel=0.1),
    }


def test_a_slow_stage_is_not_a_straggler():
    # All ranks of stage 1 compute half again as long: uneven stages are a matter of layout.
    config = SHAPES[2]
    slow: list[Fault] = [SlowCompute(rank=r, phase="forward", factor=1.5) for r in range(32, 64)]
    assert analysed(config, slow, 7)[0] == ()


def test_two_percent_of_a_step_is_seen():
    config = JobConfig(dp=64, tp=1, pp=1, steps=16)
    fault = SlowCompute(rank=17, phase="backward", steps=(4, 11), extra_ns=900_000)
    (true_ns,) = true_cost(config, [fault], 3).fault_ns
    stragglers, _ = analysed(config, [fault], 3)
    assert [(s.rank, s.cause.name) for s in stragglers] == [(17, "backward")]
    assert stragglers[0].cost_ns == pytest.approx(true_ns, rel=0.1)


@pytest.mark.parametrize(
    ("fault", "ranks", "group"),
    [
        (SlowLink(src=13, dst=29, steps=(5, 9), extra_ns=5_000_000), (13, 29), None),
        (SlowLink(group="dp0", steps=(5, 12), factor=2.0), (0, 4, 8, 12), "dp0"),
    ],
)
def test_slow_links_and_groups(fault: SlowLink, ranks: tuple[int, ...], group: str | None):
    config = JobConfig(steps=16)
    (true_ns,) = true_cost(config, [fault], 3).fault_ns
    stragglers, findings = analysed(config, [fault], 3)
    assert stragglers == ()
    first = findings[0]
    assert (first.class_, first.ranks, first.group) == ("slow_link", ranks, group)
    assert first.steps == tuple(range(fault.steps[0], fault.steps[1] + 1))
    assert first.cost_ns == pytest.approx(true_ns, rel=0.1)


def test_pauses_are_jitter():
    config = JobConfig(dp=16, tp=2, pp=2, steps=20)
    findings = analysed(config, [GcPause(rank=7, probability=0.5)], 3)[1]
    assert {(f.class_, f.ranks) for f in findings if f.class_ in ACCUSING} == {("jitter", (7,))}


def test_a_range_of_steps_tells_only_of_these():
    config = JobConfig(dp=64, tp=1, pp=1, steps=16)
    timeline = timeline_of(simulate(config, [SlowLoader(rank=9, steps=(3, 10))], seed=1).events)
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    (whole,) = find_stragglers(timeline, topology, steps)
    (part,) = find_stragglers(timeline, topology, steps, first=5, last=7)
    assert part.steps == (5, 6, 7)
    assert part.cost_ns == pytest.approx(whole.cost_ns * 3 / 8, rel=0.05)
    assert find_stragglers(timeline, topology, steps, first=12) == ()


@pytest.mark.parametrize("seed", range(5))
def test_lost_events_do_not_change_what_a_fault_cost(seed: int):
    config = SHAPES[seed]
    fault = SlowLoader(rank=34, steps=(7, 12), extra_ns=40_000_000)
    (true_ns,) = true_cost(config, [fault], seed).fault_ns
    stragglers, _ = analysed(config, [fault, LostEvents(fraction=0.01)], seed)
    assert [(s.rank, s.cause.name) for s in stragglers] == [(34, "dataloader")]
    # An event of the late phase itself may be among those lost: one step of six then costs nothing that can be shown.
    assert stragglers[0].cost_ns == pytest.approx(true_ns, rel=0.2)


def test_metrics_of_other_threads_do_not_hide_what_a_fault_costs():
    config, fault, _ = injected(0)
    events = simulate(config, [fault], seed=0).events
    first_ns, last_ns = pc.min(events["start_ns"]).as_py(), pc.max(events["end_ns"]).as_py()
    template = events.slice(0, 1).to_pylist()[0]
    metrics = [
        {**template, "rank": rank, "lane": "agent", "name": "cpu.busy", "kind": "metric", "value": 0.5, "span_id": (k * 997 + rank + 1).to_bytes(8),
         "start_ns": at, "end_ns": at, "step": step, "parent_span_id": None, "group": None, "seq": None, "op": None, "group_ranks": None}
        for k, (at, step) in enumerate(zip(np.linspace(first_ns, last_ns, 40, dtype=np.int64).tolist(), np.linspace(0, 15, 40, dtype=int).tolist(), strict=True))
        for rank in range(8)
    ]  # fmt: skip
    with_metrics = pa.concat_tables([events, pa.Table.from_pylist(metrics, schema=events.schema)], promote_options="default")
    found = []
    for table in (events, with_metrics.unify_dictionaries()):
        timeline = timeline_of(table)
        topology = topology_of(timeline)
        found.append(
            [(s.rank, s.cause, s.steps, s.cost_ns) for s in find_stragglers(timeline, topology, find_steps(timeline, topology))]
        )
    assert found[0]
    assert found[0] == found[1]
