"""The happened-before relation as a plain graph: slow, obvious, the judge of `reconstruct.order` and `reconstruct.causality`."""

from __future__ import annotations

import itertools

import networkx as nx

from crossrank.model.matches import Matches
from crossrank.model.trace import JobTrace


def happened_before(trace: JobTrace, matches: Matches, broken: tuple[tuple[str, int], ...] = ()) -> nx.DiGraph:
    """One node per stamp, an edge for every direct "before"; the constraints named in `broken` are left out."""
    graph: nx.DiGraph = nx.DiGraph()
    stamps, ptr = trace.lane_stamps.tolist(), trace.lane_stamp_ptr.tolist()
    graph.add_nodes_from(stamps)
    for a, b in itertools.pairwise(ptr):
        graph.add_edges_from(itertools.pairwise(stamps[a:b]))
    c = matches.collectives
    for k in range(len(c)):
        members = c.member[c.ptr[k] : c.ptr[k + 1]].tolist()
        if ("collective", k) in broken:
            continue
        root = int(c.root[k])
        for before in members:
            for after in members:
                sends = root == before and after != root
                collects = root == after
                if c.synchronising[k] or (root >= 0 and (sends if c.root_sends[k] else collects)):
                    _add(graph, trace, before, after)
    for i in range(len(matches.messages)):
        if ("message", i) not in broken:
            _add(graph, trace, int(matches.messages.send[i]), int(matches.messages.recv[i]))
    return graph


def _add(graph: nx.DiGraph, trace: JobTrace, before: int, after: int) -> None:
    if not trace.is_open[after]:
        graph.add_edge(2 * before, 2 * after + 1)


def lamport_depths(graph: nx.DiGraph) -> dict[int, int]:
    """Length of the longest chain that ends at each stamp. Needs an acyclic graph."""
    depth: dict[int, int] = {}
    for stamp in nx.topological_sort(graph):
        depth[stamp] = 1 + max((depth[p] for p in graph.predecessors(stamp)), default=0)
    return depth
