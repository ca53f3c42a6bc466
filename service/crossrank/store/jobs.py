"""What the store knows of each job while it runs, and how a logged record changes it.

`Jobs.apply` is the one place where events enter; it is called in log order by the commit thread, and by the replay at start, so
both give the same state. Everything here is rebuilt from the catalog and the log.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from crossrank.errors import NotFound
from crossrank.model.arrays import Int8Array, Int32Array
from crossrank.model.post import Post, Receipt, Rejection
from crossrank.store.content import identity_keys, marks, one_chunk, raw_values
from crossrank.store.facts import EXPIRED, Frozen, JobEntry, JobFacts, Part, Tally
from crossrank.store.identity import AMENDING, CONFLICTING, DUPLICATE
from crossrank.store.identity_runs import IdentityRuns
from crossrank.store.memtable import Memtable
from crossrank.store.merge import AMENDS, CONFLICT, column_values, replaced
from crossrank.store.remembered import Remembered
from crossrank.store.snapshot import Hold, Pins, Snapshot
from crossrank.store.source import SegmentFile

_REJECT_ROWS_MAX: Final = 4096  # distinct (rank, reason) counted per job; further ranks are counted together under no rank
_ATTEMPTS_MAX: Final = 4096  # listed; events of further ones are kept all the same


@dataclass(slots=True)
class Job:
    """A job's state in memory."""

    facts: JobFacts
    segments: tuple[SegmentFile, ...] = ()
    sealing: Memtable | None = None  # rows on their way into a segment
    memtable: Memtable = field(default_factory=Memtable)
    rejects: Counter[tuple[int | None, str]] = field(default_factory=Counter)
    changed: bool = False  # since the last freeze

    def current_facts(self) -> JobFacts:
        """The facts with the running counts of rejects."""
        counted = sorted(self.rejects.items(), key=lambda item: (item[0][0] is None, item[0][0] or 0, item[0][1]))
        return replace(self.facts, rejects=tuple((rank, reason, n) for (rank, reason), n in counted))


class Jobs:
    """All jobs. `lock` guards every field; it is held for short times only."""

    def __init__(
        self, *, pins: Pins, runs: IdentityRuns, identity_groups: int, jobs_max: int, monotonic_ns: Callable[[], int]
    ) -> None:
        """pins: keep files that are read. runs: of the segments. identity_groups, jobs_max: bounds on memory."""
        self._pins = pins
        self.lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._salt = runs.salt
        self._jobs_max = jobs_max
        self._remembered = Remembered(runs, groups_max=identity_groups, segments=self._segments_of, hold=self._hold_if_unchanged)
        self._versions = itertools.count(1)
        self._monotonic_ns = monotonic_ns
        self.memtable_bytes = 0
        self.memtable_rows = 0
        self.unsealed_since_ns: int | None = None  # monotonic time of the oldest change that no seal has taken up

    def load(self, facts: Iterable[JobFacts], segments: Iterable[SegmentFile]) -> None:
        """Takes in what the catalog knows, at start."""
        for f in facts:
            rejects = Counter({(rank, reason): n for rank, reason, n in f.rejects})
            self._jobs[f.job] = Job(f, rejects=rejects)
        for segment in sorted(segments, key=lambda s: (s.info.covers_from, s.info.path)):
            job = self._jobs.setdefault(segment.info.job, Job(JobFacts(segment.info.job)))
            job.segments += (segment,)
        self._versions = itertools.count(1 + max((j.facts.version for j in self._jobs.values()), default=0))

    def split(self, events: pa.Table) -> list[Part]:
        """The rows of each job, in order of first appearance; pure, for the caller's thread."""
        if not len(events):
            return []
        coded = one_chunk(events.column("job"))
        codes = raw_values(coded.indices)
        order = [int(codes[0])]
        if len(coded.dictionary) > 1:
            used, first = np.unique(codes, return_index=True)
            order = used[np.argsort(first)].tolist()
        parts = []
        for code in order:
            rows = events if len(order) == 1 else events.filter(pa.array(codes == code))
            attempts = _distinct(raw_values(one_chunk(rows.column("attempt"))))
            size = rows.get_total_buffer_size() / len(rows)
            parts.append(Part(coded.dictionary[code].as_py(), rows, identity_keys(rows, self._salt), marks(rows), attempts, size))
        return parts

    def is_room_for(self, names: Iterable[str]) -> bool:
        """Whether these jobs exist or may still be made."""
        with self.lock:
            return len(self._jobs) + len(set(names) - self._jobs.keys()) <= self._jobs_max

    def apply(self, parts: Sequence[Part], rejections: Sequence[Rejection], post: Post) -> Receipt:
        """Enters a logged request. Only for the thread that owns the log order."""
        total = Counter[str]()
        for part in parts:
            job = self._job(part.job)
            relation = self._remembered.classify(part)
            rows, row_marks, amends = _flagged(part, relation)
            conflicts = int(np.count_nonzero(relation == CONFLICTING))
            counts = {"accepted": len(rows), "duplicate": len(relation) - len(rows), "conflict": conflicts}
            total.update(counts)
            with self.lock:
                if len(rows):
                    self.memtable_bytes += job.memtable.add(rows, row_marks, amends, part.row_bytes)
                    self.memtable_rows += len(rows)
                self._note(job, counts, part.attempts, post.received_ns)
        self._reject(rejections, post)
        self._note_record()
        self._mark_forgotten()
        return Receipt(total["accepted"], total["duplicate"], total["conflict"])

    def _note(self, job: Job, counts: dict[str, int], attempts: tuple[int, ...], received_ns: int) -> None:
        f = job.facts
        tally = Tally(*(getattr(f.tally, name) + n for name, n in counts.items()))
        known = tuple(sorted({*f.attempts, *attempts}))[-_ATTEMPTS_MAX:]
        version = next(self._versions) if counts["accepted"] else f.version
        last = max(f.last_received_ns, received_ns)
        job.facts = replace(f, version=version, tally=tally, attempts=known, last_received_ns=last)
        self._touch(job)

    def _touch(self, job: Job) -> None:
        job.changed = True
        self._note_record()

    def _note_record(self) -> None:
        """The log holds a record that no seal has taken up, even if it changed no job."""
        if self.unsealed_since_ns is None:
            self.unsealed_since_ns = self._monotonic_ns()

    def _reject(self, rejections: Sequence[Rejection], post: Post) -> None:
        for r in rejections:
            name = r.job if r.job is not None else post.job
            if name is None:
                continue  # counted in /metrics only: nobody knows whose it was
            job = self._job(name)
            with self.lock:
                key = (r.rank, r.reason)
                if key not in job.rejects and len(job.rejects) >= _REJECT_ROWS_MAX:
                    key = (None, r.reason)
                job.rejects[key] += 1
                job.facts = replace(job.facts, last_received_ns=max(job.facts.last_received_ns, post.received_ns))
                self._touch(job)

    def set_topology(self, name: str, topology: str, received_ns: int) -> None:
        """Enters a logged topology (JSON)."""
        job = self._job(name)
        with self.lock:
            last = max(job.facts.last_received_ns, received_ns)
            job.facts = replace(job.facts, topology=topology, last_received_ns=last, version=next(self._versions))
            self._touch(job)

    def remove(self, name: str) -> tuple[SegmentFile, ...]:
        """Enters a logged deletion; returns the segments the job had."""
        self._remembered.drop(name)
        self._note_record()
        with self.lock:
            job = self._jobs.pop(name, None)
            if job is None:
                return ()
            self.memtable_bytes -= job.memtable.size_bytes + (job.sealing.size_bytes if job.sealing else 0)
            self.memtable_rows -= job.memtable.rows + (job.sealing.rows if job.sealing else 0)
            return job.segments

    def remove_idle(self, name: str, before_ns: int) -> tuple[SegmentFile, ...] | None:
        """Enters a logged expiry: removes the job as `remove` does, unless something of it was received since; then None."""
        with self.lock:
            job = self._jobs.get(name)
            if job is None or job.facts.last_received_ns >= before_ns:
                return None
        return self.remove(name)

    def _job(self, name: str) -> Job:
        with self.lock:
            job = self._jobs.get(name)
            if job is None:
                job = self._jobs[name] = Job(JobFacts(name))
            return job

    def _get(self, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None:
            raise NotFound(f"there is no job {name!r}", job=name)
        return job

    def snapshot(self, name: str) -> Snapshot:
        """The job's events as of now. Raises NotFound."""
        with self.lock:
            job = self._get(name)
            memory = [m.view() for m in (job.sealing, job.memtable) if m is not None]
            facts = job.current_facts()
            snapshot = Snapshot(name, facts.version, job.segments, memory, merge_all=facts.forgot, attempts=facts.attempts)
            self._pins.pin(snapshot, tuple(s.path for s in job.segments))
        return snapshot

    def facts(self, name: str) -> JobFacts:
        """The job's facts as of now. Raises NotFound."""
        with self.lock:
            return self._get(name).current_facts()

    def entries(self) -> list[JobEntry]:
        """All jobs, by name."""
        with self.lock:
            facts = [j.facts for _, j in sorted(self._jobs.items())]
        return [JobEntry(f.job, f.attempts, f.version, f.tally.accepted, f.last_received_ns) for f in facts]

    def freeze(self, wal_floor: int) -> Frozen:
        """Moves every memtable aside to be sealed; only for the thread that owns the log order, at a file boundary."""
        self._remembered.rotate()
        with self.lock:
            self.unsealed_since_ns = None
            changed = {name: job for name, job in self._jobs.items() if job.changed}
            memtables = {}
            for name, job in changed.items():
                job.changed = False
                if job.memtable.rows:
                    assert job.sealing is None, name
                    job.sealing, job.memtable = job.memtable, Memtable()
                    memtables[name] = job.sealing
            return Frozen(wal_floor, memtables, {name: job.current_facts() for name, job in changed.items()})

    def publish(self, frozen: Frozen, segments: Iterable[SegmentFile]) -> None:
        """Swaps the frozen rows for their segments, in one moment for every reader."""
        with self.lock:
            for segment in segments:
                job = self._jobs[segment.info.job]
                job.segments += (segment,)
            for name, memtable in frozen.memtables.items():
                self._jobs[name].sealing = None
                self.memtable_bytes -= memtable.size_bytes
                self.memtable_rows -= memtable.rows

    def segments(self) -> list[SegmentFile]:
        """The segments of all jobs."""
        with self.lock:
            return [s for job in self._jobs.values() for s in job.segments]

    def segments_by_job(self) -> dict[str, tuple[SegmentFile, ...]]:
        """The segments of each job, by name; in the order in which their rows were received."""
        with self.lock:
            return {name: job.segments for name, job in sorted(self._jobs.items())}

    def hold(self, segments: Sequence[SegmentFile]) -> Hold:
        """Keeps the files on disk as long as the result lives."""
        held = Hold()
        self._pins.pin(held, tuple(s.path for s in segments))
        return held

    def place_of(self, name: str, run: Sequence[SegmentFile]) -> int | None:
        """Where these neighbouring segments stand among those of the job; None when they do not any more."""
        with self.lock:
            job = self._jobs.get(name)
            return None if job is None else _place_of(job.segments, run)

    def exchange(self, name: str, run: Sequence[SegmentFile], new: SegmentFile | None, *, expired: int = 0) -> None:
        """Swaps neighbouring segments for the one made of them, or for none, in one moment for every reader.

        expired: rows that are no longer there. They are counted among the rejects, so that answers say what is missing.
        """
        with self.lock:
            job = self._jobs[name]
            at = _place_of(job.segments, run)
            assert at is not None, name
            job.segments = job.segments[:at] + (() if new is None else (new,)) + job.segments[at + len(run) :]
            if expired:
                job.rejects[None, EXPIRED] += expired
                job.facts = replace(job.facts, version=next(self._versions))

    @property
    def identities(self) -> int:
        """Marks held in memory."""
        return len(self._remembered)

    def _segments_of(self, name: str) -> tuple[SegmentFile, ...]:
        with self.lock:
            return self._jobs[name].segments

    def _hold_if_unchanged(self, name: str, segments: tuple[SegmentFile, ...]) -> Hold | None:
        with self.lock:
            return self.hold(segments) if self._jobs[name].segments is segments else None

    def _mark_forgotten(self) -> None:
        for name in self._remembered.take_forgotten():
            job = self._job(name)
            with self.lock:
                job.facts = replace(job.facts, forgot=True)
                self._touch(job)


def _place_of(segments: Sequence[SegmentFile], run: Sequence[SegmentFile]) -> int | None:
    for at in range(len(segments) - len(run) + 1):
        if all(a is b for a, b in zip(segments[at : at + len(run)], run, strict=True)):
            return at
    return None


def _distinct(numbers: Int32Array) -> tuple[int, ...]:
    """The numbers that occur, ascending; mostly it is one."""
    least = int(numbers.min())
    return (least,) if least == int(numbers.max()) else tuple(np.unique(numbers).tolist())


def _flagged(part: Part, relation: Int8Array) -> tuple[pa.Table, Int32Array, int]:
    """The rows to store with their flags and marks, and how many of them amend an earlier one."""
    keep = relation != DUPLICATE
    rows, row_marks, kept = part.events, part.marks, relation
    if not keep.all():
        rows, row_marks, kept = rows.filter(pa.array(keep)), row_marks[keep], relation[keep]
    amending = (kept == AMENDING) | (kept == CONFLICTING)
    if amending.any():
        added = np.where(amending, AMENDS, 0) | np.where(kept == CONFLICTING, CONFLICT, 0)
        rows = replaced(rows, "flags", pa.array((column_values(rows, "flags") | added).astype(np.int32)))
    return rows, row_marks, int(np.count_nonzero(amending))
