"""Where each rank stands along each kind of parallelism: posted, else its place among the members of its groups.

A rank's coordinate along a dimension (dp, tp, pp, ep, cp) is its place, by rank number, in its group of that kind. Where it is in
several groups of one kind (data parallel with and without context parallel, say) the smallest one counts. Stages stand in for
pipeline groups where none are known. What was posted goes first; a group whose members were posted with one coordinate twice is
a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crossrank.model.topology import Group

DIMENSIONS: Final = ("dp", "tp", "pp", "ep", "cp")
_CONFLICTS_TOLD: Final = 16


def coordinates(
    groups: Sequence[Group], seen: Sequence[int], stage: Sequence[int], said: Mapping[int, Mapping[str, Any]]
) -> tuple[dict[int, dict[str, int]], dict[str, int], tuple[str, ...]]:
    """Coordinates by rank, ranks along each dimension, and conflicts in sentences. said: posted ranks by number."""
    home: dict[tuple[int, str], Group] = {}
    for group in sorted(groups, key=lambda g: (len(g.ranks), g.name)):
        if group.kind in DIMENSIONS and len(group.ranks) > 1:
            for rank in group.ranks:
                home.setdefault((rank, group.kind), group)
    coords: dict[int, dict[str, int]] = {r: {} for r in seen}
    for (rank, kind), group in home.items():
        coords.setdefault(rank, {})[kind] = group.ranks.index(rank)
    if len(set(stage)) > 1 and not any(kind == "pp" for _, kind in home):
        for rank, place in zip(seen, stage, strict=True):
            coords[rank]["pp"] = place
    for rank, row in said.items():
        coords.setdefault(rank, {}).update({str(k): int(v) for k, v in (row.get("coords") or {}).items()})
    sizes = {d: 1 + max(c[d] for c in coords.values() if d in c) for d in sorted({d for c in coords.values() for d in c})}
    ordered = {r: dict(sorted(coords[r].items())) for r in sorted(coords)}
    return ordered, sizes, tuple(_conflicts(groups, said))[:_CONFLICTS_TOLD]


def _conflicts(groups: Sequence[Group], said: Mapping[int, Mapping[str, Any]]) -> list[str]:
    found = []
    for group in groups:
        if group.kind not in DIMENSIONS:
            continue
        places: dict[int, int] = {}
        for rank in group.ranks:
            place = (said.get(rank, {}).get("coords") or {}).get(group.kind)
            if place is None:
                continue
            if place in places:
                found.append(
                    f"Group {group.name!r}: ranks {places[place]} and {rank} were both posted with {group.kind} = {place},"
                    " but are members of one group of that kind."
                )
                break
            places[place] = rank
    return found
