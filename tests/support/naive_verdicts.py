"""Verdicts with dictionaries, one event at a time. The judge of `analysis.standstill` and `analysis.mismatches`."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any


def naive_standstill(rows: list[dict[str, Any]], members: dict[str, list[int]]) -> tuple[set[int], set[int], set[int]]:
    """(ends of chains, ranks without data, ranks stopped on their device) of a job of collectives whose events are all there."""
    entered: dict[tuple[str, int], int] = defaultdict(int)
    left: dict[tuple[str, int], int] = defaultdict(int)
    is_open: dict[tuple[str, int], set[int]] = defaultdict(set)
    for row in rows:
        if row["kind"] != "collective":
            continue
        group, rank, seq = row["group"], row["rank"], row["seq"]
        entered[group, rank] = max(entered[group, rank], seq)
        if row["at"][1] is None:
            is_open[group, seq].add(rank)
        else:
            left[group, rank] = max(left[group, rank], seq)
    ends, unseen, stopped = set(), set(), set()
    waiting = {r for (g, q), ranks in is_open.items() for r in ranks}
    seen = {row["rank"] for row in rows}
    for (group, seq), ranks in is_open.items():
        if any(left[group, m] >= seq for m in members[group]):
            stopped |= ranks
            continue
        absent = {m for m in members[group] if entered[group, m] < seq}
        unseen |= absent - seen
        ends |= {m for m in absent & seen if m not in waiting}
    return ends, unseen, stopped


def naive_first_disagreement(calls: dict[int, dict[int, tuple[Any, ...]]]) -> tuple[int, set[int]] | None:
    """The first number on which calls by rank and number differ, and the minority (everybody without a majority)."""
    for seq in sorted({q for made in calls.values() for q in made}):
        made = {r: mine[seq] for r, mine in calls.items() if seq in mine}
        if len(set(made.values())) > 1:
            best, votes = Counter(made.values()).most_common(1)[0]
            return seq, {r for r, call in made.items() if call != best} if 2 * votes > len(made) else set(made)
    return None
