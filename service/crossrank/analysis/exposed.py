"""What the job would be shorter by if communication took no time: the exposed part of it.

Communication that runs beside computation costs nothing. Exposed is what the job's end would move by if every transfer (the time
after the last arrival) were zero: one replay. Waiting for a late rank is not communication and stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.replay import ReplayGraph, end_of_steps_ns, replay_ns
from crossrank.model.gates import NO_GATE
from crossrank.model.timeline import NO_STEP


@dataclass(frozen=True, slots=True)
class Exposed:
    """Cost of all communication over the steps asked about."""

    cost_ns: int
    steps: tuple[int, ...]


def exposed_communication(graph: ReplayGraph, steps: np.ndarray, first: int | None, last: int | None) -> Exposed:
    """Cost of the transfers in the steps from `first` to `last` (inclusive; None: no limit)."""
    step = np.repeat(graph.timeline.step_of, 2)
    inside = (graph.gate != NO_GATE) & (step != NO_STEP)
    chosen = np.ones(len(steps), dtype=np.bool_)
    if first is not None:
        inside &= step >= first
        chosen &= steps >= first
    if last is not None:
        inside &= step <= last
        chosen &= steps <= last
    transfer = np.where(inside, np.minimum(graph.transfer_ns, 0), graph.transfer_ns)
    saved = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, replay_ns(graph, None, transfer), last)
    return Exposed(saved, tuple(steps[chosen].tolist()))
