"""Random jobs with known faults, and how blame answers: the rows from which recall, precision, costs and calibration follow.

Every family of jobs has its own seeds, and seeds below 1,000,000 are for judging only: constants of the analyses were chosen on
seeds above (`TUNING`). All jobs have 16 steps, 8 to 1,024 ranks (any power of two as often as any other, so log-uniform), clocks
wrong by up to 50 ms and 40 ppm, clock steps in three of ten jobs and one event in a hundred lost in a third of them.

    one        one fault that truly costs 1 to 15 % of the steps it is in
    several    two or three faults of different kinds on different ranks, each of which truly costs 2 % and more
    healthy    no fault; the noise is resampled from the healthy recordings (recorded_noise)
    weak       in every other job one fault that adds 0.1 to 1 % of a step, whatever it costs; up to 128 ranks. Half of the jobs
               have recorded noise and faults of 0.5 to 10 %. Blame is at its limit here and sometimes wrong, which is where
               stated confidence can be judged

A fault has 4 to 12 of the steps: three are too few to tell from chance in a job of eight ranks. A drawn fault whose true cost is
out of range (slack hides much of a late loader) is drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from crossrank.analysis.bottlenecks import straggler_finding
from crossrank.analysis.links import find_slow_links
from crossrank.analysis.replay import ReplayGraph, build_replay
from crossrank.analysis.steps import StepTable, find_steps
from crossrank.analysis.straggler_host import explained, find_straggler_hosts
from crossrank.analysis.stragglers import find_stragglers
from crossrank.analysis.whatif import Change, predict
from crossrank.model.topology import Topology
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.faults import Fault, LostEvents, SlowCompute, SlowLink, SlowLoader
from crossrank.simulate.job import simulate
from crossrank.simulate.noise import NoiseSource, StepNoise, step_noise
from crossrank.simulate.program import Program
from crossrank.simulate.truth import true_cost
from tests.support.pipeline import timeline_of, topology_of
from tests.support.recorded_noise import recorded_noise

Accused = Literal["work", "link", "group"]
Family = Literal["one", "several", "healthy", "weak"]
FAMILIES: tuple[Family, ...] = ("one", "several", "healthy", "weak")
TUNING = 1_000_000  # seeds from here on are for choosing constants, never for judging
_STEPS = 16
_KINDS = ("loader", "forward", "backward", "optimizer", "link", "group")
_DRAWS = 200  # until a fault's true cost is in range


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault: what names it, its first and last step, its true cost, also as a share of these steps."""

    kind: str
    ranks: tuple[int, ...]
    first: int
    last: int
    true_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Told:
    """An accusation. `of`: place of the fault that it names (rank, phase or link), None when it accuses somebody else."""

    of: int | None
    steps_right: bool  # first and last within one of the fault's
    cost_ns: int
    cost_error_ns: int
    confidence: float
    sentence: str
    accused: Accused = "work"


@dataclass(frozen=True, slots=True)
class Trial:
    """One job and what was said of it. fixed_off: error of the what-if that repairs the only fault, in steps per affected step."""

    family: str
    seed: int
    ranks: int
    lossy: bool
    recorded: bool
    faults: tuple[Injected, ...]
    told: tuple[Told, ...]
    fixed_off: float | None


@dataclass(frozen=True, slots=True)
class _Job:
    config: JobConfig
    noise: NoiseSource
    recorded: bool
    lossy: bool
    faults: tuple[Fault, ...]
    injected: tuple[Injected, ...]


def run_trial(family: Family, seed: int, recordings: Path, least_confidence: float = 0.9) -> Trial:
    """Simulates, derives and judges one job. `least_confidence`: below what nothing is told; 0.9 in the product."""
    job = _draw(family, seed, recordings)
    lost = [LostEvents(0.01)] if job.lossy else []
    events = simulate(job.config, [*job.faults, *lost], seed=seed, noise=job.noise).events
    timeline = timeline_of(events)
    topology = topology_of(timeline)
    steps, graph = find_steps(timeline, topology), build_replay(timeline)
    told = _told(job, graph, topology, steps, least_confidence)
    off = _fixed_off(job, graph, topology, seed) if family == "one" else None
    return Trial(family, seed, job.config.world_size, job.lossy, job.recorded, job.injected, told, off)


def drawn_ranks(family: Family, seed: int) -> int:
    """How many ranks the job of a seed has."""
    return _size(family, _generator(family, seed))


def _generator(family: Family, seed: int) -> np.random.Generator:
    return np.random.default_rng([20 + FAMILIES.index(family), seed])


def _size(family: Family, rng: np.random.Generator) -> int:
    return 2 ** int(rng.integers(3, 8 if family == "weak" else 11))


def _draw(family: Family, seed: int, recordings: Path) -> _Job:
    rng = _generator(family, seed)
    size = _size(family, rng)
    tp, pp = (int(v) for v in 2 ** rng.integers(0, 4, 2))
    while size // (tp * pp) < 4 and tp * pp > 1:  # four replicas and more: a rank needs peers of its role
        tp, pp = (tp // 2, pp) if tp > pp else (tp, pp // 2)
    clocks = ClockConfig(step_fraction=0.25 if rng.random() < 0.3 else 0.0)
    config = JobConfig(dp=size // (tp * pp), tp=tp, pp=pp, steps=_STEPS, clocks=clocks)
    lossy = bool(rng.random() < 1 / 3)
    recorded = family == "healthy" or (family == "weak" and bool(rng.random() < 0.5))
    noise = _remembered(recorded_noise(recordings) if recorded else step_noise)
    count = {"one": 1, "several": int(rng.integers(2, 4)), "healthy": 0, "weak": int(rng.random() < 0.5)}[family]
    low, high = {"one": (0.01, 0.15), "several": (0.02, 0.15), "healthy": (0.0, 0.0), "weak": (0.001, 0.01)}[family]
    low, high = (0.005, 0.1) if recorded and count else (low, high)
    faults: tuple[Fault, ...] = ()
    injected: tuple[Injected, ...] = ()
    for _ in range(_DRAWS if count else 0):
        faults = _faults(rng, config, count, low, high)
        injected = _costs(config, faults, seed, noise)
        if family == "weak" or all(low <= f.share < high for f in injected):
            break
    else:
        assert not count, f"no fault in range for {family} {seed}"
    return _Job(config, noise, recorded, lossy, faults, injected)


def _remembered(noise: NoiseSource) -> NoiseSource:
    """The same noise, drawn once a step: the job is run again without each of its faults, and with other faults until one fits."""
    drawn: dict[int, StepNoise] = {}

    def again(config: JobConfig, program: Program, seed: int, step: int) -> StepNoise:
        if step not in drawn:
            drawn[step] = noise(config, program, seed, step)
        return drawn[step]

    return again


def _faults(rng: np.random.Generator, config: JobConfig, count: int, low: float, high: float) -> tuple[Fault, ...]:
    """Faults of different kinds whose ranks differ."""
    step_ns = config.nominal_ns / config.steps
    kinds = [k for k in _KINDS if k != "link" or config.pp > 1]
    kinds = [k for k in kinds if k != "group" or config.tp * config.pp > 2]
    faults: list[Fault] = []
    for kind in rng.permutation(kinds)[:count].tolist():
        share = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        rank, first, length = int(rng.integers(config.world_size)), int(rng.integers(0, 9)), int(rng.integers(4, 13))
        steps, extra = (first, min(first + length - 1, config.steps - 1)), int(share * step_ns)
        match kind:
            case "loader":
                rank %= config.dp * config.tp  # of the first stage: a loader behind the pipeline's start delays nobody
                faults.append(SlowLoader(rank, steps, extra))
            case "link":
                source, stage = rank % (config.world_size - config.dp * config.tp), config.dp * config.tp
                faults.append(SlowLink(source, source + stage, None, steps, extra_ns=extra // config.microbatches))
            case "group":
                group = f"dp{int(rng.integers(config.tp * config.pp))}"
                faults.append(SlowLink(group=group, steps=steps, extra_ns=extra // config.buckets))
            case "optimizer":
                faults.append(SlowCompute(rank, "optimizer", steps, extra))
            case _:
                phase: Literal["forward", "backward"] = "forward" if kind == "forward" else "backward"
                faults.append(SlowCompute(rank, phase, steps, extra // config.microbatches))
    return tuple(faults)


def _costs(config: JobConfig, faults: tuple[Fault, ...], seed: int, noise: NoiseSource) -> tuple[Injected, ...]:
    if not faults:
        return ()
    cost = true_cost(config, faults, seed, noise)
    out: list[Injected] = []
    for fault, true_ns in zip(faults, cost.fault_ns, strict=True):
        assert true_ns is not None
        assert isinstance(fault, SlowCompute | SlowLoader | SlowLink)
        first, last = fault.steps or (0, config.steps - 1)
        share = true_ns / float(cost.healthy_step_ns[first : last + 1].sum())
        named: str
        ranks: tuple[int, ...]
        match fault:
            case SlowLink(group=str() as group):
                named, ranks = group, ()
            case SlowLink(src=int() as src, dst=int() as dst):
                named, ranks = "link", (src, dst)
            case SlowLoader():
                named, ranks = "dataloader", (fault.rank,)
            case SlowCompute():
                named, ranks = fault.phase, (fault.rank,)
            case _:
                raise AssertionError(fault)
        out.append(Injected(named, ranks, first, last, true_ns, share))
    return tuple(out)


def _told(job: _Job, graph: ReplayGraph, topology: Topology, steps: StepTable, least: float) -> tuple[Told, ...]:
    """All accusations of ranks, hosts, links and groups."""
    timeline = graph.timeline
    hosts = find_straggler_hosts(graph, topology, steps.step, None, None)
    out = [Told(None, False, h.cost_ns, h.cost_error_ns, h.confidence, f"host {h.host} in {h.steps}") for h in hosts]
    for s in find_stragglers(timeline, topology, steps, graph=graph, least_confidence=least):
        if explained(s, hosts):
            continue
        out.append(
            _judged(
                job, (s.cause.name, (s.rank,)), s.steps, s.cost_ns, s.cost_error_ns, s.confidence, straggler_finding(s).sentence
            )
        )
    for link in find_slow_links(graph, timeline, topology, steps.step, None, None, least_confidence=least):
        name = ("link", link.ranks) if link.group is None else (link.group, ())
        what = f"slow link {link.ranks} {link.group} in {link.steps}"
        told = _judged(job, name, link.steps, link.cost_ns, link.cost_error_ns, link.confidence, what)
        out.append(replace(told, accused="link" if link.group is None else "group"))
    return tuple(out)


def _judged(
    job: _Job, name: tuple[str, tuple[int, ...]], steps: Sequence[int], cost: int, error: int, confidence: float, what: str
) -> Told:
    places = [i for i, f in enumerate(job.injected) if (f.kind, f.ranks) == name]
    near = any(abs(job.injected[i].first - steps[0]) <= 1 and abs(job.injected[i].last - steps[-1]) <= 1 for i in places)
    return Told(places[0] if places else None, near, cost, error, confidence, what)


def _fixed_off(job: _Job, graph: ReplayGraph, topology: Topology, seed: int) -> float:
    """How far "repair the fault" is from the simulator without it, as a share of a step per affected step."""
    (fault,), (injected,) = job.faults, job.injected
    repaired = Change(first=injected.first, last=injected.last, becomes="median")
    match fault:
        case SlowLink(group=str() as group):
            change = replace(repaired, group=group)
        case SlowLink(dst=int() as rank):
            change = replace(repaired, rank=rank, kind="recv")
        case _:
            change = replace(repaired, rank=injected.ranks[0], name=injected.kind)
    saved = predict(graph, topology, [change]).saving_ns
    steps = injected.true_ns / injected.share  # without the fault, the affected ones together
    return abs(saved - injected.true_ns) / steps
