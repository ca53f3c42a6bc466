"""For each matched collective: who took part, who came last, how long the others waited, how fast the transfer was."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.model.timeline import NO_STEP
from crossrank.query.jobview import JobView, carried


def collectives(
    view: JobView, *, step: int | None, group: str | None, op: str | None, min_wait_ns: int | None, limit: int
) -> dict[str, Any]:
    """GET /v1/jobs/{job}/collectives: filtered, in the order of (group, seq)."""
    trace, found, times = view.derived.timeline.trace, view.derived.timeline.matches.collectives, view.derived.collectives
    keep = np.ones(len(found), dtype=bool)
    if step is not None:
        keep &= times.step == step
    if group is not None:
        keep &= np.array([g == group for g in trace.groups] or [False])[found.group]
    if op is not None:
        keep &= np.array([o == op for o in trace.ops] or [False])[found.op]
    if min_wait_ns is not None:
        keep &= times.spread_ns >= min_wait_ns
    rows = np.flatnonzero(keep)
    answer = [instance_answer(view, int(k)) for k in rows[:limit]]
    return {"collectives": answer, "total": len(rows), **carried(view, truncated=len(rows) > limit)}


def instance_answer(view: JobView, k: int) -> dict[str, Any]:
    """One matched collective as the API shows it."""
    trace, found, times = view.derived.timeline.trace, view.derived.timeline.matches.collectives, view.derived.collectives
    members = sorted(set(trace.rank[found.member[found.ptr[k] : found.ptr[k + 1]]].tolist()))
    group_ranks = trace.group_ranks[int(found.group[k])] if found.group[k] >= 0 else ()
    step = int(times.step[k])
    return {
        "group": trace.groups[int(found.group[k])] if found.group[k] >= 0 else None,
        "seq": int(found.seq[k]),
        "op": trace.ops[int(found.op[k])] if found.op[k] >= 0 else None,
        "step": None if step == NO_STEP else step,
        "members": members,
        "missing": sorted(set(group_ranks) - set(members)),
        "first_arrival_ns": int(times.first_arrival_ns[k]),
        "last_arrival_ns": int(times.last_arrival_ns[k]),
        "last_arriver": int(times.last_arriver[k]) if times.decided[k] else None,
        "spread_ns": int(times.spread_ns[k]),
        "spread_bound_ns": int(times.spread_bound_ns[k]) if times.spread_bound_ns[k] < UNALIGNED_NS else None,
        "transfer_ns": int(times.transfer_ns[k]) if times.ended[k] else None,
        "bytes": int(times.size_bytes[k]),
        "match_confidence": float(found.confidence[k]),
        "algbw_gbs": _number(times.algbw_gbs[k]),
        "busbw_gbs": _number(times.busbw_gbs[k]),
    }


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
