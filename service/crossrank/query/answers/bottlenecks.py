"""What costs time, most expensive first: findings of every class, and the ranks that are late by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.findings import Finding, Straggler
from crossrank.query.answers.hangs import hang_findings
from crossrank.query.graphs import graph_of
from crossrank.query.jobview import JobView, carried


def stragglers(view: JobView, *, first: int | None, last: int | None) -> dict[str, Any]:
    """GET /v1/jobs/{job}/stragglers: sorted by cost; only what is beyond noise and clock bounds."""
    job = view.snapshot.job
    return {"stragglers": [_straggler(job, s) for s in _stragglers(view, first, last)], **carried(view)}


def bottlenecks(view: JobView, *, first: int | None, last: int | None) -> dict[str, Any]:
    """GET /v1/jobs/{job}/bottlenecks: ranked findings of any class."""
    found: Sequence[Finding] = view.derived.findings
    if first is not None or last is not None:
        derived = view.derived
        chosen = _stragglers(view, first, last)
        found = find_bottlenecks(
            derived.timeline, derived.topology, derived.steps, chosen, first=first, last=last, graph=graph_of(derived.timeline),
            mismatches=derived.mismatches,
        )  # fmt: skip
    return {"findings": [finding_answer(view.snapshot.job, f) for f in (*hang_findings(view), *found)], **carried(view)}


def _stragglers(view: JobView, first: int | None, last: int | None) -> tuple[Straggler, ...]:
    if first is None and last is None:
        return view.derived.stragglers
    derived = view.derived
    graph = graph_of(derived.timeline)
    return find_stragglers(derived.timeline, derived.topology, derived.steps, first=first, last=last, graph=graph)


def _straggler(job: str, s: Straggler) -> dict[str, Any]:
    return {
        "rank": s.rank,
        "host": s.host,
        "cost_ns": s.cost_ns,
        "cost_error_ns": s.cost_error_ns,
        "cost_per_step_ns": s.cost_per_step_ns,
        "steps": list(s.steps),
        "cause": {"kind": s.cause.kind, "name": s.cause.name},
        "confidence": s.confidence,
        "evidence": _evidence(job, [s.rank], s.steps),
    }


def finding_answer(job: str, f: Finding) -> dict[str, Any]:
    """One finding as the API shows it."""
    return {
        "class": f.class_,
        "ranks": list(f.ranks),
        "group": f.group,
        "steps": list(f.steps),
        "cost_ns": f.cost_ns,
        "cost_error_ns": f.cost_error_ns,
        "share": f.share,
        "confidence": f.confidence,
        "sentence": f.sentence,
        "evidence": _evidence(job, f.ranks, f.steps),
    }


def _evidence(job: str, ranks: Sequence[int], steps: Sequence[int]) -> list[str]:
    """Links that show the finding: the critical path of its first step, and the events of the rank in it."""
    base = f"/v1/jobs/{quote(job, safe='')}"
    links = [f"{base}/steps/{steps[0]}/critical-path"] if steps else []
    links += [f"{base}/events?rank={rank}" + (f"&step={steps[0]}" if steps else "") for rank in list(ranks)[:1]]
    return links
