"""What every answer about a job starts from, and what every answer carries.

Every read says how complete it is, how well the clocks agree, what was dropped and whether something was left out; without
that a number about other machines cannot be judged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.query.derive import Derived
from crossrank.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as known now. rejects: (rank or None, reason, count). tallies: accepted, duplicate, conflict.

    now_ns: when the question was asked, by the service's clock; listening_since_ns: from when on it could be reached.
    """

    snapshot: Snapshot
    derived: Derived
    rejects: tuple[tuple[int | None, str, int], ...]
    tallies: dict[str, int]
    now_ns: int
    listening_since_ns: int


def carried(view: JobView, *, truncated: bool = False) -> dict[str, Any]:
    """The fields that every answer carries."""
    derived = view.derived
    partial = list(view.snapshot.partial)
    return {
        "complete_to_ns": derived.complete_to_ns,
        "alignment": alignment(derived),
        "dropped": dropped(view),
        "truncated": truncated or derived.truncated or bool(partial),
        **({"partial": partial} if partial else {}),
    }


def alignment(derived: Derived) -> dict[str, Any]:
    """Reference clock and worst guaranteed bound of the largest component, and how many components there are."""
    clocks, trace = derived.timeline.clocks, derived.timeline.trace
    if not trace.domains:
        return {
            "reference": None,
            "bound_ns": None,
            "components": 0,
            "version": derived.alignment_version,
            "settled_ns": None,
        }
    largest = int(np.bincount(clocks.component).argmax())
    members = clocks.component == largest
    bound = int(np.maximum(np.abs(clocks.bound_lo_ns[members]), np.abs(clocks.bound_hi_ns[members])).max())
    return {
        "reference": trace.domains[int(clocks.reference[largest])],
        "bound_ns": bound if bound < UNALIGNED_NS else None,
        "components": len(clocks.reference),
        "version": derived.alignment_version,
        "settled_ns": None if derived.carried is None else derived.carried.settled_ns,
    }


def dropped(view: JobView) -> dict[str, int]:
    """Events that are not in the answers, by reason: rejected at the door, or unusable on a timeline.

    `name_folded` ones are there, under the name that all words beyond the limit share.
    """
    reasons: Counter[str] = Counter()
    for _, reason, count in view.rejects:
        reasons[reason] += count
    trace = view.derived.timeline.trace
    reasons.update(trace.excluded)
    if trace.names_folded:
        reasons["name_folded"] = trace.names_folded
    return dict(sorted(reasons.items()))
