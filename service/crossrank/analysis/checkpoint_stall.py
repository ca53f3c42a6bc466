"""Pattern: the job stands still while checkpoints are written.

Conditions  spans of kind `checkpoint` whose ranks do nothing else meanwhile, in the steps asked about, that cost more than
            LEAST_SHARE of the time.
Cost        one replay in which the own work of all checkpoint spans takes no time. A checkpoint written beside the computation, on a
            lane of its own that nobody waits for, costs nothing and is no finding; nor is what only moves the wait elsewhere.
Evidence    the steps that hold a checkpoint, the rank whose checkpoints took longest, and how long one of the usual ones takes.
Doubt       the cost is exact as far as the replay is; how much faster a checkpoint could be is not known, so it is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.lane_work import NO_OWNER
from crossrank.analysis.replay import ReplayGraph, end_of_steps_ns, replay_ns
from crossrank.model.kinds import KIND_CODE
from crossrank.model.timeline import NO_STEP

LEAST_SHARE: Final = 0.02
_CHECKPOINT: Final = KIND_CODE["checkpoint"]


@dataclass(frozen=True, slots=True)
class CheckpointStall:
    """Cost of all checkpoints over the steps asked about. usual_ns: the median own work of a rank for one; slowest: most in all."""

    cost_ns: int
    steps: tuple[int, ...]
    usual_ns: int
    slowest: int


def checkpoint_stall(graph: ReplayGraph, first: int | None, last: int | None, span_ns: int) -> CheckpointStall | None:
    """The stall in the steps from `first` to `last` (inclusive; None: no limit); None below the least share of `span_ns`."""
    trace, step_of = graph.timeline.trace, graph.timeline.step_of
    chosen = (trace.kind == _CHECKPOINT) & ~trace.is_open & (step_of != NO_STEP)
    chosen &= (step_of >= (first if first is not None else 0)) & (step_of <= (last if last is not None else np.iinfo(np.int64).max))
    spans = np.flatnonzero(chosen & (graph.own_ns > 0))
    if len(spans) == 0 or span_ns <= 0:
        return None
    owned = graph.owner != NO_OWNER
    owned[owned] = chosen[graph.owner[owned]]
    without = replay_ns(graph, np.where(owned, graph.weight_ns, 0))
    cost = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, without, last)
    if cost < LEAST_SHARE * span_ns:
        return None
    by_rank = np.bincount(trace.rank[spans], weights=graph.own_ns[spans])
    usual = int(np.median(graph.own_ns[spans]))
    return CheckpointStall(cost, tuple(np.unique(step_of[spans]).tolist()), usual, int(by_rank.argmax()))
