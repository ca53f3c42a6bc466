"""How much an operation could grow before the step gets longer, and what limits the step once a cause on its path is gone.

Both are properties of the longest way through the step's dependencies (step_edges), with L(v) the latest time at which v may
happen without the step ending later:

    L(sink) = end of the step        L(u) = min over edges u -> v of L(v) - weight
    slack of an edge      = L(v) - weight - t(u)           0 on the critical path
    slack of an operation = the least of the edges that are its time

*Next limit.* Shrink a stretch of the path by x: the step ends x earlier until another chain, which avoids a part of the stretch,
has become as long. That x is `after_ns`; beyond it the gain is partial or none. The chain leaves the path before the part it avoids
and comes back after it, by an edge (u, v) whose slack is what it is shorter by. Let label(v) be the last node of the path on the
chain of tightest edges that leads to v. Then, as the graph has no cycles, the longest chain that avoids path edge i (from label i
to label i + 1) is the one over the edge of least slack with

    label(u) <= i < label(v)

and all path edges get theirs in one sweep over the edges by slack (Malik, Mittal, Gupta 1989, for shortest paths). The next limit
is named after the longest piece of the chain that is not on the path.

What holds is what a replay holds: durations change, the order and the matching do not. An operation of which a part happens before
it launches something on another lane counts as if all of it did, so its slack is never overstated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.analysis.critical_path import CriticalPath, Segment
from crossrank.analysis.lane_work import NO_OWNER
from crossrank.analysis.replay import ReplayGraph
from crossrank.analysis.step_edges import SOURCE, StepEdges, step_edges
from crossrank.analysis.steps import StepTable
from crossrank.errors import NotFound
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.kinds import KINDS

UNREACHED = np.iinfo(np.int64).max
NONE = -1


@dataclass(frozen=True, slots=True)
class NextLimit:
    """What keeps the step from getting shorter once a stretch of its path has shrunk by `after_ns`."""

    rank: int
    kind: str  # idle: nobody's recorded work
    name: str
    after_ns: int


@dataclass(frozen=True, slots=True)
class SegmentSlack:
    """Of one segment of the path.

    slack_ns: None where the replay does not know the stretch. next_limit: None where all of it could go before anything else limits.
    """

    slack_ns: int | None
    next_limit: NextLimit | None


@dataclass(frozen=True, slots=True)
class NearOperation:
    """An operation that is not on the path, and how much it could grow before it is."""

    rank: int
    lane: str
    kind: str
    name: str
    start_ns: int
    end_ns: int
    slack_ns: int


@dataclass(frozen=True, slots=True)
class StepSlack:
    """segments: as those of the path. near: off the path, least slack first, the longest operation of each (rank, slack)."""

    segments: tuple[SegmentSlack, ...]
    near: tuple[NearOperation, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Way:
    """The longest way through the edges, and what could replace each edge of it."""

    edges: StepEdges
    slack_ns: Int64Array  # [e] UNREACHED where the edge does not lead to the end of the step
    tight_in: Int64Array  # [nodes] edge that determines when a node happened
    tight_out: Int64Array  # [nodes] edge that determines how late it may happen
    on_path: BoolArray  # [nodes]
    path: Int64Array  # [k] edges of the path, in the order of time
    detour: Int64Array  # [k] edge of the longest chain that avoids this edge of the path, NONE


def step_slack(graph: ReplayGraph, steps: StepTable, path: CriticalPath, most: int = 20) -> StepSlack:
    """Slack along and near the critical path of a step. Raises NotFound for a step that is not in the table.

    graph: `build_replay` of the timeline that the path is about. most: operations listed in `near`. O(k log k) in the step's stamps.
    """
    row = steps.row_of(path.step)
    if row is None:
        raise NotFound(f"there is no step {path.step}", step=path.step)
    edges = step_edges(graph, steps, row)
    found = latest(edges)
    way = longest_way(edges, found)
    near, truncated = _near(graph, way, path, most)
    return StepSlack(_along(graph, way, path), near, truncated)


@dataclass(frozen=True, slots=True)
class Latest:
    """late_ns: [nodes] latest harmless time, UNREACHED where nothing follows. slack_ns: [e]. tight_out: [nodes] edge that binds."""

    late_ns: Int64Array
    slack_ns: Int64Array
    tight_out: Int64Array


def latest(edges: StepEdges) -> Latest:
    """Latest times and slack of every edge."""
    late, tight_out = _backward(edges.src, edges.dst, edges.weight_ns, edges.sink, int(edges.node_ns[edges.sink]))
    from_ns = np.where(edges.src == SOURCE, 0, edges.node_ns[np.maximum(edges.src, 0)])
    reached = late[edges.dst] != UNREACHED
    slack = np.where(reached, np.where(reached, late[edges.dst], 0) - edges.weight_ns - from_ns, UNREACHED)
    return Latest(late, slack, tight_out)


@njit(cache=True, nogil=True)
def _backward(src: Int64Array, dst: Int64Array, weight: Int64Array, sink: int, end: int) -> tuple[Int64Array, Int64Array]:
    late = np.full(sink + 1, UNREACHED, dtype=np.int64)
    tight = np.full(sink + 1, NONE, dtype=np.int64)
    late[sink] = end
    for e in range(len(dst) - 1, -1, -1):
        d, s = dst[e], src[e]
        if s >= 0 and late[d] != UNREACHED and late[d] - weight[e] < late[s]:
            late[s] = late[d] - weight[e]
            tight[s] = e
    return late, tight


def longest_way(edges: StepEdges, found: Latest) -> Way:
    """The path through the edges, and the best detour around each of its edges."""
    tight_in = _tight_in(edges.src, edges.dst, edges.weight_ns, edges.node_ns)
    path, label, on_path = _path_and_labels(edges.src, edges.dst, tight_in, edges.sink)
    low = np.where(edges.src == SOURCE, 0, label[np.maximum(edges.src, 0)])
    high = label[edges.dst]
    usable = (found.slack_ns != UNREACHED) & (low < high)
    usable[path] = False
    candidates = np.flatnonzero(usable)
    candidates = candidates[np.argsort(found.slack_ns[candidates], kind="stable")]
    detour = _cover(candidates, low, high, len(path))
    return Way(edges, found.slack_ns, tight_in, found.tight_out, on_path, path, detour)


@njit(cache=True, nogil=True)
def _tight_in(src: Int64Array, dst: Int64Array, weight: Int64Array, node_ns: Int64Array) -> Int64Array:
    """For each node the first edge that says when it happened; NONE where it happened later than all that is known."""
    tight = np.full(len(node_ns), NONE, dtype=np.int64)
    for e in range(len(dst)):
        before = node_ns[src[e]] if src[e] >= 0 else 0
        if tight[dst[e]] == NONE and before + weight[e] == node_ns[dst[e]]:
            tight[dst[e]] = e
    return tight


@njit(cache=True, nogil=True)
def _path_and_labels(src: Int64Array, dst: Int64Array, tight: Int64Array, sink: int) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Edges of the path in the order of time, label of every node, and which nodes are on it. The source has label 0."""
    backward = np.empty(len(tight), dtype=np.int64)
    n, node = 0, sink
    while node >= 0 and tight[node] >= 0:
        backward[n] = tight[node]
        n += 1
        node = src[tight[node]]
    path = backward[:n][::-1].copy()
    label = np.zeros(len(tight), dtype=np.int64)
    on_path = np.zeros(len(tight), dtype=np.bool_)
    for i in range(n):
        label[dst[path[i]]] = i + 1
        on_path[dst[path[i]]] = True
    for e in range(len(dst)):
        d = dst[e]
        if tight[d] == e and not on_path[d]:
            label[d] = label[src[e]] if src[e] >= 0 else 0
    return path, label, on_path


@njit(cache=True, nogil=True)
def _cover(candidates: Int64Array, low: Int64Array, high: Int64Array, k: int) -> Int64Array:
    """For each place 0..k-1 the first candidate with low <= place < high. Painted places are skipped (disjoint sets)."""
    found = np.full(k, NONE, dtype=np.int64)
    following = np.arange(k + 1)
    for e in candidates:
        i = low[e]
        while True:
            root = i
            while following[root] != root:
                root = following[root]
            while following[i] != root:
                following[i], i = root, following[i]
            i = root
            if i >= high[e]:
                break
            found[i] = e
            following[i] = i + 1
    return found


def _along(graph: ReplayGraph, way: Way, path: CriticalPath) -> tuple[SegmentSlack, ...]:
    edges = way.edges
    start = np.where(edges.src[way.path] == SOURCE, 0, edges.node_ns[np.maximum(edges.src[way.path], 0)]) + graph.origin_ns
    end = edges.node_ns[edges.dst[way.path]] + graph.origin_ns
    found = []
    for segment in path.segments:
        first, last = np.searchsorted(end, segment.start_ns, "right"), np.searchsorted(start, segment.end_ns, "left")
        places = np.arange(first, last)
        places = places[end[places] > start[places]]
        if len(places) and all(_same(graph, edges, int(e), segment) for e in way.path[places]):
            slack = int(way.slack_ns[way.path[places]].min())
            found.append(SegmentSlack(slack, _next_limit(graph, way, places, segment)))
        else:
            found.append(SegmentSlack(None, None))
    return tuple(found)


def _same(graph: ReplayGraph, edges: StepEdges, edge: int, segment: Segment) -> bool:
    """Whether an edge of the replay is what the path's segment says: the same span, or the same rank's transfer."""
    rank = int(graph.timeline.trace.rank[edges.at[edge] // 2])
    owner = int(edges.owner[edge])
    return rank == segment.rank and (bool(edges.after_gate[edge]) or owner == (NO_OWNER if segment.span is None else segment.span))


def _next_limit(graph: ReplayGraph, way: Way, places: Int64Array, segment: Segment) -> NextLimit | None:
    detours = way.detour[places]
    detours = detours[detours != NONE]
    if len(detours) == 0:
        return None
    edge = int(detours[np.argmin(way.slack_ns[detours])])
    after = int(way.slack_ns[edge])
    if after >= segment.on_path_ns:
        return None
    edges = way.edges
    begin = int(edges.node_ns[0]) if len(edges.stamps) else 0
    named = _longest_piece(
        edge, edges.src, edges.dst, edges.weight_ns, edges.owner, edges.node_ns, way.tight_in, way.tight_out, way.on_path, begin
    )
    return NextLimit(*_what(graph, edges, int(named)), after)


@njit(cache=True, nogil=True)
def _longest_piece(
    edge: int, src: Int64Array, dst: Int64Array, weight: Int64Array, owner: Int64Array, node_ns: Int64Array,
    tight_in: Int64Array, tight_out: Int64Array, on_path: BoolArray, begin: int,
) -> int:  # fmt: skip
    """An edge of the longest stretch of one owner, of the chain through `edge` as far as it is off the path."""
    chain = np.empty(len(tight_in) + 1, dtype=np.int64)
    n, e = 0, edge
    while e >= 0:
        chain[n] = e
        n += 1
        e = tight_in[src[e]] if src[e] >= 0 and not on_path[src[e]] else NONE
    chain[:n] = chain[:n][::-1].copy()
    e = edge
    while not on_path[dst[e]] and tight_out[dst[e]] >= 0:
        e = tight_out[dst[e]]
        chain[n] = e
        n += 1
    best, best_ns, run, run_owner = edge, -1, 0, NO_OWNER
    for e in chain[:n]:
        length = weight[e] if src[e] >= 0 else max(node_ns[dst[e]] - begin, 0)
        run = run + length if owner[e] == run_owner and owner[e] >= 0 else length
        run_owner = owner[e]
        if run > best_ns:
            best, best_ns = e, run
    return best


def _what(graph: ReplayGraph, edges: StepEdges, edge: int) -> tuple[int, str, str]:
    """(rank, kind, name) of the time an edge stands for."""
    trace, owner = graph.timeline.trace, int(edges.owner[edge])
    rank = int(trace.rank[edges.at[edge] // 2])
    return (rank, "idle", "") if owner == NO_OWNER else (rank, KINDS[trace.kind[owner]], trace.names[trace.name[owner]])


@njit(cache=True, nogil=True)
def _by_owner(
    owner: Int64Array, slack: Int64Array, weight: Int64Array, src: Int64Array, spans: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Spans that own time in the step, the least slack of each, and how much time it is. A sparse set, as in step_edges."""
    place = np.empty(spans, dtype=np.int64)
    found = np.empty(len(owner), dtype=np.int64)
    least, length = np.empty(len(owner), dtype=np.int64), np.zeros(len(owner), dtype=np.int64)
    k = 0
    for e in range(len(owner)):
        span = owner[e]
        if span < 0 or slack[e] == UNREACHED:
            continue
        at = place[span]
        if not (0 <= at < k and found[at] == span):
            at = k
            place[span], found[k], least[k] = k, span, slack[e]
            k += 1
        least[at] = min(least[at], slack[e])
        if src[e] != SOURCE:
            length[at] += weight[e]
    return found[:k], least[:k], length[:k]


def _near(graph: ReplayGraph, way: Way, path: CriticalPath, most: int) -> tuple[tuple[NearOperation, ...], bool]:
    """Operations off the path by slack; of those of one rank with the same slack, which are one chain, the longest."""
    timeline = graph.timeline
    trace = timeline.trace
    edges = way.edges
    spans, slack, length = _by_owner(edges.owner, way.slack_ns, edges.weight_ns, edges.src, len(trace))
    off_path = np.ones(len(trace), dtype=np.bool_)
    off_path[[s.span for s in path.segments if s.span is not None]] = False
    off_path[edges.owner[way.path][edges.owner[way.path] >= 0]] = False  # also those that are on it for no time at all
    kept = off_path[spans] & (length > 0) & ~trace.is_open[spans]
    spans, slack, length = spans[kept], slack[kept], length[kept]
    wanted = 16 * most  # usually enough of the spans with least slack to hold so many chains
    while True:
        some = np.flatnonzero(slack <= np.partition(slack, wanted)[wanted]) if wanted < len(slack) else np.arange(len(slack))
        chosen = some[_chains(trace.rank, spans[some], slack[some], length[some])]
        if len(chosen) > most or len(some) == len(slack):
            break
        wanted *= 8
    found = tuple(
        NearOperation(
            rank=int(trace.rank[s]),
            lane=trace.lanes[trace.lane[s]],
            kind=KINDS[trace.kind[s]],
            name=trace.names[trace.name[s]],
            start_ns=int(timeline.start_ns[s]),
            end_ns=int(timeline.end_ns[s]),
            slack_ns=int(slack[i]),
        )
        for i, s in zip(chosen[:most].tolist(), spans[chosen[:most]].tolist(), strict=True)
    )
    return found, len(chosen) > most


def _chains(rank: Int32Array, spans: Int64Array, slack: Int64Array, length: Int64Array) -> Int64Array:
    """By (slack, rank), the place of the longest span of each."""
    order = np.lexsort((spans, -length, rank[spans], slack))
    chain = np.stack((slack[order], rank[spans[order]]))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (chain[:, 1:] != chain[:, :-1]).any(axis=0)
    return order[first]
