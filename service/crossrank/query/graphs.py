"""The replay graph of the timeline that was asked about last: questions about one job come in rows, and building it costs the most.

One graph is kept, whatever is asked; a graph of a large job takes as much memory as its timeline. A derivation leaves its own here,
unless it is a very large one, so that the first question about what has just been derived does not wait for it.
"""

from __future__ import annotations

from typing import Final

from crossrank.analysis.replay import ReplayGraph, build_replay
from crossrank.model.timeline import Timeline

_KEPT_SPANS: Final = 4_000_000  # of a derivation's graph, about 800 MB
_last: list[tuple[Timeline, ReplayGraph]] = []


def graph_of(timeline: Timeline) -> ReplayGraph:
    """The graph of a timeline, built unless the last question was about it too."""
    held = _last[0] if _last else None
    if held is not None and held[0] is timeline:
        return held[1]
    graph = build_replay(timeline)
    _last[:] = [(timeline, graph)]
    return graph


def keep(timeline: Timeline, graph: ReplayGraph) -> None:
    """Keeps a graph that has just been made, unless it is too large to be kept for a question that may never come."""
    if len(timeline.trace) <= _KEPT_SPANS:
        _last[:] = [(timeline, graph)]
