"""Which process group an event belongs to: its name *and* its membership.

Names repeat: after splitting a job into tensor-parallel groups, every one of them may be called `tp`. Events that carry the
members of their group tell them apart. An event without members belongs to the one group of its name that holds its rank; when
several do, to the one its own rank has named (of several, the one that most ranks have named); else to a group of that name with
unknown membership.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import Int32Array

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class Groups:
    """The distinct groups of a trace, ascending by (name, members), and the group of each event."""

    code: Int32Array  # [n] NO_GROUP where the event has none
    names: tuple[str, ...]  # [groups] a name occurs once for each distinct membership
    members: tuple[tuple[int, ...], ...]  # [groups] ascending ranks; () where never sent


def identify_groups(name: Int32Array, names: tuple[str, ...], sent: pa.Array, rank: Int32Array) -> Groups:
    """Groups of n events from their name codes (-1: none), the list<int32> column of members as sent, and their ranks [n]."""
    listed, lists = _distinct_lists(sent)
    radix = len(lists) + 1
    pairs = name.astype(np.int64) * radix + (listed + 1)
    pairs[name < 0] = -1
    found, place = np.unique(pairs, return_inverse=True)
    of_pair = [(names[p // radix], lists[p % radix - 1] if p % radix else ()) if p >= 0 else None for p in found.tolist()]
    place = _adopt_orphans(of_pair, place.astype(np.int64), rank)
    keys = sorted({of_pair[p] for p in np.unique(place).tolist()} - {None}, key=lambda k: k or ("", ()))
    code = {key: i for i, key in enumerate(keys)}
    recode = np.array([code.get(key, NO_GROUP) for key in of_pair] or [NO_GROUP], dtype=np.int32)
    return Groups(
        code=recode[place] if len(name) else np.empty(0, dtype=np.int32),
        names=tuple(key[0] for key in keys if key),
        members=tuple(key[1] for key in keys if key),
    )


def _distinct_lists(sent: pa.Array) -> tuple[Int32Array, tuple[tuple[int, ...], ...]]:
    """Codes of the distinct member lists, -1 where null. Lists are compared as byte strings, so Arrow's hashing does it."""
    length = pc.list_value_length(sent).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = np.ascontiguousarray(sent.flatten().fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int32)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(length) * values.itemsize))
    texts = pa.Array.from_buffers(pa.large_binary(), len(sent), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    coded = texts.dictionary_encode()
    code = coded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    present = (length > 0) & (code >= 0)
    lists = tuple(tuple(sorted(set(np.frombuffer(b, dtype=np.int32).tolist()))) for b in coded.dictionary.to_pylist())
    return np.where(present, code, np.int32(-1)), lists


def _adopt_orphans(of_pair: list[tuple[str, tuple[int, ...]] | None], place: np.ndarray, rank: Int32Array) -> np.ndarray:
    """Moves events without members to the group of their name that they can only belong to."""
    by_name: dict[str, dict[tuple[int, ...], int]] = {}
    for i, key in enumerate(of_pair):
        if key is not None and key[1]:
            by_name.setdefault(key[0], {}).setdefault(key[1], i)
    if not any(key is not None and not key[1] and key[0] in by_name for key in of_pair):
        return place
    out = place.copy()
    by_place = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[by_place], np.arange(len(of_pair) + 1))
    for i, key in enumerate(of_pair):
        if key is None or key[1] or key[0] not in by_name:
            continue
        rows = by_place[edges[i] : edges[i + 1]]
        said = {p: set(np.unique(rank[by_place[edges[p] : edges[p + 1]]]).tolist()) for p in by_name[key[0]].values()}
        adopted = _homes(np.unique(rank[rows]), by_name[key[0]], said)
        ranks = np.array(sorted(adopted), dtype=np.int64)
        homes = np.array([adopted[r] for r in ranks.tolist()], dtype=np.int64)
        held = np.isin(rank[rows], ranks)
        out[rows[held]] = homes[np.searchsorted(ranks, rank[rows[held]])]
    return out


def _homes(ranks: np.ndarray, groups: dict[tuple[int, ...], int], said: dict[int, set[int]]) -> dict[int, int]:
    """The place of the membership each rank belongs to, of those that have one. said: who has named each membership."""
    wanted = set(ranks.tolist())
    holders: dict[int, list[int]] = {}
    for members, place in groups.items():
        for r in members:
            if r in wanted:
                holders.setdefault(r, []).append(place)
    homes: dict[int, int] = {}
    for r, places in holders.items():
        named = places if len(places) == 1 else [p for p in places if r in said[p]]
        most = max((len(said[p]) for p in named), default=0)
        best = [p for p in named if len(said[p]) == most]
        if len(best) == 1:
            homes[r] = best[0]
    return homes
