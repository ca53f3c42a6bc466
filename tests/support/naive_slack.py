"""Slack and replacement chains as their definitions say them: change one duration or leave one edge out, and go through everything."""

from __future__ import annotations

from crossrank.analysis.replay import ReplayGraph
from crossrank.analysis.step_edges import StepEdges
from crossrank.analysis.steps import StepTable
from crossrank.model.arrays import Int64Array


def step_end_ns(graph: ReplayGraph, steps: StepTable, row: int, time_ns: Int64Array) -> int:
    """When a step ends if its stamps happen at `time_ns` (relative to the origin)."""
    rows = range(int(steps.ptr[row]), int(steps.ptr[row + 1]))
    last = [2 * int(steps.last_span[r]) + (not graph.timeline.trace.is_open[steps.last_span[r]]) for r in rows]
    return max(int(time_ns[s]) for s in last)


def longest_ns(edges: StepEdges, without: int | None = None) -> int | None:
    """Length of the longest way to the end of the step, one edge left out; None when no way is left."""
    at: dict[int, int] = {}
    for e, (s, d, w) in enumerate(zip(edges.src.tolist(), edges.dst.tolist(), edges.weight_ns.tolist(), strict=True)):
        if e == without or (s >= 0 and s not in at):
            continue
        at[d] = max(at.get(d, -(2**62)), (at[s] if s >= 0 else 0) + w)
    return at.get(edges.sink)
