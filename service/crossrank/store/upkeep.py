"""Upkeep of what is sealed: compaction and expiry, at the store's own pace and beside everything else.

Each is one swap of neighbouring segments for another one, or for none. Steps, each safe to crash behind:

    1 write      the new file, if any, durable under a number of its own       crash: an unregistered file, deleted at start
    2 swap       one catalog transaction exchanges the segments                crash: the old files are unregistered now, deleted at start
    3 exchange   readers see the new segment instead of the old, in one moment
    4 remove     the old files, as soon as no snapshot uses them               crash: deleted at start

The store's seal lock is held for 2 and 3 only. A swap that failed is tried again before anything else: nobody knows yet whether
its transaction went through, so its new file must neither be used nor removed before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossrank.counters import Counters
from crossrank.errors import NotFound, StoreUnavailable
from crossrank.limits import Limits
from crossrank.store.compact import run_to_compact, write_compacted
from crossrank.store.identity_runs import IdentityRuns
from crossrank.store.jobs import Jobs
from crossrank.store.lake import Lake
from crossrank.store.retain import run_to_expire
from crossrank.store.seal import Sealer, segment_file
from crossrank.store.segment import SegmentInfo
from crossrank.store.snapshot import Pins
from crossrank.store.source import DamagedSegment, SegmentFile


@dataclass(frozen=True, slots=True)
class _Swap:
    """Neighbouring segments of a job and what comes in their place."""

    job: str
    old: tuple[SegmentFile, ...]
    new: SegmentInfo | None

    @property
    def expired(self) -> int:
        return 0 if self.new is not None else sum(s.info.rows for s in self.old)


class Upkeep:
    """Compacts and expires the segments of a store. Its methods are for one thread at a time."""

    def __init__(
        self, jobs: Jobs, lake: Lake, sealer: Sealer, pins: Pins, runs: IdentityRuns, counters: Counters, limits: Limits
    ) -> None:
        self._jobs, self._lake, self._sealer, self._pins = jobs, lake, sealer, pins
        self._runs, self._counters, self._limits = runs, counters, limits
        self._pending: _Swap | None = None

    def expire(self, now_ns: int) -> None:
        """Removes the segments that need not be kept at `now_ns` (see `retain`). Raises StoreUnavailable."""
        self._finish()
        age_ns, bytes_max = self._limits.retain_ns, self._limits.retain_job_bytes
        if age_ns is None and bytes_max is None:
            return
        for job, segments in self._jobs.segments_by_job().items():
            run = run_to_expire(segments, now_ns=now_ns, age_ns=age_ns, bytes_max=bytes_max)
            if run:
                self._take_up(_Swap(job, run, None))

    def idle_jobs(self, now_ns: int) -> list[str]:
        """Jobs of which nothing is left to keep: no segment, and nothing received for as long as events are kept."""
        if self._limits.retain_ns is None:
            return []
        before_ns, segments = now_ns - self._limits.retain_ns, self._jobs.segments_by_job()
        return [e.job for e in self._jobs.entries() if e.last_received_ns < before_ns and not segments.get(e.job)]

    def compact(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Makes larger segments of small ones until nothing is left to do. Raises StoreUnavailable."""
        self._finish()
        for job in self._jobs.segments_by_job():
            while go_on() and self._compact_once(job):
                pass

    def _compact_once(self, job: str) -> bool:
        segments = self._jobs.segments_by_job().get(job, ())
        run = run_to_compact(segments, fewest=self._limits.compact_segments, rows_max=self._limits.compact_rows)
        if not run:
            return False
        held = self._jobs.hold(run)
        try:
            if self._jobs.place_of(job, run) is None:
                return False
            facts = self._jobs.facts(job)
            new = write_compacted(
                self._lake.folder, run, facts, self._runs, merged=not facts.forgot, number=self._sealer.new_number
            )
        except NotFound:
            return False
        except DamagedSegment:
            return True  # it has a fault now and will not be chosen again
        except OSError as fault:
            raise StoreUnavailable(f"a compacted segment cannot be written: {fault}") from fault
        finally:
            del held
        self._take_up(_Swap(job, run, new))
        return True

    def merge_runs(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Merges identity runs of segments that are too large to be compacted."""
        for segments in self._jobs.segments_by_job().values():
            if len(segments) > 1:
                held = self._jobs.hold(segments)
                self._runs.merge(segments, rows_min=self._limits.compact_rows // 2, go_on=go_on)
                del held

    def _take_up(self, swap: _Swap) -> None:
        self._pending = swap
        self._finish()

    def _finish(self) -> None:
        swap = self._pending
        if swap is None:
            return
        new = None if swap.new is None else segment_file(self._lake.folder, swap.new, self._counters)
        with self._sealer.lock:
            if self._sealer.is_pending:  # it holds facts that a swap may change
                raise StoreUnavailable("an earlier seal has to be finished first")
            if self._jobs.place_of(swap.job, swap.old) is None:  # the job was deleted meanwhile, with all its segments
                self._pins.doom([] if new is None else [new.path])
                self._pending = None
                return
            infos = [s.info for s in swap.old]
            self._lake.swap(infos, swap.new, expired=swap.expired, next_segment=self._sealer.next_segment)
            self._jobs.exchange(swap.job, swap.old, new, expired=swap.expired)
            self._pending = None
        self._pins.doom([s.path for s in swap.old])
        self._runs.drop([s.info for s in swap.old])
        self._counters.add("events_expired" if swap.new is None else "segments_compacted", swap.expired or len(swap.old))
