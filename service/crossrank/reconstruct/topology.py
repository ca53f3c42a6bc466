"""The job's shape from what was posted and from the communications themselves.

*Stages.* A pipeline is a set of ranks connected by point-to-point messages. Two ranks do the same work when a collective group
holds both and no pipeline passes through that group twice: a tensor- or data-parallel group holds one rank of each pipeline it
touches, while `world`, or a group over all stages, holds several ranks of one pipeline and says nothing about roles. Posted
`pp` coordinates go first when every rank seen has one.

*Kinds of groups* come from their descriptions and names (reconstruct.group_kinds), else from their members: all ranks are the world, ranks of one
pipeline are pp, neighbours on one host are tp, anything else that holds a collective is dp. Best effort, for display.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from crossrank.model.arrays import Int64Array, distinct_pairs
from crossrank.model.kinds import COLLECTIVE, RECV, SEND
from crossrank.model.matches import Matches
from crossrank.model.topology import MISSING_LISTED, Group, GroupKind, Topology
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.coordinates import coordinates
from crossrank.reconstruct.group_kinds import described_kind, named_kind

_RANKS = 2**31  # rank columns are int32


def infer_topology(trace: JobTrace, matches: Matches, posted: Mapping[str, Any] | None) -> Topology:
    """Topology of one attempt. posted: the merged topology document of the job ({world_size, ranks, groups}), if any."""
    posted = posted or {}
    seen = trace.ranks.astype(np.int64)
    said = {int(r["rank"]): r for r in posted.get("ranks") or ()}
    groups = _groups(trace, posted)
    largest = max([int(seen[-1]) + 1 if len(seen) else 0, *(g[1][-1] + 1 for g in groups if g[1])], default=0)
    world_size = int(posted.get("world_size") or max([largest, *(r + 1 for r in said)], default=0))
    pipeline = _pipelines(trace, seen)
    missing_count = world_size - int(np.searchsorted(seen, world_size))
    listed = min(world_size, MISSING_LISTED + len(seen))
    missing = np.setdiff1d(np.arange(listed, dtype=np.int64), seen)[:MISSING_LISTED]
    hosts = {**{r: row["host"] for r, row in said.items() if row.get("host")}, **trace.hosts}
    descs = {g["name"]: str(g.get("desc") or "") for g in posted.get("groups") or ()}
    known = tuple(
        Group(name, ranks, _kind(name, descs.get(name, ""), ranks, world_size, hosts, seen, pipeline), _scope(ranks, hosts))
        for name, ranks in groups
    )
    stage = _stages(trace, matches, seen, pipeline, said)
    coords, sizes, doubled = coordinates(known, seen.tolist(), stage, said)
    return Topology(
        world_size=world_size,
        seen=tuple(seen.tolist()),
        missing=tuple(missing.tolist()),
        missing_count=missing_count,
        hosts=hosts,
        groups=known,
        stage=stage,
        conflicts=(*posted.get("conflicts", ()), *_conflicts(trace, said, groups, posted, largest), *doubled),
        coords=coords,
        sizes=sizes,
    )


def _groups(trace: JobTrace, posted: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Distinct (name, members), ascending; members from the events, else posted, else those seen communicating."""
    # Recorded files say what they like: a number that no rank can have names nobody.
    said = {g["name"]: tuple(sorted({r for r in g["ranks"] if 0 <= r < _RANKS})) for g in posted.get("groups") or ()}
    group, rank = distinct_pairs(trace.group[trace.group >= 0], trace.rank[trace.group >= 0])
    users = np.split(rank, np.searchsorted(group, np.arange(1, len(trace.groups))))
    found = {(name, trace.group_ranks[g] or said.get(name) or tuple(users[g].tolist())) for g, name in enumerate(trace.groups)}
    known = {name for name, _ in found}
    return sorted(found | {(name, ranks) for name, ranks in said.items() if name not in known})


def _pipelines(trace: JobTrace, seen: Int64Array) -> Int64Array:
    """Component of each rank seen in the graph of point-to-point messages; a rank without any is its own."""
    talks = np.flatnonzero(((trace.kind == SEND) | (trace.kind == RECV)) & (trace.peer >= 0))
    mine, peer = trace.rank[talks], trace.peer[talks]
    known = np.isin(peer, seen)
    return _components(np.searchsorted(seen, mine[known]), np.searchsorted(seen, peer[known]), len(seen))


def _components(a: np.ndarray, b: np.ndarray, nodes: int) -> Int64Array:
    """Components of an undirected graph, numbered by their lowest node."""
    if nodes == 0:
        return np.empty(0, dtype=np.int64)
    label = connected_components(coo_array((np.ones(len(a), dtype=np.int8), (a, b)), shape=(nodes, nodes)), directed=False)[1]
    _, first, place = np.unique(label, return_index=True, return_inverse=True)
    numbered: Int64Array = np.argsort(np.argsort(first))[place].astype(np.int64)
    return numbered


def _stages(trace: JobTrace, matches: Matches, seen: Int64Array, pipeline: Int64Array, said: Mapping[int, Any]) -> tuple[int, ...]:
    coords = [(said.get(r, {}).get("coords") or {}).get("pp") for r in seen.tolist()]
    if coords and all(c is not None for c in coords):
        return tuple(int(c) for c in coords if c is not None)
    spans = matches.collectives.member
    group, rank = distinct_pairs(trace.group[spans], trace.rank[spans])
    place = np.searchsorted(seen, rank)
    through, _ = distinct_pairs(group, pipeline[place])
    holds_one_rank_each = np.bincount(through, minlength=len(trace.groups)) == np.bincount(group, minlength=len(trace.groups))
    same_group = (group[1:] == group[:-1]) & holds_one_rank_each[group[1:]]
    stage = _components(place[:-1][same_group], place[1:][same_group], len(seen))
    if not np.isin(trace.kind, (COLLECTIVE, SEND, RECV)).any():
        stage = np.zeros(len(seen), dtype=np.int64)  # nothing tells the ranks apart
    return tuple(stage.tolist())


def _scope(ranks: tuple[int, ...], hosts: Mapping[int, str]) -> Literal["intra_host", "inter_host"] | None:
    if not all(r in hosts for r in ranks):
        return None
    return "intra_host" if len({hosts[r] for r in ranks}) == 1 else "inter_host"


def _kind(
    name: str, desc: str, ranks: tuple[int, ...], world_size: int, hosts: Mapping[int, str], seen: Int64Array, pipeline: Int64Array
) -> GroupKind:
    stated = described_kind(desc) if desc else None
    stated = stated or named_kind(name)
    if stated:
        return stated
    if len(ranks) == world_size:
        return "world"
    known = np.intersect1d(np.array(ranks, dtype=np.int64), seen)
    through = pipeline[np.searchsorted(seen, known)]
    if len(known) > 1 and len(np.unique(through)) == 1:
        return "pp"
    if len(ranks) > 1:
        neighbours = ranks[-1] - ranks[0] == len(ranks) - 1
        one_host = len({hosts.get(r, r) for r in ranks}) == 1
        return "tp" if neighbours and one_host else "dp"
    return "other"


def _conflicts(
    trace: JobTrace, said: Mapping[int, Any], groups: list[tuple[str, tuple[int, ...]]], posted: Mapping[str, Any], largest: int
) -> list[str]:
    """Sentences about what was posted and what the events say otherwise."""
    found = []
    size = posted.get("world_size")
    if size and largest > size:
        found.append(f"world_size {size} was posted, but events name rank {largest - 1}.")
    found += [
        f"Rank {r}: host {row['host']!r} was posted, events say {trace.hosts[r]!r}."
        for r, row in sorted(said.items())
        if row.get("host") and trace.hosts.get(r, row["host"]) != row["host"]
    ]
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for name, ranks in groups:
        by_name.setdefault(name, []).append(ranks)
    for group in posted.get("groups") or ():
        told = tuple(sorted(set(group["ranks"])))
        seen = by_name.get(group["name"])
        if seen and told not in seen:
            found.append(f"Group {group['name']!r}: {len(told)} members were posted, events say {len(seen[0])} others.")
    return found
