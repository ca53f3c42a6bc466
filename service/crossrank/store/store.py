"""The store: the only writer of the data folder. A thin front over the parts that do the work.

    <data>/lock            one process at a time                        lock
    <data>/wal/            requests as received, before the answer      wal, group_commit, replay
    <data>/lake/           sealed segments, one job each                condense, segment, source
    <data>/identities/     which identities segments hold; a cache      identity_runs
    <data>/catalog.duckdb  which segments count; a rebuildable cache    lake, migrate
    <data>/quarantine/     damaged files, for a person to look at

An event is safe when `append`'s future resolves: its request is in the log and synced. It is visible to snapshots from the same
moment. Everything else (sealing, deleting) happens behind and may fail and be retried without losing or doubling an event.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from crossrank.counters import Counters
from crossrank.errors import Overloaded, StoreUnavailable
from crossrank.limits import Limits
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.post import Admitted, Post, Receipt
from crossrank.store.facts import JobEntry
from crossrank.store.group_commit import GroupCommit
from crossrank.store.identity_runs import IdentityRuns
from crossrank.store.jobs import Jobs
from crossrank.store.lake import Contents, Lake
from crossrank.store.lock import FolderLock
from crossrank.store.replay import replay
from crossrank.store.scrub import move_away
from crossrank.store.seal import Sealer, segment_file
from crossrank.store.segment import SEGMENT_FOLDER
from crossrank.store.snapshot import Pins, Snapshot
from crossrank.store.source import SegmentFile
from crossrank.store.ticker import Ticker
from crossrank.store.upkeep import Upkeep
from crossrank.store.wal import Wal, sync_folder
from crossrank.timesource import monotonic_ns

_TOPOLOGY: Final = "@topology"  # routes of records that are not requests
_DELETE: Final = "@delete"
_EXPIRE: Final = "@expire"
_SEGMENT_NAME: Final = re.compile(r"\d{8}\.(parquet|tmp)")
Decode = Callable[[Post], Admitted]


class Store:
    """All events of all jobs in one data folder. Every method may be called from any thread."""

    def __init__(
        self, folder: Path, lock: FolderLock, *, decode: Decode, limits: Limits, counters: Counters, now_ns: Callable[[], int]
    ) -> None:
        """Use `Store.open`."""
        self._folder, self._lock, self._decode = folder, lock, decode
        self._limits, self._counters, self._now_ns = limits, counters, now_ns
        self._closed = False
        self._wal = Wal(folder)
        is_new = not (folder / "catalog.duckdb").exists()
        if is_new and any((folder / "lake" / SEGMENT_FOLDER).glob("*.parquet")):
            raise StoreUnavailable(
                f"{folder} has segments but no catalog.duckdb. Put it back, or make a new one from the segments with"
                f" `crossrank rebuild --data {folder}`. Nothing was changed."
            )
        self._lake = Lake(folder, now_ns=now_ns())
        try:
            self._start()
        except BaseException:
            self._lake.close()
            raise

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        decode: Decode,
        limits: Limits,
        counters: Counters,
        now_ns: Callable[[], int],
    ) -> Store:
        """Opens or creates a data folder and reads back what is in its log.

        decode: turns a logged request into the same events as when it was received. now_ns: the service's wall clock.
        Raises StoreUnavailable when another process holds the folder or a newer release wrote it; nothing is changed then.
        """
        path = Path(folder)
        if not path.exists():
            path.mkdir(parents=True)
            sync_folder(path.parent)
        lock = FolderLock(path, started_ns=now_ns())
        try:
            return cls(path, lock, decode=decode, limits=limits, counters=counters, now_ns=now_ns)
        except BaseException:
            lock.release()
            raise

    def _start(self) -> None:
        limits, counters = self._limits, self._counters
        contents = self._lake.contents()
        self._remove_orphans(contents)
        self._lake.tidy()
        self._pins = Pins()
        self._runs = IdentityRuns(self._folder, contents.segments)
        self._jobs = Jobs(
            pins=self._pins,
            runs=self._runs,
            identity_groups=limits.identity_groups,
            jobs_max=limits.jobs,
            monotonic_ns=monotonic_ns,
        )
        self._jobs.load(contents.jobs, [segment_file(self._lake.folder, s, counters) for s in contents.segments])
        self._sealer = Sealer(
            self._jobs, self._lake, self._wal, self._pins, self._runs, counters, next_segment=contents.next_segment
        )
        self._upkeep = Upkeep(self._jobs, self._lake, self._sealer, self._pins, self._runs, counters, limits)
        self._upkeep_lock = threading.Lock()
        self._opened_ns = self._now_ns() - monotonic_ns()  # of a clock that started right and then does not jump
        replay(self._wal, counters, floor=contents.wal_floor, enter=self._replay_post, after_file=self._seal_replayed)
        with contextlib.suppress(StoreUnavailable):  # a full disk: reads work, and the first append tries again
            number = self._wal.start_file()
            if self._jobs.unsealed_since_ns is None:  # the older files hold no record
                self._wal.drop_below(number)
        self._commit = GroupCommit(
            self._wal, counters, queue_bytes=limits.inflight_bytes, wal_segment_bytes=limits.wal_segment_bytes
        )
        self._trigger = Ticker("crossrank-seal", self._seal_if_due, partial(counters.add, "seals_failed"))
        self._keeper = Ticker("crossrank-upkeep", self._keep_up, partial(counters.add, "upkeep_failed"))

    def _remove_orphans(self, contents: Contents) -> None:
        """Files of a seal or compaction that did not get to its swap, or of one that did: their rows are in the log or elsewhere.

        Where the log's first files are missing too, the catalog may be older than the rest (put back from a copy): then the files
        are set aside, not deleted.
        """
        known = {s.path for s in contents.segments}
        is_behind = min(self._wal.numbers(), default=0) > max(contents.wal_floor, 1)
        for path in sorted((self._lake.folder / SEGMENT_FOLDER).iterdir()):
            if not _SEGMENT_NAME.fullmatch(path.name) or f"{SEGMENT_FOLDER}/{path.name}" in known:
                continue
            if is_behind and path.suffix == ".parquet" and int(path.stem) >= contents.next_segment:
                move_away(path, self._folder / "quarantine")
            else:
                path.unlink()

    def _replay_post(self, post: Post) -> None:
        if post.route == _TOPOLOGY and post.job is not None:
            self._jobs.set_topology(post.job, post.body.decode(), post.received_ns)
        elif post.route == _EXPIRE and post.job is not None:
            with self._sealer.lock:
                self._take_out(post.job, self._jobs.remove_idle(post.job, int(post.body)))
        elif post.route == _DELETE and post.job is not None:
            with self._sealer.lock:
                self._sealer.remove(post.job, self._jobs.remove(post.job))
        else:
            admitted = self._decode(post)
            self._jobs.apply(self._jobs.split(admitted.events), admitted.rejections, post)

    def _seal_replayed(self, number: int) -> None:
        if self._jobs.memtable_bytes > self._limits.memtable_bytes:
            with contextlib.suppress(StoreUnavailable):  # tried again once the store runs
                self._sealer.seal(lambda: self._sealer.take_up(self._jobs.freeze(number + 1)))

    def append(self, post: Post, admitted: Admitted) -> Future[Receipt]:
        """Logs a request and enters its events; the future resolves when they are durable and visible.

        Raises Overloaded when a budget is used up and StoreUnavailable when the folder takes no writes, at once or through the
        future; in both cases nothing of the request is kept.
        """
        assert admitted.events.schema.equals(EVENT_SCHEMA), admitted.events.schema
        self._check_writable()
        self._check_budgets(len(post.body))
        parts = self._jobs.split(admitted.events)
        if not parts and not admitted.rejections:
            nothing: Future[Receipt] = Future()
            nothing.set_result(Receipt(0, 0, 0))
            return nothing
        names = {p.job for p in parts} | {r.job for r in admitted.rejections if r.job is not None}
        if not self._jobs.is_room_for(names):
            raise Overloaded(f"the data folder holds its {self._limits.jobs} jobs; delete some", budget="jobs")
        return self._commit.submit(post, lambda: self._enter(parts, admitted, post))

    def _enter(self, parts: list[Any], admitted: Admitted, post: Post) -> Receipt:
        receipt = self._jobs.apply(parts, admitted.rejections, post)
        for what, count in asdict(receipt).items():
            self._counters.add(f"events_{what}", count)
        self._show_sizes()
        return receipt

    def _show_sizes(self) -> None:
        self._counters.set("wal_bytes", self._wal.size_bytes)
        self._counters.set("memtable_rows", self._jobs.memtable_rows)

    def _check_writable(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._wal.check()
        free = os.statvfs(self._folder)
        if free.f_bavail * free.f_frsize < self._limits.disk_free_bytes:
            raise StoreUnavailable(f"less than {self._limits.disk_free_bytes} bytes are free on the disk of {self._folder}")

    def _check_budgets(self, size: int) -> None:
        if self._wal.size_bytes + size > self._limits.wal_bytes:
            raise Overloaded("the log is full of events that are not sealed yet", budget="wal")
        if self._jobs.memtable_bytes > 2 * self._limits.memtable_bytes:
            raise Overloaded("the memory for events that are not sealed yet is used up", budget="memtable")

    def jobs(self) -> list[JobEntry]:
        """All jobs, by name."""
        return self._jobs.entries()

    def version(self, job: str) -> int:
        """A number that grows with every change of the job's events or topology. Raises NotFound."""
        return self._jobs.facts(job).version

    def snapshot(self, job: str) -> Snapshot:
        """The job's events as of now; cheap. Raises NotFound."""
        return self._jobs.snapshot(job)

    def rejects(self, job: str) -> list[tuple[int | None, str, int]]:
        """(rank or None, reason, count) of events that were not admitted, by rank. Raises NotFound."""
        return list(self._jobs.facts(job).rejects)

    def tallies(self, job: str) -> dict[str, int]:
        """Counts `accepted`, `duplicate` and `conflict` over the job's life. Raises NotFound."""
        return asdict(self._jobs.facts(job).tally)

    def put_topology(self, job: str, topology: dict[str, Any]) -> None:
        """Stores a job's topology, durably, in place of the one before. Raises Overloaded or StoreUnavailable."""
        self._check_writable()
        body = msgspec.json.encode(topology, order="deterministic")
        self._check_budgets(len(body))
        if not self._jobs.is_room_for([job]):
            raise Overloaded(f"the data folder holds its {self._limits.jobs} jobs; delete some", budget="jobs")
        post = Post(_TOPOLOGY, "", "", job, self._now_ns(), body)
        self._commit.submit(post, lambda: self._jobs.set_topology(job, body.decode(), post.received_ns)).result()

    def topology(self, job: str) -> dict[str, Any] | None:
        """The topology put last, or None. Raises NotFound."""
        text = self._jobs.facts(job).topology
        return None if text is None else msgspec.json.decode(text, type=dict[str, Any])

    def delete_job(self, job: str) -> None:
        """Removes a job and frees its disk space once no snapshot of it is left; a later post starts it anew.

        Raises NotFound or StoreUnavailable. Once the deletion is logged it holds, even if freeing the space has to wait.
        """
        with self._sealer.lock:
            self._jobs.facts(job)
            post = Post(_DELETE, "", "", job, self._now_ns(), b"")
            segments = self._commit.submit(post, lambda: self._jobs.remove(job)).result()
            self._sealer.remove(job, segments)

    def _take_out(self, job: str, segments: tuple[SegmentFile, ...] | None) -> None:
        if segments is not None:
            self._sealer.remove(job, segments)

    def compact(self) -> None:
        """Makes larger segments of small ones now. Raises StoreUnavailable; nothing is lost then."""
        with self._upkeep_lock:
            self._upkeep.compact(lambda: not self._closed)

    def expire(self, now_ns: int) -> None:
        """Removes what need not be kept any more at this time of receipt. Raises StoreUnavailable; it can be repeated."""
        with self._upkeep_lock:
            self._upkeep.expire(now_ns)
            for job in self._upkeep.idle_jobs(now_ns):
                self._expire_job(job, now_ns)

    def _expire_job(self, job: str, now_ns: int) -> None:
        """Removes a job of which nothing is left, unless something comes before that is logged."""
        before_ns = now_ns - (self._limits.retain_ns or 0)
        post = Post(_EXPIRE, "", "", job, self._now_ns(), str(before_ns).encode())
        with self._sealer.lock:
            segments = self._commit.submit(post, lambda: self._jobs.remove_idle(job, before_ns)).result()
            self._take_out(job, segments)

    def _keep_up(self) -> None:
        for name, value in self.stats().items():
            if name != "wal_files":
                self._counters.set(name, value)
        self.expire(self._opened_ns + monotonic_ns())
        self.compact()
        with self._upkeep_lock:
            self._upkeep.merge_runs(lambda: not self._closed)

    def seal(self) -> None:
        """Writes everything in memory to segments now. Raises StoreUnavailable; nothing is lost then."""
        if self._jobs.unsealed_since_ns is None and not self._sealer.is_pending:
            return
        self._sealer.seal(lambda: self._commit.between(self._freeze).result())

    def _freeze(self) -> None:
        self._sealer.take_up(self._jobs.freeze(self._wal.start_file()))

    def _seal_if_due(self) -> None:
        self._pins.sweep()
        since, limits = self._jobs.unsealed_since_ns, self._limits
        old = since is not None and monotonic_ns() - since > limits.memtable_age_ns
        if old or self._jobs.memtable_bytes > limits.memtable_bytes or self._wal.size_bytes > limits.wal_bytes // 2:
            self.seal()
        self._show_sizes()

    def probe(self) -> None:
        """Shows that the store can read its catalog and write to its disk. Raises StoreUnavailable."""
        self._check_writable()
        self._lake.probe()
        path = self._folder / "probe"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(fd, b"probe", 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            path.unlink()
        except OSError as fault:
            raise StoreUnavailable(f"the data folder cannot be written: {fault.strerror}") from fault

    def stats(self) -> dict[str, int]:
        """Sizes at this moment: rows and bytes in memory, in the log and in segments."""
        segments = self._jobs.segments()
        return {
            "jobs": len(self._jobs.entries()),
            "memtable_rows": self._jobs.memtable_rows,
            "memtable_bytes": self._jobs.memtable_bytes,
            "identities": self._jobs.identities,
            "wal_files": len(self._wal.numbers()),
            "wal_bytes": self._wal.size_bytes,
            "segments": len(segments),
            "segment_rows": sum(s.info.rows for s in segments),
            "segment_bytes": sum(s.info.size_bytes for s in segments),
            "identity_run_bytes": self._runs.size_bytes,
        }

    def close(self) -> None:
        """Seals, and gives the folder free. What could not be sealed is in the log. Later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        self._keeper.close()
        self._trigger.close()
        try:
            self.seal()
        except Exception:  # noqa: BLE001  - whatever it was, the log has the events and the folder must be given free
            self._counters.add("seals_failed")
        self._commit.close()
        self._pins.sweep()
        self._lake.close()
        self._wal.close()
        self._lock.release()
