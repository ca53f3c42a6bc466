"""The write-ahead log: numbered files of requests as received, the first place where an event is safe.

`<data>/wal/NNNNNNNN.wal`. A file is only ever appended to by the process that made it; a restart reads the old ones and begins
a new one. Files below the floor (handed over to segments) are deleted, except those with unreadable stretches, which are set
aside in `<data>/quarantine` for a person to look at.

What an acknowledgement rests on: the record's bytes are written, then fdatasync of the file succeeded, and the file's directory
entry was fsynced when it was made. A sync that fails once means the kernel may have dropped the pages, and a second sync could
"succeed" without them; so after one failure nothing is accepted until a restart has read back what really is there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from crossrank.errors import StoreUnavailable
from crossrank.model.post import Post
from crossrank.store.wal_format import HEADER_BYTES, Damaged, Found, file_header, read_salt, record_header, record_parts, scan

_IOV_MAX = 1024


def sync_folder(folder: Path) -> None:
    """Makes the folder's entries (new, renamed and removed names) durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Wal:
    """The log files of one data folder. Appending is for one thread; `check` and the sizes may be asked from any."""

    def __init__(self, data: Path) -> None:
        """Lists the files there are. Raises StoreUnavailable, before anything is touched, when one has a newer format."""
        self.folder = data / "wal"
        self._quarantine = data / "quarantine"
        self._sizes = {int(p.stem): p.stat().st_size for p in sorted(self.folder.glob("*.wal")) if p.stem.isdigit()}
        self._failed: str | None = None
        self._fd = -1
        self._salt = 0
        self.current = max(self._sizes, default=0)
        for number in self._sizes:
            with self._path(number).open("rb") as file:
                read_salt(file.read(HEADER_BYTES), self._path(number).name)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.wal"

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files not yet handed over."""
        return sum(list(self._sizes.values()))

    @property
    def current_bytes(self) -> int:
        """Bytes of the file being written; 0 before there is one."""
        return self._sizes[self.current] if self._fd >= 0 else 0

    def numbers(self) -> list[int]:
        """The numbers of the files there are, in order of writing."""
        return sorted(self._sizes)

    def replay(self, number: int) -> Iterator[Found]:
        """All records of one old file and the stretches that cannot be read."""
        with self._path(number).open("rb") as file:
            salt = read_salt(file.read(HEADER_BYTES), self._path(number).name)
            size = os.fstat(file.fileno()).st_size
            if size <= HEADER_BYTES:
                return
            if salt is None:  # it was durable before the first record, so this is damage; nothing behind it can be verified
                yield Damaged(0, size, at_end=False)
                return
            with contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
                yield from scan(data, salt)

    def set_aside(self, number: int) -> None:
        """Keeps a damaged file in the quarantine folder, under a second name that outlives the hand-over."""
        path = self._path(number)
        self._quarantine.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):  # an earlier start has set it aside already
            os.link(path, self._quarantine / f"{path.stem}-{path.stat().st_mtime_ns}.wal")
        sync_folder(self._quarantine)

    def cut(self, number: int, size: int) -> None:
        """Cuts a torn tail off."""
        with self._path(number).open("rb+") as file:
            file.truncate(size)
            os.fsync(file.fileno())
        self._sizes[number] = size

    def start_file(self) -> int:
        """Begins the next file and returns its number; every earlier record is then in a file with a lower number."""
        number, salt = self.current + 1, secrets.randbits(64)
        try:
            fd = self._new_file(number, salt)
        except OSError as fault:
            raise StoreUnavailable(f"cannot begin a log file: {fault.strerror}") from fault
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._salt, self.current = fd, salt, number
        self._sizes[number] = HEADER_BYTES
        return number

    def _new_file(self, number: int, salt: int) -> int:
        if not self.folder.exists():
            self.folder.mkdir()
            sync_folder(self.folder.parent)
        fd = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, file_header(salt), 0)
            os.fsync(fd)
            sync_folder(self.folder)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                self._path(number).unlink()
            raise
        return fd

    def check(self) -> None:
        """Raises StoreUnavailable after a failed sync."""
        if self._failed is not None:
            raise StoreUnavailable(self._failed)

    def append(self, posts: Sequence[Post]) -> None:
        """Writes the records of all posts and makes them durable with one fdatasync.

        Raises StoreUnavailable. After a failed write the file is cut back to its last good record and the next append may
        succeed (the disk was full for a while); after a failed sync none will.
        """
        self.check()
        if self._fd < 0:
            self.start_file()
        start = self._sizes[self.current]
        buffers: list[bytes] = []
        at = start
        for post in posts:
            meta, size = record_parts(post)
            buffers += (record_header(meta, post.body, salt=self._salt, offset=at), meta, post.body)
            at += size
        try:
            _write_all(self._fd, buffers, start)
        except OSError as fault:
            self._cut_back(start, fault)
            raise StoreUnavailable(f"cannot write the log: {fault.strerror}; nothing of this request was kept") from fault
        try:
            os.fdatasync(self._fd)
        except OSError as fault:
            self._failed = f"a log sync failed ({fault.strerror}); restart crossrank to read back what is on disk"
            raise StoreUnavailable(self._failed) from fault
        self._sizes[self.current] = at

    def _cut_back(self, size: int, why: OSError) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            self._failed = f"the log could not be cut back after a failed write ({why.strerror}); restart crossrank"

    def drop_below(self, floor: int) -> None:
        """Removes all files with a lower number: their records are in segments."""
        old = [n for n in self.numbers() if n < floor]
        for number in old:
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]
        if old:
            sync_folder(self.folder)

    def close(self) -> None:
        """Closes the current file; what was acknowledged is already durable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write_all(fd: int, buffers: Sequence[bytes], offset: int) -> None:
    """Writes all buffers at the offset, however many calls it takes."""
    rest = [memoryview(b) for b in buffers if b]
    while rest:
        written = os.pwritev(fd, rest[:_IOV_MAX], offset)
        offset += written
        done = 0
        while done < len(rest) and written >= len(rest[done]):
            written -= len(rest[done])
            done += 1
        rest = rest[done:]
        if written:
            rest[0] = rest[0][written:]
