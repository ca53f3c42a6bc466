"""Which jobs are there, how they are doing, and what matters most in each.

The list derives nothing: fields of a job that has not been derived since the service started are null. The latest jobs are derived in
the background after a start, as far as the bounds of that go; the others once they are asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from crossrank.query.answers.bottlenecks import finding_answer
from crossrank.query.answers.hangs import hang_finding_of, hang_of
from crossrank.query.jobview import JobView
from crossrank.store.facts import JobEntry
from crossrank.store.store import Store

State = Literal["live", "hung", "ended"]
LIVE_NS: Final = 30_000_000_000  # a job from which nothing has come for longer counts as ended
SPARK_VALUES: Final = 60


def jobs(store: Store, known: Callable[[str], JobView | None], now_ns: int) -> dict[str, Any]:
    """GET /v1/jobs: newest activity first. known: a job as last derived, None where it is not."""
    entries = sorted(store.jobs(), key=lambda e: (-e.last_received_ns, e.job))
    return {"jobs": [job_card(e, store.tallies(e.job), known(e.job), now_ns) for e in entries]}


def job_card(entry: JobEntry, tallies: dict[str, int], view: JobView | None, now_ns: int) -> dict[str, Any]:
    """One job of the list."""
    card = {
        "job": entry.job,
        "attempts": list(entry.attempts),
        "last_received_ns": entry.last_received_ns,
        **tallies,
        "state": "live" if now_ns - entry.last_received_ns < LIVE_NS else "ended",
        "version": None,
        "ranks_seen": None,
        "ranks_missing": None,
        "steps": None,
        "last_step": None,
        "spark_ns": None,
        "top_finding": None,
    }
    return card if view is None else {**card, **_derived_card(view, str(card["state"]))}


def _derived_card(view: JobView, state: str) -> dict[str, Any]:
    derived, table = view.derived, view.derived.steps
    hang = hang_of(view)
    found = (*hang_finding_of(view, hang), *derived.findings)
    return {
        "state": "hung" if hang.hung else state,
        "version": derived.version,
        "ranks_seen": len(derived.topology.seen),
        "ranks_missing": derived.topology.missing_count,
        "steps": len(table),
        "last_step": int(table.step[-1]) if len(table) else None,
        "spark_ns": spark_ns(view),
        "top_finding": finding_answer(view.snapshot.job, found[0]) if found else None,
    }


def spark_ns(view: JobView) -> list[int]:
    """Durations of the finished steps as at most SPARK_VALUES numbers, each the longest of its stretch."""
    table = view.derived.steps
    took = (table.end_ns - table.start_ns)[table.closed]
    if len(took) <= SPARK_VALUES:
        return [int(ns) for ns in took.tolist()]
    edges = np.arange(SPARK_VALUES) * len(took) // SPARK_VALUES
    return [int(ns) for ns in np.maximum.reduceat(took, edges).tolist()]
