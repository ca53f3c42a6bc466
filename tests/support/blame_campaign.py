"""Random jobs with one fault or none, and how blame answers: the raw rows from which recall, precision and calibration follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.replay import build_replay
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.findings import Finding
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.faults import Fault, LostEvents, SlowCompute, SlowLink, SlowLoader
from crossrank.simulate.job import simulate
from crossrank.simulate.truth import true_cost
from tests.support.pipeline import timeline_of, topology_of

ACCUSING = frozenset({"straggler", "data_stall", "jitter", "slow_link"})
# dp, tp, pp, and how often each is drawn: large jobs take long to simulate
_SHAPES = ((8, 1, 1), (4, 2, 1), (4, 2, 2), (8, 2, 2), (4, 4, 4), (16, 2, 4), (32, 4, 2), (64, 8, 2))
_OFTEN = np.array((3, 3, 4, 4, 4, 1.5, 0.4, 0.1))


@dataclass(frozen=True, slots=True)
class Trial:
    """One job. share: true cost as a share of the affected steps; 0 for a healthy job."""

    seed: int
    ranks: int
    share: float
    true_ns: int
    hit: bool  # the injected cause was named in the right phase
    steps_right: bool  # and the steps within one at either end
    cost_ns: int
    cost_error_ns: int
    confidence: float
    wrong: tuple[float, ...]  # confidences of accusations of anybody else


def draw(seed: int) -> tuple[JobConfig, Fault | None, bool]:
    """A job, its fault, and whether events get lost. One in four is healthy."""
    rng = np.random.default_rng([20, seed])
    dp, tp, pp = _SHAPES[rng.choice(len(_SHAPES), p=_OFTEN / _OFTEN.sum())]
    clocks = ClockConfig(step_fraction=0.25 if rng.random() < 0.3 else 0.0)
    config = JobConfig(dp=dp, tp=tp, pp=pp, steps=16, clocks=clocks)
    lossy = bool(rng.random() < 1 / 3)
    if rng.random() < 0.25:
        return config, None, lossy
    step_ns = config.nominal_ns / config.steps
    share = float(np.exp(rng.uniform(np.log(0.01), np.log(0.15))))
    rank, first, length = int(rng.integers(config.world_size)), int(rng.integers(1, 8)), int(rng.integers(4, 8))
    steps = (first, first + length - 1)
    kind = rng.choice(4 if pp > 1 else 3)
    if kind == 0:
        return config, SlowLoader(rank, steps, int(share * step_ns) + (0 if rank < dp * tp else 20_000_000)), lossy
    if kind == 3:
        stage = dp * tp
        source = rank % (config.world_size - stage)
        return config, SlowLink(source, source + stage, None, steps, extra_ns=int(share * step_ns / config.microbatches)), lossy
    phase: Literal["forward", "backward"] = "forward" if kind == 1 else "backward"
    return config, SlowCompute(rank, phase, steps, int(share * step_ns / config.microbatches)), lossy


def run_trial(seed: int) -> Trial:
    """Simulates, derives and judges one job."""
    config, fault, lossy = draw(seed)
    faults = [] if fault is None else [fault]
    events = simulate(config, [*faults, *([LostEvents(0.01)] if lossy else [])], seed=seed).events
    timeline = timeline_of(events)
    topology = topology_of(timeline)
    steps, graph = find_steps(timeline, topology), build_replay(timeline)
    stragglers = find_stragglers(timeline, topology, steps, graph=graph)
    findings = [f for f in find_bottlenecks(timeline, topology, steps, stragglers, graph=graph) if f.class_ in ACCUSING]
    phases = {(s.rank, s.steps): s.cause.name for s in stragglers}
    if fault is None:
        return Trial(seed, config.world_size, 0.0, 0, False, False, 0, 0, 0.0, tuple(f.confidence for f in findings))
    (true_ns,) = true_cost(config, faults, seed).fault_ns
    assert true_ns is not None
    assert isinstance(fault, SlowCompute | SlowLoader | SlowLink)
    first, last = fault.steps or (0, config.steps - 1)
    share = true_ns / ((last - first + 1) * config.nominal_ns / config.steps)
    mine = [f for f in findings if _is_of(f, fault, phases)]
    wrong = tuple(f.confidence for f in findings if f not in mine)
    if not mine:
        return Trial(seed, config.world_size, share, true_ns, False, False, 0, 0, 0.0, wrong)
    f = mine[0]
    near = abs(f.steps[0] - first) <= 1 and abs(f.steps[-1] - last) <= 1
    return Trial(seed, config.world_size, share, true_ns, True, near, f.cost_ns, f.cost_error_ns, f.confidence, wrong)


def _is_of(f: Finding, fault: Fault, phases: dict[tuple[int, tuple[int, ...]], str]) -> bool:
    if isinstance(fault, SlowLink):
        return f.class_ == "slow_link" and f.ranks == (fault.src, fault.dst)
    name = phases.get((f.ranks[0], f.steps)) if f.ranks else None
    if isinstance(fault, SlowLoader):
        return f.ranks == (fault.rank,) and name == "dataloader"
    return isinstance(fault, SlowCompute) and f.ranks == (fault.rank,) and name == fault.phase
