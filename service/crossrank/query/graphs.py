"""The replay graph of the timeline that was asked about last: questions about one job come in rows, and building it costs the most.

One graph is kept, whatever is asked; a graph of a large job takes as much memory as its timeline.
"""

from __future__ import annotations

from crossrank.analysis.replay import ReplayGraph, build_replay
from crossrank.model.timeline import Timeline

_last: list[tuple[Timeline, ReplayGraph]] = []


def graph_of(timeline: Timeline) -> ReplayGraph:
    """The graph of a timeline, built unless the last question was about it too."""
    held = _last[0] if _last else None
    if held is not None and held[0] is timeline:
        return held[1]
    graph = build_replay(timeline)
    _last[:] = [(timeline, graph)]
    return graph
