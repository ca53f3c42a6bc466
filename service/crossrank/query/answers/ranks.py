"""What each rank did with its time, whom it kept waiting, and how long it waited itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.analysis.breakdown import CATEGORIES, breakdown
from crossrank.analysis.rank_waits import rank_waits
from crossrank.query.answers.steps import chosen_steps
from crossrank.query.jobview import JobView, carried


def ranks(view: JobView, *, first: int | None, last: int | None, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/ranks: waits over the whole job, phases over the steps from `first` to `last`."""
    derived = view.derived
    timeline, table = derived.timeline, derived.steps
    waits = rank_waits(timeline, derived.collectives)
    rows = chosen_steps(view, first, last)
    inside = np.zeros(len(table.rank), dtype=bool)
    if len(rows):
        inside[table.ptr[rows[0]] : table.ptr[rows[-1] + 1]] = True
    phases = np.zeros((len(waits.rank), len(CATEGORIES)), dtype=np.int64)
    place = np.searchsorted(waits.rank, table.rank[inside])
    np.add.at(phases, place, breakdown(timeline, table).time_ns[inside])
    steps = np.bincount(place, minlength=len(waits.rank))
    answer = [
        {
            "rank": int(rank),
            "host": derived.topology.hosts.get(int(rank)),
            "waits_suffered_ns": int(waits.suffered_ns[i]),
            "waits_caused_ns": int(waits.caused_ns[i]),
            "came_last": int(waits.came_last[i]),
            "steps": int(steps[i]),
            "phases_ns": {name: int(ns) for name, ns in zip(CATEGORIES, phases[i].tolist(), strict=True) if ns},
        }
        for i, rank in enumerate(waits.rank[:limit].tolist())
    ]
    return {"ranks": answer, "total": len(waits.rank), **carried(view, truncated=len(waits.rank) > limit)}
