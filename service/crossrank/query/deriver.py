"""The background pass: keeps each job's derived answers fresh, in one thread, never in a request that posts.

A post wakes the thread. A job is derived again once its events changed and three times as long has passed as its last derivation
took (so that a large job never takes more than a quarter of a core from those who post), but no later than that. A job with many
events that nobody has asked about for some minutes is left alone, as it would take most of the memory; the next question about
it waits for its derivation. The answers of a job stay until better ones replace them in one assignment; a fault of ours in one job
leaves its previous answers and the service alive.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from crossrank.counters import Counters
from crossrank.errors import NotFound
from crossrank.limits import Limits
from crossrank.query.derive import Derived, derive
from crossrank.store.filter import EventFilter
from crossrank.store.snapshot import Snapshot
from crossrank.store.store import Store

log = logging.getLogger(__name__)
POLL_S = 0.5  # a wake-up that got lost costs at most this
PAUSE = 3  # between two derivations of a job, in times of what the last one took
ASKED_NS = 600_000_000_000  # how long a question keeps the answers of a large job fresh


class Deriver:
    """Derived answers by (job, attempt), newest derivation of each, for the most recently used jobs."""

    def __init__(self, store: Store, limits: Limits, counters: Counters, monotonic_ns: Callable[[], int]) -> None:
        self._store, self._limits, self._counters, self._monotonic_ns = store, limits, counters, monotonic_ns
        self._derived: OrderedDict[tuple[str, int], Derived] = OrderedDict()
        self._cost_ns: dict[tuple[str, int], tuple[int, int]] = {}  # finished at, took
        self._failed: dict[tuple[str, int], int] = {}  # version whose derivation failed: not tried again until events change
        self._at_start = {entry.job: entry.version for entry in store.jobs()}  # old jobs are derived when asked for
        self._asked_ns: dict[str, int] = {}  # when somebody last asked about a job
        self._state = threading.Lock()
        self._work: dict[tuple[str, int], threading.Lock] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="derive", daemon=True)

    def start(self) -> None:
        """Starts the background thread."""
        self._thread.start()

    def stop(self, patience_s: float | None = None) -> None:
        """Stops after the derivation in hand, waiting for it no longer than that: it is rebuilt at the next start."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def wake(self) -> None:
        """Tells the thread that events have come."""
        self._wake.set()

    def latest(self, job: str, attempt: int | None = None) -> tuple[Snapshot, Derived]:
        """The job's snapshot and newest derivation; derives now if there is none yet. Raises NotFound."""
        snapshot = self._store.snapshot(job)
        which = _latest_attempt(snapshot) if attempt is None else attempt
        with self._state:
            derived = self._derived.get((job, which))
            if derived is not None:
                self._derived.move_to_end((job, which))
                if derived.version < snapshot.version and self._is_left_alone(job, self._store.tallies(job)["accepted"]):
                    derived = None
        self._note_asked(job)
        return snapshot, derived or self._derive(snapshot, which)

    def known(self, job: str) -> Derived | None:
        """The newest derivation there is, of the latest attempt; None without one. Costs nothing."""
        self._note_asked(job)
        with self._state:
            held = [key for key in self._derived if key[0] == job]
            return self._derived[max(held)] if held else None

    def current(self, job: str, attempt: int | None = None) -> tuple[Snapshot, Derived]:
        """Like `latest`, but everything acknowledged before the call is in it."""
        snapshot = self._store.snapshot(job)
        self._note_asked(job)
        return snapshot, self._derive(snapshot, _latest_attempt(snapshot) if attempt is None else attempt)

    def _is_left_alone(self, job: str, events: int) -> bool:
        asked_ns = self._asked_ns.get(job)
        is_asked = asked_ns is not None and self._monotonic_ns() - asked_ns < ASKED_NS
        return events > self._limits.derive_unasked_events and not is_asked

    def _note_asked(self, job: str) -> None:
        now_ns = self._monotonic_ns()
        with self._state:
            self._asked_ns[job] = now_ns
            if len(self._asked_ns) > self._limits.jobs:
                self._asked_ns = {j: at_ns for j, at_ns in self._asked_ns.items() if now_ns - at_ns < ASKED_NS}

    def forget(self, job: str) -> None:
        """Drops the answers of a deleted job."""
        with self._state:
            self._asked_ns.pop(job, None)
            for key in [k for k in self._derived if k[0] == job]:
                del self._derived[key]
                self._cost_ns.pop(key, None)

    def _derive(self, snapshot: Snapshot, attempt: int) -> Derived:
        key = (snapshot.job, attempt)
        with self._state:
            work = self._work.setdefault(key, threading.Lock())
        with work:  # one derivation of a job at a time; whoever waited takes the other's result if it is new enough
            with self._state:
                known = self._derived.get(key)
            if known is not None and known.version >= snapshot.version:
                return known
            if attempt not in (snapshot.attempts or (0,)):
                raise NotFound(f"job {snapshot.job!r} has no attempt {attempt}", field="attempt", attempts=list(snapshot.attempts))
            began = self._monotonic_ns()
            events, truncated = _newest(snapshot.events(where=EventFilter(attempt=attempt)), self._limits.derive_events)
            derived = derive(
                events,
                job=snapshot.job,
                attempt=attempt,
                version=snapshot.version,
                topology=self._store.topology(snapshot.job),
                truncated=truncated,
                previous=known,
                names_max=self._limits.names_per_job,
            )
            now = self._monotonic_ns()
            with self._state:
                self._derived[key] = derived
                self._cost_ns[key] = (now, now - began)
                while len(self._derived) > self._limits.derived_jobs:
                    self._derived.popitem(last=False)
            self._counters.add("derivations")
            self._counters.set("derive_seconds", (now - began) / 1e9)
            return derived

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(POLL_S)
            self._wake.clear()
            for entry in self._store.jobs():
                if self._stopping.is_set():
                    return
                if not self._is_left_alone(entry.job, entry.events):
                    self._refresh(entry.job)

    def _refresh(self, job: str) -> None:
        try:
            snapshot = self._store.snapshot(job)
        except NotFound:
            return  # deleted meanwhile
        key = (job, _latest_attempt(snapshot))
        with self._state:
            known, (finished, took) = self._derived.get(key), self._cost_ns.get(key, (0, 0))
        done = self._at_start.get(job) if known is None else known.version
        if snapshot.version in (done, self._failed.get(key)) or self._monotonic_ns() - finished < PAUSE * took:
            return
        try:
            self._derive(snapshot, key[1])
        except Exception:
            self._failed[key] = snapshot.version
            self._counters.add("derivations_failed")
            log.exception("derivation of job %r failed; its previous answers stay", job)


def _latest_attempt(snapshot: Snapshot) -> int:
    return max(snapshot.attempts, default=0)


def _newest(events: pa.Table, rows: int) -> tuple[pa.Table, bool]:
    """The `rows` events that start last, and whether some were left out."""
    if events.num_rows <= rows:
        return events, False
    order = pc.sort_indices(events, sort_keys=[("start_ns", "descending"), ("rank", "ascending"), ("span_id", "ascending")])
    return events.take(order[:rows]), True
