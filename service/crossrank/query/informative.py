"""Which ranks tell most about a job, for exports that cannot show thousands: with the reason for each.

1. ranks that a finding names, the most expensive finding first
2. ranks on the critical path, by their time on it
3. ranks that came last and made others wait, by how long
4. the others, lowest first
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.critical_path import critical_path
from crossrank.analysis.rank_waits import rank_waits
from crossrank.errors import NotFound
from crossrank.model.arrays import Int64Array
from crossrank.query.jobview import JobView

PATHS_MOST: Final = 64  # steps whose path is walked, evenly spaced


@dataclass(frozen=True, slots=True)
class Chosen:
    """A rank and why it is shown."""

    rank: int
    why: str


def named(view: JobView, ranges: list[tuple[int, int]]) -> tuple[Chosen, ...]:
    """The seen ranks in the given ranges [first, last]. Raises NotFound for a single rank that has no events, and for none at all."""
    seen = view.derived.timeline.trace.ranks
    keep = np.zeros(len(seen), dtype=bool)
    for first, last in ranges:
        here = (seen >= first) & (seen <= last)
        if first == last and not here.any():
            raise NotFound(f"job {view.snapshot.job!r} has no events of rank {first}", field="ranks")
        keep |= here
    if not keep.any():
        raise NotFound(f"job {view.snapshot.job!r} has no events of these ranks", field="ranks")
    return tuple(Chosen(rank, "asked for") for rank in seen[keep].tolist())


def most_informative(view: JobView, most: int, steps: Int64Array) -> tuple[Chosen, ...]:
    """At most `most` ranks in the order of what they tell. steps: rows of the step table asked about."""
    seen = set(view.derived.timeline.trace.ranks.tolist())
    chosen: dict[int, str] = {}
    for rank, why in _candidates(view, steps):
        if len(chosen) >= most:
            break
        if rank in seen:
            chosen.setdefault(rank, why)
    return tuple(Chosen(rank, why) for rank, why in chosen.items())


def _candidates(view: JobView, steps: Int64Array) -> Iterator[tuple[int, str]]:
    derived = view.derived
    for finding in derived.findings:
        yield from ((rank, f"named by a finding: {finding.class_}") for rank in finding.ranks)
    on_path: dict[int, int] = {}
    for row in _spaced(steps):
        for segment in critical_path(derived.timeline, derived.steps, int(derived.steps.step[row]), derived.paths).segments:
            on_path[segment.rank] = on_path.get(segment.rank, 0) + segment.on_path_ns
    yield from ((rank, "on the critical path") for rank in sorted(on_path, key=lambda r: (-on_path[r], r)))
    waits = rank_waits(derived.timeline, derived.collectives)
    order = np.lexsort((waits.rank, -waits.caused_ns))
    for place in order.tolist():
        yield int(waits.rank[place]), "made others wait" if waits.caused_ns[place] > 0 else "lowest rank"


def _spaced(rows: Int64Array) -> list[int]:
    """At most PATHS_MOST of the rows, evenly spaced."""
    if not len(rows):
        return []
    places = np.linspace(0, len(rows) - 1, min(len(rows), PATHS_MOST)).round().astype(np.int64)
    chosen: list[int] = rows[np.unique(places)].tolist()
    return chosen
