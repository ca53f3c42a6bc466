"""How wrong was each clock, how sure are we, and how many impossibilities did the raw stamps contain."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.model.arrays import distinct_pairs
from crossrank.model.timeline import Timeline
from crossrank.query.jobview import JobView, alignment, carried

DROPPED_SHOWN = 100
MEMBERS_SHOWN = 64


def clocks(view: JobView) -> dict[str, Any]:
    """GET /v1/jobs/{job}/clocks."""
    timeline, violations = view.derived.timeline, view.derived.violations
    trace, fitted = timeline.trace, timeline.clocks
    ranks_of = _ranks_by_domain(view)
    domains = []
    for d, clock in enumerate(trace.domains):
        knots = [
            {"t_ns": t, "offset_ns": o}
            for epoch in fitted.epochs[d]
            for t, o in zip(epoch.knot_ns.tolist(), epoch.offset_ns.tolist(), strict=True)
        ]
        domains.append(
            {
                "clock": clock,
                "host": trace.domain_host[d] or None,
                "ranks": ranks_of[d],
                "component": int(fitted.component[d]),
                "offset_ns": knots[0]["offset_ns"] if knots else 0,
                "drift_ppm": _drift_ppm(view, d),
                "bound_lo_ns": int(fitted.bound_lo_ns[d]),
                "bound_hi_ns": int(fitted.bound_hi_ns[d]),
                "sigma_ns": float(fitted.sigma_ns[d]),
                "bias_floor_ns": float(fitted.bias_floor_ns[d]),
                "knots": knots,
                "clock_steps": [{"t_ns": s.t_ns, "size_ns": s.size_ns} for s in fitted.steps[d]],
            }
        )
    return {
        "reference": alignment(view.derived)["reference"],
        "references": [trace.domains[int(r)] for r in fitted.reference] if trace.domains else [],
        "domains": domains,
        "violations": {"raw": violations.raw, "after_fit": violations.after_fit, "after_repair": violations.after_repair},
        "contradictions": [{"from_ns": a, "to_ns": b} for a, b in fitted.contradicted_ns],
        "cycles": len(timeline.order.broken),
        "dropped_syncs": [_dropped(timeline, kind, number) for kind, number in timeline.order.broken[:DROPPED_SHOWN]],
        **carried(view),
    }


def _dropped(timeline: Timeline, kind: str, number: int) -> dict[str, Any]:
    """An operation of a cycle: the one with the least support was dropped."""
    trace, collectives, messages = timeline.trace, timeline.matches.collectives, timeline.matches.messages
    if kind == "collective":
        members = collectives.member[collectives.ptr[number] : collectives.ptr[number + 1]]
    else:
        members = np.array([messages.send[number], messages.recv[number]])
    first, group = int(members[0]), int(trace.group[members[0]])
    return {
        "kind": kind,
        "group": trace.groups[group] if group >= 0 else None,
        "seq": int(trace.seq[first]) if trace.has_seq[first] else None,
        "ranks": trace.rank[members[:MEMBERS_SHOWN]].tolist(),
    }


def _ranks_by_domain(view: JobView) -> list[list[int]]:
    trace = view.derived.timeline.trace
    domain, rank = distinct_pairs(trace.domain, trace.rank)
    return [rank[domain == d].tolist() for d in range(len(trace.domains))]


def _drift_ppm(view: JobView, domain: int) -> float | None:
    """Rate error of a clock against the reference over its longest epoch, positive = runs fast; None when too short to tell."""
    epoch = max(view.derived.timeline.clocks.epochs[domain], key=lambda e: int(e.knot_ns[-1] - e.knot_ns[0]))
    run = int(epoch.knot_ns[-1] - epoch.knot_ns[0])
    if run <= 0:
        return None
    # offset = reference - local, so a fast clock has a falling offset
    return -1e6 * int(epoch.offset_ns[-1] - epoch.offset_ns[0]) / run
