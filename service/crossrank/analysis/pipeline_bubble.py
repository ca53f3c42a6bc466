"""Pattern: the stages of a pipeline wait for each other because of its schedule.

With p stages and m microbatches a step, the last stage waits for the first to have begun and the first for the last: of the time of
its pipeline every rank stands still

    (p - 1) / (m + p - 1)        with GPipe and 1F1B (Narayanan et al. 2021), even stages and no slow link

Conditions  at least two stages that exchange messages, and a share of waiting for messages above LEAST_SHARE.
Cost        the mean over the ranks of the time they stand still at receives whose send had not begun: by so much the steps would be
            shorter if the same work were spread without the bubble. It is no rank's fault; what a late rank adds is in its own finding too.
Evidence    the share that was measured beside that of the schedule, the stages, the microbatches.
Doubt       a stage that is done early waits out its part of the bubble in the collective that ends the step; that is not counted. Receives that are waited for by somebody else (a `sync` after an asynchronous one) are not seen as standing still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.replay import ReplayGraph
from crossrank.analysis.waits import message_times
from crossrank.model.timeline import NO_STEP
from crossrank.model.topology import Topology

LEAST_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class PipelineBubble:
    """wait_ns: mean over the ranks, over the steps asked about. schedule_share: (p - 1)/(m + p - 1)."""

    wait_ns: int
    steps: tuple[int, ...]
    stages: int
    microbatches: int
    schedule_share: float


def pipeline_bubble(
    graph: ReplayGraph, topology: Topology, first: int | None, last: int | None, span_ns: int
) -> PipelineBubble | None:
    """The bubble in the steps from `first` to `last` (inclusive; None: no limit); None below the least share of `span_ns`."""
    timeline = graph.timeline
    trace, messages = timeline.trace, timeline.matches.messages
    stages = len(set(topology.stage))
    step = timeline.step_of[messages.recv]
    asked = (step != NO_STEP) & (step >= (first if first is not None else 0))
    asked &= step <= (last if last is not None else np.iinfo(np.int64).max)
    if stages < 2 or not asked.any() or span_ns <= 0:
        return None
    recv, step = messages.recv[asked], step[asked]
    stood = graph.is_blocking[recv]
    wait = int(message_times(timeline).wait_ns[asked][stood].sum()) // len(topology.seen)
    if wait < LEAST_SHARE * span_ns:
        return None
    _, received = np.unique(np.stack((trace.rank[recv].astype(np.int64), trace.peer[recv], step)), axis=1, return_counts=True)
    microbatches = int(np.median(received))
    least = (stages - 1) / (microbatches + stages - 1)
    return PipelineBubble(wait, tuple(np.unique(step).tolist()), stages, microbatches, least)
