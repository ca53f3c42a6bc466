"""After a start: derives the latest jobs once without being asked, so that the list of jobs says how they are.

Derived answers live in memory and are gone with the process; a job is derived when somebody asks about it or its events change.
Until then the list would know neither steps nor findings of it. So the jobs that were active last are derived one after the
other, in a thread of its own, as far as `catch_up_events` over all of them and the room for derived jobs go.
"""

from __future__ import annotations

import logging
import threading

from crossrank.limits import Limits
from crossrank.query.deriver import Deriver
from crossrank.store.facts import JobEntry
from crossrank.store.store import Store

log = logging.getLogger(__name__)


def latest_within(entries: list[JobEntry], limits: Limits) -> list[str]:
    """The jobs that were active last, latest first: no more than there is room for, nor than so many events together."""
    chosen: list[str] = []
    left = limits.catch_up_events
    for entry in sorted(entries, key=lambda e: (-e.last_received_ns, e.job)):
        if entry.events <= left and len(chosen) < limits.derived_jobs:
            left -= entry.events
            chosen.append(entry.job)
    return chosen


class CatchUp:
    """The thread and how to end it."""

    def __init__(self, store: Store, deriver: Deriver, limits: Limits) -> None:
        self._store, self._deriver, self._limits = store, deriver, limits
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="catch-up", daemon=True)

    def start(self) -> None:
        """Begins with the latest job."""
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Ends after the job in hand, waiting for it no longer than that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _run(self) -> None:
        for job in latest_within(self._store.jobs(), self._limits):
            if self._stopping.is_set():
                return
            try:
                if self._deriver.known(job) is None:
                    self._deriver.latest(job)
            except Exception:
                if not self._stopping.is_set():  # deleted meanwhile, or a fault that asking about the job will tell
                    log.info("job %r was not derived after the start", job, exc_info=True)
