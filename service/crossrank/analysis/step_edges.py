"""The dependencies of one step as a list of edges: what slack and the next limit are computed on.

A step is a small part of a job, so a question about one step must not cost a pass over all stamps. The replay graph is cut at the
step's start and end; what is left is a directed graph without cycles whose longest way from the source to the sink is the step:

    source   everything before the step; its edges carry the time at which they arrive
    stamps   those of the replay graph in [start, end]
    gates    one node each, between the starts that open it and the ends that wait at it: k + k edges instead of k * k
    sink     the end of the step; an edge from the last stamp of every rank

Edges are sorted so that all edges into a node come before all edges out of it. Times are those of the graph (relative to its origin).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.analysis.lane_work import NO_OWNER, NO_STAMP
from crossrank.analysis.replay import ReplayGraph
from crossrank.analysis.steps import StepTable
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.gates import NO_GATE

SOURCE = -1


@dataclass(frozen=True, slots=True)
class StepEdges:
    """m stamps, g gates and the sink are nodes 0..m+g; e edges in topological order of what they lead to."""

    stamps: Int64Array  # [m] stamp of each of the first nodes
    node_ns: Int64Array  # [m + g + 1] when each node happened
    src: Int64Array  # [e] node or SOURCE
    dst: Int64Array  # [e] node
    weight_ns: Int64Array  # [e] the destination is no earlier than the source and this (from the source node: no earlier than this)
    owner: Int64Array  # [e] span that takes this time, NO_OWNER
    at: Int64Array  # [e] stamp the edge leads to (of a gate: one that opens it), for the rank and the lane
    after_gate: BoolArray  # [e] the time after a gate: a transfer

    @property
    def sink(self) -> int:
        """The last node."""
        return len(self.node_ns) - 1


@dataclass(frozen=True, slots=True)
class _Part:
    """Edges of one sort, before they are put in order."""

    src: Int64Array
    dst: Int64Array
    weight_ns: Int64Array
    owner: Int64Array
    at: Int64Array
    after_gate: bool = False


def step_edges(graph: ReplayGraph, steps: StepTable, row: int) -> StepEdges:
    """The edges of step number `row` of the table. O(k log k) in the k stamps of the step."""
    begin, end = int(steps.start_ns[row]) - graph.origin_ns, int(steps.end_ns[row]) - graph.origin_ns
    stamps = _between(graph, begin, end)
    m = len(stamps)
    place = _Places(stamps, len(graph.recorded_ns))
    gates, gate_ns, gate_rank, parts = _gates(graph, stamps)
    sink = m + len(gates)
    parts += [_lanes(graph, stamps, place), _launches(graph, stamps, place), _stated(graph, stamps, place)]
    parts.append(_ends(graph, steps, row, place, sink))
    rank_of = np.concatenate((2 * np.arange(m), gate_rank, [2 * m + 1]))
    dst = np.concatenate([p.dst for p in parts])
    order = np.argsort(rank_of[dst], kind="stable")
    return StepEdges(
        stamps=stamps,
        node_ns=np.concatenate((graph.recorded_ns[stamps], gate_ns, [end])),
        src=np.concatenate([p.src for p in parts])[order],
        dst=dst[order],
        weight_ns=np.concatenate([p.weight_ns for p in parts])[order],
        owner=np.concatenate([p.owner for p in parts])[order],
        at=np.concatenate([p.at for p in parts])[order],
        after_gate=np.concatenate([np.full(len(p.dst), p.after_gate) for p in parts])[order],
    )


def _between(graph: ReplayGraph, begin: int, end: int) -> Int64Array:
    """Stamps in [begin, end] in the order of the graph, which is one of time."""

    def time_at(i: int) -> int:
        return int(graph.recorded_ns[graph.order[i]])

    places = range(len(graph.order))
    return graph.order[bisect_left(places, begin, key=time_at) : bisect_right(places, end, key=time_at)]


class _Places:
    """Finds the node of a stamp in constant time.

    A sparse set (Briggs & Torczon 1993): the table has room for all stamps of the job but only those of the step are written;
    what stands elsewhere is whatever was there, so an entry counts only if the stamp it points to points back.
    """

    def __init__(self, stamps: Int64Array, all_stamps: int) -> None:
        self._stamps = stamps
        self._node = np.empty(all_stamps, dtype=np.int32)
        self._node[stamps] = np.arange(len(stamps), dtype=np.int32)

    def of(self, stamps: Int64Array) -> Int64Array:
        """Node of each stamp; SOURCE for one outside the step."""
        return _nodes(stamps, self._stamps, self._node)


@njit(cache=True, nogil=True)
def _nodes(wanted: Int64Array, stamps: Int64Array, node: Int32Array) -> Int64Array:
    found = np.full(len(wanted), SOURCE, dtype=np.int64)
    for i in range(len(wanted)):
        if wanted[i] >= 0:
            at = node[wanted[i]]
            if 0 <= at < len(stamps) and stamps[at] == wanted[i]:
                found[i] = at
    return found


def _from(graph: ReplayGraph, place: _Places, cause: Int64Array, weight: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(node, weight) of edges from stamps; from outside the step the weight is the time of arrival."""
    src = place.of(cause)
    before = np.where(cause != NO_STAMP, graph.recorded_ns[np.maximum(cause, 0)], 0)
    return src, np.where(src == SOURCE, before + weight, weight)


def _lanes(graph: ReplayGraph, stamps: Int64Array, place: _Places) -> _Part:
    src, weight = _from(graph, place, graph.pred[stamps], graph.weight_ns[stamps])
    is_receipt = (graph.gate[stamps] != NO_GATE) & (graph.weight_ns[stamps] > 0)  # of a message that lay ready: the receiver's time
    return _Part(src, np.arange(len(stamps)), weight, np.where(is_receipt, stamps // 2, graph.owner[stamps]), stamps)


def _launches(graph: ReplayGraph, stamps: Int64Array, place: _Places) -> _Part:
    node = np.flatnonzero(graph.launch[stamps] != NO_STAMP)
    at = stamps[node]
    src, weight = _from(graph, place, graph.launch[at], graph.launch_weight_ns[at])
    during = graph.launch_during[at]
    owner = np.where(during != NO_STAMP, graph.owner[np.maximum(during, 0)], NO_OWNER)
    return _Part(src, node, weight, owner, at)


def _stated(graph: ReplayGraph, stamps: Int64Array, place: _Places) -> _Part:
    explicit = graph.explicit
    node = np.flatnonzero(stamps % 2 == 0) if len(explicit) else np.empty(0, dtype=np.int64)
    span = stamps[node] // 2
    first, count = explicit.ptr[span], explicit.ptr[span + 1] - explicit.ptr[span]
    each = np.repeat(np.arange(len(node)), count)
    link = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(each))
    src, weight = _from(graph, place, explicit.cause[link], explicit.delay_ns[span[each]])
    return _Part(src, node[each], weight, np.full(len(each), NO_OWNER, dtype=np.int64), stamps[node[each]])


def _gates(graph: ReplayGraph, stamps: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, list[_Part]]:
    """(gates waited at, when each opened, place in the order, edges into and out of them).

    A gate that nothing in the step opens was open before it: it hangs on the source. The starts before the step of a gate that
    something in the step opens are left out: they can limit nothing that the step itself does not limit first.
    """
    m = len(stamps)
    waiter = np.flatnonzero(graph.gate[stamps] != NO_GATE)
    gates, gate_of = np.unique(graph.gate[stamps[waiter]].astype(np.int64), return_inverse=True)
    gate_of = gate_of.reshape(-1)
    opener = np.flatnonzero(np.isin(graph.opens[stamps], gates))
    opened = np.searchsorted(gates, graph.opens[stamps[opener]])
    latest = np.full(len(gates), SOURCE, dtype=np.int64)
    np.maximum.at(latest, opened, opener)
    at_waiter = np.full(len(gates), np.iinfo(np.int64).max)
    transfer = graph.transfer_ns[stamps[waiter]]
    np.minimum.at(at_waiter, gate_of, graph.recorded_ns[stamps[waiter]] - transfer)
    inside = latest != SOURCE
    gate_ns = np.where(inside, graph.recorded_ns[stamps[np.maximum(latest, 0)]] if m else 0, at_waiter)
    any_waiter = np.zeros(len(gates), dtype=np.int64)
    any_waiter[gate_of] = stamps[waiter]
    outside = np.flatnonzero(~inside)

    def nobody(count: int) -> Int64Array:
        return np.full(count, NO_OWNER, dtype=np.int64)

    opening = _Part(opener, m + opened, np.zeros(len(opener), dtype=np.int64), nobody(len(opener)), stamps[opener])
    opening_before = _Part(
        np.full(len(outside), SOURCE, dtype=np.int64), m + outside, gate_ns[outside], nobody(len(outside)), any_waiter[outside]
    )
    waiting = _Part(m + gate_of, waiter, transfer, stamps[waiter] // 2, stamps[waiter], after_gate=True)
    return gates, gate_ns, 2 * latest + 1, [opening, opening_before, waiting]


def _ends(graph: ReplayGraph, steps: StepTable, row: int, place: _Places, sink: int) -> _Part:
    """From the last stamp of every rank to the end of the step."""
    rows = slice(int(steps.ptr[row]), int(steps.ptr[row + 1]))
    last, end = steps.last_span[rows], steps.rank_end_ns[rows] - graph.origin_ns
    stamp = 2 * last + ~graph.timeline.trace.is_open[last]
    src, weight = _from(graph, place, stamp, end - graph.recorded_ns[stamp])
    return _Part(src, np.full(len(last), sink, dtype=np.int64), weight, np.full(len(last), NO_OWNER, dtype=np.int64), stamp)
