"""What is this job: ranks, hosts, steps, span of time, data quality, alignment, and the findings that matter most."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossrank.model.kinds import KINDS
from crossrank.query.answers.bottlenecks import finding_answer
from crossrank.query.answers.hangs import hang_findings
from crossrank.query.jobview import JobView, carried

TOP_FINDINGS = 5


def summary(view: JobView) -> dict[str, Any]:
    """GET /v1/jobs/{job}."""
    derived, trace = view.derived, view.derived.timeline.trace
    topology, steps = derived.topology, derived.steps
    span = None
    if len(trace):
        start, end = int(derived.timeline.start_ns.min()), int(derived.timeline.end_ns.max())
        span = {"start_ns": start, "end_ns": end, "duration_ns": end - start}
    kinds = np.bincount(trace.kind, minlength=len(KINDS))
    return {
        "job": trace.job,
        "attempt": trace.attempt,
        "attempts": list(view.snapshot.attempts),
        "world_size": topology.world_size,
        "ranks": {"seen": list(topology.seen), "missing": list(topology.missing), "missing_count": topology.missing_count},
        "hosts": sorted(set(topology.hosts.values())),
        "span": span,
        "steps": {
            "count": len(steps.step),
            "complete": int(steps.complete.sum()),
            "first": int(steps.step[0]) if len(steps.step) else None,
            "last": int(steps.step[-1]) if len(steps.step) else None,
        },
        "events": {
            "stored": derived.events,
            "open": int(trace.is_open.sum()),
            "by_kind": {kind: int(n) for kind, n in zip(KINDS, kinds.tolist(), strict=True) if n},
            **view.tallies,
        },
        "rejects": [{"rank": rank, "reason": reason, "count": count} for rank, reason, count in view.rejects],
        "unmatched": dict(sorted(derived.timeline.matches.unmatched.items())),
        "joins": derived.joins,
        "conflicts": list(topology.conflicts),
        "findings": [finding_answer(trace.job, f) for f in (*hang_findings(view), *derived.findings)[:TOP_FINDINGS]],
        **carried(view),
    }
