"""Pattern: the stages of a pipeline have unequal work, so all wait for the one that has most.

Conditions  at least two stages; the busiest has more than LEAST_EXCESS above the mean in own work of its ranks (waits and
            communication are not work), and evening it out would save more than LEAST_SHARE of the time.
Cost        one replay in which the own work of every stage is scaled to the mean of all stages: the same work, spread evenly. What a
            layout can really reach is coarser (whole layers), so this is an upper bound.
Evidence    the stage, its ranks, how much more than the mean it has.
Doubt       stages differ from step to step by chance; the work of all steps asked about is taken together. Work that differs between
            the ranks of one stage is no imbalance of the layout: a rank that is slow is a straggler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.lane_work import NO_OWNER
from crossrank.analysis.replay import ReplayGraph, end_of_steps_ns, replay_ns
from crossrank.model.kinds import KIND_CODE
from crossrank.model.timeline import NO_STEP
from crossrank.model.topology import Topology

LEAST_EXCESS: Final = 0.05
LEAST_SHARE: Final = 0.02
_COMPUTE: Final = KIND_CODE["compute"]


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The busiest stage: its ranks and how much more own work than the mean it has, relative."""

    stage: int
    ranks: tuple[int, ...]
    excess: float
    cost_ns: int
    steps: tuple[int, ...]


def imbalance(graph: ReplayGraph, topology: Topology, first: int | None, last: int | None, span_ns: int) -> Imbalance | None:
    """Uneven stages in the steps from `first` to `last` (inclusive; None: no limit); None where they are even enough."""
    trace, step_of = graph.timeline.trace, graph.timeline.step_of
    stages = max(topology.stage, default=0) + 1
    if stages < 2 or span_ns <= 0:
        return None
    asked = (trace.kind == _COMPUTE) & ~trace.is_open & (step_of != NO_STEP)
    asked &= (step_of >= (first if first is not None else 0)) & (step_of <= (last if last is not None else np.iinfo(np.int64).max))
    spans = np.flatnonzero(asked)
    if len(spans) == 0:
        return None
    stage = topology.stage_of(trace.rank[spans])
    usual = _usual_work(graph, spans, stage, stages)
    if (usual <= 0).any():
        return None
    mean = float(usual.mean())
    busiest = int(usual.argmax())
    excess = float(usual[busiest]) / mean - 1
    if excess < LEAST_EXCESS:
        return None
    less = np.zeros(len(trace))
    less[spans] = 1 - mean / usual[stage]
    owned = np.flatnonzero(graph.owner != NO_OWNER)
    removed = np.zeros_like(graph.weight_ns)
    removed[owned] = np.rint(graph.weight_ns[owned] * less[graph.owner[owned]]).astype(np.int64)
    cost = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, replay_ns(graph, removed), last)
    if cost < LEAST_SHARE * span_ns:
        return None
    ranks = tuple(r for r, s in zip(topology.seen, topology.stage, strict=True) if s == busiest)
    return Imbalance(busiest, ranks, excess, cost, tuple(np.unique(step_of[spans]).tolist()))


def _usual_work(graph: ReplayGraph, spans: np.ndarray, stage: np.ndarray, stages: int) -> np.ndarray:
    """[stages] median over the ranks of a stage of their own work: one slow rank makes no uneven layout."""
    rank = graph.timeline.trace.rank[spans]
    work = np.bincount(rank, weights=graph.own_ns[spans])
    of_rank = np.full(len(work), -1, dtype=np.int64)
    of_rank[rank] = stage
    return np.array([np.median(work[of_rank == s]) if (of_rank == s).any() else 0.0 for s in range(stages)])
