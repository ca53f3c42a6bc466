"""Does the job hang, who holds it up, and who only waits? Asked against the moment of the question, so it needs no new event."""

from __future__ import annotations

from typing import Any

from crossrank.analysis.hangs import hang_at, hang_finding, silence_at
from crossrank.model.findings import Finding
from crossrank.model.verdicts import Culprit, Hang, Pending
from crossrank.query.jobview import JobView, carried

_WAITED_FOR = 64  # ranks listed with each rank that waits


def hang_of(view: JobView) -> Hang:
    """The verdict at the moment of the question."""
    derived = view.derived
    silence = silence_at(
        derived.timeline,
        derived.steps,
        derived.receipts,
        view.now_ns,
        listening_since_ns=view.listening_since_ns,
        dumped=derived.standstill.dumped,
    )
    return hang_at(derived.timeline, derived.standstill, silence)


def hang_findings(view: JobView) -> tuple[Finding, ...]:
    """The hang among the other findings, if there is one."""
    return hang_finding_of(view, hang_of(view))


def hang_finding_of(view: JobView, hang: Hang) -> tuple[Finding, ...]:
    """A verdict as a finding; () where nothing hangs."""
    return hang_finding(view.derived.timeline, hang)


def hangs(view: JobView, *, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/hangs. While nothing is open for too long, `waiting` shows what is open at the moment."""
    hang = hang_of(view)
    found = hang.standstill
    operations = sorted(found.pending + found.inside, key=lambda p: (p.since_ns, p.group, p.seq or 0))
    named = {c.rank for c in hang.culprits}
    waiting = [(r, p) for p in operations for r in p.waiting if r not in named]
    unseen = sorted({*found.unseen, *view.derived.topology.missing}) if hang.hung else []
    return {
        "hung": hang.hung,
        "since_ns": hang.since_ns,
        "sentence": hang.sentence,
        "unseen": unseen[:limit],
        "culprits": [_culprit(c) for c in hang.culprits[:limit]],
        "suspects": list(found.suspects[:limit]) if hang.hung else [],
        "deadlock": list(found.cycle[:limit]) if hang.hung else [],
        "waiting": [_waiting(view, r, p) for r, p in waiting[:limit]],
        "collect": hang.collect,
        "now_ns": hang.silence.now_ns,
        "silent_ns": hang.silence.silent_ns,
        "threshold_ns": hang.silence.threshold_ns,
        **carried(view, truncated=max(len(waiting), len(hang.culprits), len(unseen)) > limit),
    }


def _culprit(c: Culprit) -> dict[str, Any]:
    return {"rank": c.rank, "reason": c.reason, "group": c.group, "seq": c.seq, "op": c.op, "proof": c.proof}


def _waiting(view: JobView, rank: int, p: Pending) -> dict[str, Any]:
    return {
        "rank": rank,
        "group": view.derived.timeline.trace.groups[p.group] if p.group >= 0 else None,
        "seq": p.seq,
        "op": p.op,
        "peer": p.peer if p.peer >= 0 else None,
        "step": p.step,
        "waits_for": list(p.absent[:_WAITED_FOR]),
        "since_ns": p.since_ns,
    }
