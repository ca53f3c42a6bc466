"""Nodes of an execution graph (Chakra, PyTorch's execution trace) laid over the spans of the profile recorded with it.

A graph says what depends on what and has no times; a profile has times and says little of dependencies. Both carry the number of
the record function: `rf_id` of a node, `Record function id` of a span. A node and a span of one rank with one number are one call, so
the dependencies of nodes become links of spans:

    node B depends on node A, A is span a, B is span b   ->   a is a stated cause of b

Nodes come as events on lanes that begin with NODE_LANE. They are taken off the timeline here: those without a time for good, those with
one where a span has their number. What depends on a node without a span depends on what that node depends on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import BoolArray, Int64Array

NODE_LANE: Final = "chakra node"  # alone where the node has no time, else followed by the lane of its work
UNTIMED_LANE: Final = NODE_LANE
_NODE: Final = r'[{,]"rf_id":(?P<number>\d{1,18})[,}]'
_SPAN: Final = r'[{,]"Record function id":(?P<number>\d{1,18})[,}]'
_HOPS: Final = 64  # nodes without a span that a dependency is followed through


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """(rank, span id) of cause and effect of every dependency, as parallel arrays, and how many nodes have a span and have none."""

    rank: Int64Array
    cause: Int64Array
    effect: Int64Array
    counts: dict[str, int] = field(default_factory=dict)


def without_nodes(events: pa.Table) -> tuple[pa.Table, NodeLinks]:
    """Events without the nodes that are no spans of their own, and what the nodes say of the others."""
    nothing = np.empty(0, dtype=np.int64)
    nowhere = NodeLinks(nothing, nothing, nothing)
    is_node = _on_node_lanes(events)
    if not is_node.any():
        return events, nowhere
    nodes, spans = events.filter(pa.array(is_node)), events.filter(pa.array(~is_node))
    spans = spans.filter(pc.is_in(spans.column("rank"), value_set=pc.unique(nodes.column("rank"))))
    numbers = _numbers(nodes.column("attrs"), _NODE)
    span_of = _spans_by_number(spans, numbers)
    ranks, ids = nodes.column("rank").to_numpy().tolist(), [_as_int(i) for i in nodes.column("span_id").to_pylist()]
    found = {(r, i): span_of[r, n] for r, i, n in zip(ranks, ids, numbers.to_pylist(), strict=True) if (r, n) in span_of}
    depends = {
        (r, i): [(r, _as_int(link)) for link in links or ()]
        for r, i, links in zip(ranks, ids, nodes.column("links").to_pylist(), strict=True)
    }
    edges = sorted({(*effect[:1], cause, found[effect]) for effect in found for cause in _causes(effect, depends, found)})
    rank, cause, effect = (np.array([e[i] for e in edges], dtype=np.int64) for i in range(3))
    untimed = np.array([lane == UNTIMED_LANE for lane in nodes.column("lane").cast(pa.string()).to_pylist()])
    joined = np.array([node in found for node in zip(ranks, ids, strict=True)])
    dropped = np.zeros(len(events), dtype=np.bool_)
    dropped[np.flatnonzero(is_node)] = untimed | joined
    counts = {"nodes_joined": int(joined.sum()), "nodes_without_span": int((~joined).sum())}
    return events.filter(pa.array(~dropped)), NodeLinks(rank, cause, effect, {k: n for k, n in counts.items() if n})


def _on_node_lanes(events: pa.Table) -> BoolArray:
    lane = events.column("lane")
    mask: BoolArray = np.zeros(len(events), dtype=np.bool_)
    at = 0
    for chunk in lane.chunks:
        words = pc.starts_with(chunk.dictionary, NODE_LANE).to_numpy(zero_copy_only=False)
        if words.any():
            mask[at : at + len(chunk)] = words[chunk.indices.to_numpy(zero_copy_only=False)]
        at += len(chunk)
    return mask


def _spans_by_number(spans: pa.Table, wanted: pa.ChunkedArray) -> dict[tuple[int, int], int]:
    """Span id by (rank, number of the record function), of wanted numbers; the first to start where several have one."""
    numbers = _numbers(spans.column("attrs"), _SPAN)
    named = pc.and_(pc.is_in(numbers, value_set=pc.unique(wanted)), pc.greater(numbers, 0))
    chosen = spans.select(["rank", "span_id", "start_ns"]).append_column("number", numbers).filter(named).to_pylist()
    first = sorted(((row["start_ns"] or 0, row["span_id"], row["rank"], row["number"]) for row in chosen), reverse=True)
    return {(rank, number): _as_int(id_) for _, id_, rank, number in first}


def _numbers(attrs: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """The number in each text, 0 (which is no number of a record function) where there is none."""
    found = pc.struct_field(pc.extract_regex(attrs, pattern), "number")
    return pc.fill_null(pc.cast(found, pa.int64()), 0)


def _causes(
    node: tuple[int, int], depends: dict[tuple[int, int], list[tuple[int, int]]], found: dict[tuple[int, int], int]
) -> set[int]:
    """Spans that a node depends on, through nodes without one."""
    causes: set[int] = set()
    seen, reached = {node}, list(depends[node])
    while reached and len(seen) <= _HOPS:
        cause = reached.pop()
        if cause in seen:
            continue
        seen.add(cause)
        if cause in found:
            causes.add(found[cause])
        else:
            reached += depends.get(cause, ())
    return causes - {found[node]}


def _as_int(id_: bytes) -> int:
    return int.from_bytes(id_, "big", signed=True)


def place_links(links: NodeLinks, rank: np.ndarray, span_id: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(cause, effect) span numbers of the links of nodes."""
    place = {key: i for i, key in enumerate(zip(rank.tolist(), span_id.tolist(), strict=True))} if len(links.rank) else {}
    pairs = [
        (place[r, c], place[r, e])
        for r, c, e in zip(links.rank.tolist(), links.cause.tolist(), links.effect.tolist(), strict=True)
        if (r, c) in place and (r, e) in place
    ]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
