"""Sealing: memtables become Parquet segments at the store's own pace, never inside a request.

Steps, each safe to crash behind:

    1 freeze     the commit thread begins a new log file and moves all memtables aside
    2 write      one file per job: temporary name, fsync, rename, fsync of the folder      crash: an unregistered file, deleted at start
    3 hand over  one catalog transaction registers the files and raises the log floor      crash: nothing lost, the log was kept
    4 publish    readers see the segments instead of the frozen rows, in one moment
    5 drop       log files below the floor are deleted                                     crash: deleted at start

When a step fails (a full disk), the frozen rows stay readable and the same seal is tried again later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from crossrank.counters import Counters
from crossrank.errors import StoreUnavailable
from crossrank.store.condense import condense
from crossrank.store.content import identity_keys
from crossrank.store.facts import Frozen, JobFacts
from crossrank.store.identity_runs import IdentityRuns
from crossrank.store.jobs import Jobs
from crossrank.store.lake import Lake
from crossrank.store.memtable import Memtable
from crossrank.store.segment import SegmentInfo, write_segment
from crossrank.store.snapshot import Pins
from crossrank.store.source import SegmentFile
from crossrank.store.wal import Wal


class Sealer:
    """Seals a store. `lock` is held during a seal; whoever changes segments or the catalog otherwise takes it too."""

    def __init__(
        self, jobs: Jobs, lake: Lake, wal: Wal, pins: Pins, runs: IdentityRuns, counters: Counters, *, next_segment: int
    ) -> None:
        """next_segment: the first number that no segment was ever given."""
        self.lock = threading.RLock()
        self._jobs, self._lake, self._wal, self._pins, self._counters = jobs, lake, wal, pins, counters
        self._runs = runs
        self._next_segment = next_segment
        self._pending: Frozen | None = None
        self._written: dict[str, SegmentInfo] = {}  # of the pending seal
        self._removed: set[str] = set()  # deleted jobs that the catalog may still list

    @property
    def is_pending(self) -> bool:
        """Whether an earlier seal has not been finished, or a deleted job is still in the catalog."""
        return self._pending is not None or bool(self._removed)

    def seal(self, freeze: Callable[[], None]) -> None:
        """Seals what `freeze` hands to `take_up`, after what an earlier, failed seal left over.

        Raises StoreUnavailable when a step fails; nothing is lost, and the next seal goes on from there.
        """
        with self.lock:
            self._finish()
            freeze()
            self._finish()

    def take_up(self, frozen: Frozen) -> None:
        """Takes what was frozen, in the same breath: frozen rows that nobody holds would never be sealed."""
        assert self._pending is None, self._pending
        self._pending = frozen

    def remove(self, job: str, segments: Sequence[SegmentFile]) -> None:
        """Takes a deleted job out of the catalog and its files off the disk, as soon as no snapshot uses them.

        Raises StoreUnavailable when the catalog cannot be written; the next seal then takes it out. The caller holds `lock`.
        """
        files = [s.path for s in segments]
        if self._pending is not None:
            self._pending.memtables.pop(job, None)
            self._pending.facts.pop(job, None)
            written = self._written.pop(job, None)
            files += [] if written is None else [self._lake.folder / written.path]
        self._removed.add(job)
        self._lake.remove(self._removed)
        self._removed.clear()
        self._pins.doom(files)
        self._runs.drop([s.info for s in segments])

    def _finish(self) -> None:
        frozen = self._pending
        if frozen is None:
            return
        try:
            for job, memtable in sorted(frozen.memtables.items()):
                if job not in self._written:
                    self._written[job] = self._write(frozen.facts[job], memtable)
        except OSError as fault:
            raise StoreUnavailable(f"a segment cannot be written: {fault}") from fault
        segments = [info for _, info in sorted(self._written.items())]
        facts = [f for _, f in sorted(frozen.facts.items())]
        if self._removed:
            self._lake.remove(self._removed)
            self._removed.clear()
        self._lake.hand_over(segments, facts, wal_floor=frozen.wal_floor, next_segment=self._next_segment)
        self._jobs.publish(frozen, [segment_file(self._lake.folder, info, self._counters) for info in segments])
        self._pending, self._written = None, {}
        self._counters.add("segments_sealed", len(segments))
        with contextlib.suppress(OSError):  # the next seal or start deletes them; they no longer count
            self._wal.drop_below(frozen.wal_floor)

    def _write(self, facts: JobFacts, memtable: Memtable) -> SegmentInfo:
        rows = condense(memtable.packed_table(), memtable.marks())
        info = write_segment(self._lake.folder, self.new_number(), rows, facts)
        self._runs.add(info, identity_keys(rows, self._runs.salt))
        return info

    def new_number(self) -> int:
        """A number for a segment, given once."""
        with self.lock:
            number, self._next_segment = self._next_segment, self._next_segment + 1
            return number

    @property
    def next_segment(self) -> int:
        """The first number that no segment was ever given."""
        return self._next_segment


def segment_file(lake: Path, info: SegmentInfo, counters: Counters) -> SegmentFile:
    """The source of a segment, which counts itself when it is found damaged."""
    return SegmentFile(lake, info, lambda _: counters.add("segments_damaged"))
