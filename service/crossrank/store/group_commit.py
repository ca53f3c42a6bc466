"""Group commit: one thread writes what many requests queued, with one fdatasync for all of them.

While a sync runs the next requests queue up, so a slow disk makes groups bigger, not acknowledgements rarer. Entries take effect
(`apply`) after the sync and in log order, all in this one thread; so the order of the log *is* the order of events, and a replay
gives the same result.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from crossrank.counters import Counters
from crossrank.errors import Overloaded, StoreUnavailable
from crossrank.model.post import Post
from crossrank.store.wal import Wal

_GROUP_BYTES: Final = 32 << 20
_GROUP_ENTRIES: Final = 512


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is queued: a post to be logged (None: only run `apply`, between groups) and what to do once it is durable."""

    post: Post | None
    apply: Callable[[], Any]
    future: Future[Any]

    @property
    def size_bytes(self) -> int:
        return 0 if self.post is None else len(self.post.body)


class GroupCommit:
    """The commit thread and its bounded queue."""

    def __init__(self, wal: Wal, counters: Counters, *, queue_bytes: int, wal_segment_bytes: int) -> None:
        """queue_bytes: most bytes of bodies waiting; wal_segment_bytes: a new log file is begun beyond it."""
        self._wal = wal
        self._counters = counters
        self._queue_bytes = queue_bytes
        self._wal_segment_bytes = wal_segment_bytes
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="crossrank-commit", daemon=True)
        self._thread.start()

    def submit(self, post: Post, apply: Callable[[], Any]) -> Future[Any]:
        """Logs the post; the future gives what `apply` returns, once durable. Raises Overloaded or StoreUnavailable at once."""
        self._wal.check()
        return self._enqueue(_Entry(post, apply, Future()))

    def between(self, apply: Callable[[], Any]) -> Future[Any]:
        """Runs `apply` in the commit thread between two groups."""
        return self._enqueue(_Entry(None, apply, Future()))

    def _enqueue(self, entry: _Entry) -> Future[Any]:
        # Running from the start: a caller that gives up waiting must not stop what may already be on its way to disk.
        entry.future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closing")
            if self._waiting_bytes and self._waiting_bytes + entry.size_bytes > self._queue_bytes:
                raise Overloaded("too many requests wait for the disk", budget="commit_queue")
            self._waiting_bytes += entry.size_bytes
            self._queue.put(entry)
        return entry.future

    def close(self) -> None:
        """Commits what is queued and ends the thread; later submissions are refused."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        following: _Entry | None = None
        while True:
            entry = following or self._queue.get()
            following = None
            if entry is None:
                return
            if entry.post is None:
                self._finish([entry])
                continue
            group, following, last = self._group_from(entry)
            self._commit(group)
            if last:
                return

    def _group_from(self, first: _Entry) -> tuple[list[_Entry], _Entry | None, bool]:
        """The entries to be written together; the entry after them, if it was met; whether the end of the queue was."""
        group, size = [first], first.size_bytes
        while size < _GROUP_BYTES and len(group) < _GROUP_ENTRIES:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                break
            if entry is None or entry.post is None:
                return group, entry, entry is None
            group.append(entry)
            size += entry.size_bytes
        return group, None, False

    def _commit(self, group: Sequence[_Entry]) -> None:
        try:
            if self._wal.current_bytes >= self._wal_segment_bytes:
                self._wal.start_file()
            self._wal.append([e.post for e in group if e.post is not None])
        except Exception as fault:  # noqa: BLE001  - of whatever kind: whoever waits must hear of it, and the thread must live
            self._let_in(group)
            for entry in group:
                entry.future.set_exception(fault)
            return
        self._counters.add("wal_syncs")
        self._finish(group)

    def _finish(self, group: Sequence[_Entry]) -> None:
        self._let_in(group)
        for entry in group:
            try:
                result = entry.apply()
            except Exception as fault:  # noqa: BLE001  - as above
                entry.future.set_exception(fault)
            else:
                entry.future.set_result(result)

    def _let_in(self, group: Sequence[_Entry]) -> None:
        with self._lock:
            self._waiting_bytes -= sum(e.size_bytes for e in group)
