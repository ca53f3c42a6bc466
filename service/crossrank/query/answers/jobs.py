"""Which jobs are there."""

from __future__ import annotations

from typing import Any

from crossrank.store.store import Store


def jobs(store: Store) -> dict[str, Any]:
    """GET /v1/jobs: newest activity first."""
    entries = sorted(store.jobs(), key=lambda e: (-e.last_received_ns, e.job))
    return {
        "jobs": [
            {"job": e.job, "attempts": list(e.attempts), "last_received_ns": e.last_received_ns, **store.tallies(e.job)}
            for e in entries
        ]
    }
