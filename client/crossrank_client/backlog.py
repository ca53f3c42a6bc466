"""Batches that wait for the collector, oldest first: a few in memory, the rest on disk, bounded in both.

Nothing is encoded again: an entry is the compressed body as it will be sent, with the same span ids, so the service recognises what
it already has. A disk that is full or read-only only means that less can be kept. What no longer fits is dropped, the
oldest first, and counted by events.

On disk a process has a folder `<spool>/<job>/<id>/` with files `<number>-<events>-<raw bytes>.<encoding>` and a locked file `lock`. A folder whose
lock is free belongs to a process that ended before it could send everything: the next process of the job sends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote

MEMORY_BYTES = 4 << 20
POST_RAW_BYTES, POST_EVENTS = 16 << 20, 40_000  # far below what the service takes at once


@dataclass
class Batch:
    """A body of `events` events, `raw_bytes` before compression. body: None while it is on disk only, at `path`."""

    events: int
    raw_bytes: int
    encoding: str
    size_bytes: int
    body: bytes | None
    path: Path | None = None

    def read(self) -> bytes | None:
        """The body, None if the disk lost it."""
        if self.body is not None:
            return self.body
        try:
            return None if self.path is None else self.path.read_bytes()
        except OSError:
            return None

    def forget(self) -> None:
        """Removes the file, if there is one."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()


class Backlog:
    """The queue of one process. spool: folder for the job's batches, None for memory only. spool_bytes: how much of it to use."""

    def __init__(self, spool: Path | None, spool_bytes: int, memory_bytes: int) -> None:
        self._spool, self._spool_bytes, self._memory_bytes = spool, spool_bytes, memory_bytes
        self._waiting: deque[Batch] = deque()
        self._folder: Path | None = None
        self._locks: list[int] = []
        self._number = self.joined = 0  # joined: batches that `first` gave last
        self._in_memory_bytes = self._on_disk_bytes = 0
        self.dropped_events = 0  # did not fit, or were lost by the disk
        self.disk_faults = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def on_disk_bytes(self) -> int:
        """Bytes of batches on disk."""
        return self._on_disk_bytes

    def put(self, batch: Batch) -> None:
        """Adds a batch at the end. Beyond the memory it may use, batches go to disk; beyond both, the oldest are dropped."""
        if self._in_memory_bytes + batch.size_bytes > self._memory_bytes:
            self._to_disk(batch)
        if batch.body is not None:
            self._in_memory_bytes += batch.size_bytes
        self._waiting.append(batch)
        while self._in_memory_bytes > self._memory_bytes and self._drop_first_in_memory():
            pass

    def first(self, *, alone: bool = False) -> Batch | None:
        """The oldest batches as one to post; they stay in the queue, untouched, until `done` or `kept`. None if nothing waits.

        gzip members and zstd frames may follow one another in a body, so that a long backlog is caught up with in few posts.
        alone: one batch only.
        """
        self.joined = 0
        joined: list[bytes] = []
        events = raw = 0
        encoding = ""
        while self.joined < len(self._waiting):
            batch = self._waiting[self.joined]
            if joined and (
                alone or raw + batch.raw_bytes > POST_RAW_BYTES or events + batch.events > POST_EVENTS or batch.encoding != encoding
            ):
                break
            body = batch.read()
            if body is None:  # the disk lost it
                self._drop_at(self.joined)
                continue
            joined.append(body)
            events, raw, encoding = events + batch.events, raw + batch.raw_bytes, batch.encoding
            self.joined += 1
        body = b"".join(joined)
        return Batch(events, raw, encoding, len(body), body) if joined else None

    def done(self) -> None:
        """Takes out what `first` gave last: sent, or refused for good."""
        for _ in range(self.joined):
            self._take(self._waiting.popleft())
        self.joined = 0

    def kept(self) -> None:
        """What `first` gave last waits on."""
        self.joined = 0

    def persist(self) -> None:
        """Writes everything still in memory to disk, at the end of the process; what does not fit is dropped."""
        for batch in list(self._waiting):
            if batch.body is not None:
                self._to_disk(batch)
                if batch.body is None:
                    self._in_memory_bytes -= batch.size_bytes
                else:
                    self.dropped_events += batch.events
        self._waiting = deque(batch for batch in self._waiting if batch.body is None)

    def close(self) -> None:
        """Gives up the folders; removes its own if that is empty and this process made it."""
        for lock in self._locks:
            with contextlib.suppress(OSError):
                os.close(lock)
        self._locks = []
        if self._folder is not None and not self._waiting and self._folder.name.startswith(f"{os.getpid()}-"):
            _remove(self._folder)

    def adopt(self) -> int:
        """Takes over what processes of this job left behind; the number of events."""
        found = 0
        if self._spool is None:
            return 0
        with contextlib.suppress(OSError):
            for folder in sorted(self._spool.iterdir()):
                if folder != self._folder and self._locked(folder):
                    found += self._adopt_folder(folder)
        return found

    def _adopt_folder(self, folder: Path) -> int:
        found = 0
        for path in sorted(folder.glob("*-*.*")):
            named = re.fullmatch(r"\d{9}-(\d{1,9})-(\d{1,12})\.(zstd|gzip)", path.name)
            size = path.stat().st_size
            if named is None or self._on_disk_bytes + size > self._spool_bytes:
                continue
            self._waiting.append(Batch(int(named[1]), int(named[2]), named[3], size, None, path))
            self._on_disk_bytes += size
            found += int(named[1])
        if not found:
            _remove(folder)
        return found

    def _locked(self, folder: Path) -> bool:
        """Whether the folder could be locked, that is, its process has ended."""
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._locks.append(lock)
        return True

    def _to_disk(self, batch: Batch) -> None:
        """Writes a batch to disk and forgets its body; leaves it as it is where that cannot be."""
        if self._spool is None or batch.body is None or batch.size_bytes > self._spool_bytes:
            return
        while self._on_disk_bytes + batch.size_bytes > self._spool_bytes and self._drop_first_on_disk():
            pass
        draft = None
        try:
            folder = self._own_folder()
            self._number += 1
            path = folder / f"{self._number:09d}-{batch.events}-{batch.raw_bytes}.{batch.encoding}"
            draft = folder / "draft"
            draft.write_bytes(batch.body)
            draft.rename(path)
        except OSError:
            self.disk_faults += 1
            if draft is not None:
                with contextlib.suppress(OSError):
                    draft.unlink()
            return
        batch.body, batch.path = None, path
        self._on_disk_bytes += batch.size_bytes

    def _own_folder(self) -> Path:
        if self._folder is None:
            assert self._spool is not None
            folder = self._spool / f"{os.getpid()}-{secrets.token_hex(6)}"
            folder.mkdir(mode=0o700, parents=True)
            if not self._locked(folder):
                raise OSError("the file system has no locks")
            self._folder = folder
        return self._folder

    def _drop_first_in_memory(self) -> bool:
        """Drops the oldest batch in memory, but neither the newest of all nor what is being posted."""
        return self._drop_first(
            batch.body is not None for batch in islice(self._waiting, self.joined, max(self.joined, len(self._waiting) - 1))
        )

    def _drop_first_on_disk(self) -> bool:
        return self._drop_first(batch.body is None for batch in islice(self._waiting, self.joined, None))

    def _drop_first(self, fits: Iterable[bool]) -> bool:
        at = next((at for at, found in enumerate(fits, self.joined) if found), None)
        if at is not None:
            self._drop_at(at)
        return at is not None

    def _drop_at(self, at: int) -> None:
        batch = self._waiting[at]
        del self._waiting[at]
        self.dropped_events += batch.events
        self._take(batch)

    def _take(self, batch: Batch) -> None:
        if batch.body is None:
            self._on_disk_bytes -= batch.size_bytes
        else:
            self._in_memory_bytes -= batch.size_bytes
        batch.forget()


def default_root() -> Path | None:
    """A folder for batches under the temporary folder that only this user can write; None where there can be none."""
    root = Path(tempfile.gettempdir()) / f"crossrank-spool-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        found = root.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return root if ours else None


def spool_of(job: str, root: str | os.PathLike[str]) -> Path:
    """The folder of a job's batches. Any name is one file name: `/` and the like are escaped, long ones cut."""
    return Path(root) / (quote(job, safe="")[:200].replace(".", "%2E") or "job")


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "lock").unlink(missing_ok=True)
        folder.rmdir()
