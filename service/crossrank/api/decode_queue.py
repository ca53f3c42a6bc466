"""The queue in front of the decoders, kept short in time rather than in bytes.

A sender that would wait too long for its turn is told so at once: it is better served by a 503 now and its own retry than by an
acknowledgement after its timeout, when it sends everything again. What the queue would take is estimated from what waits in it
and from what the last bodies took, a moving average that follows the load: by their number and by their bytes, the smaller of
both, since a few large bodies after many small ones, or the reverse, would make one of them far too high.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final, TypeVar

from crossrank.errors import Overloaded

_NEWEST_SHARE: Final = 0.1  # of the moving average
_FIRST_GUESS_NS: Final = 10e6  # of a body, before any was decoded: a crowd may be waiting at the start
T = TypeVar("T")


class DecodeQueue:
    """Runs work on bodies in threads. `run` is called from the event loop, `run_here` from a thread of the caller's own."""

    def __init__(self, threads: int, longest_wait_ns: int, monotonic_ns: Callable[[], int]) -> None:
        """longest_wait_ns: estimated waiting time beyond which nothing more is queued."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._threads, self._longest_wait_ns, self._monotonic_ns = threads, longest_wait_ns, monotonic_ns
        self._lock = Lock()
        self._waiting, self._waiting_bytes = 0, 0
        self._usual_ns, self._usual_bytes = _FIRST_GUESS_NS, 1.0

    def check(self) -> None:
        """Raises Overloaded when what waits already takes too long; an empty queue takes anything."""
        bodies = min(self._waiting, self._waiting_bytes / self._usual_bytes)
        if bodies * self._usual_ns / self._threads > self._longest_wait_ns:
            raise Overloaded("too many requests wait to be decoded; try again", budget="decode_queue")

    async def run(self, size_bytes: int, work: Callable[[], T]) -> T:
        """The result of the work on a body of this size. Raises Overloaded at once, and what the work raises."""
        self.check()
        self._add(size_bytes)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._timed, size_bytes, work)

    def run_here(self, size_bytes: int, work: Callable[[], T]) -> T:
        """The same in the calling thread."""
        self.check()
        self._add(size_bytes)
        return self._timed(size_bytes, work)

    def close(self) -> None:
        """Finishes what is queued."""
        self._pool.shutdown()

    def _add(self, size_bytes: int) -> None:
        with self._lock:
            self._waiting += 1
            self._waiting_bytes += size_bytes

    def _timed(self, size_bytes: int, work: Callable[[], T]) -> T:
        began_ns = self._monotonic_ns()
        try:
            return work()
        finally:
            took_ns = self._monotonic_ns() - began_ns
            with self._lock:
                self._waiting -= 1
                self._waiting_bytes -= size_bytes
                self._usual_ns += _NEWEST_SHARE * (took_ns - self._usual_ns)
                self._usual_bytes += _NEWEST_SHARE * (max(size_bytes, 1) - self._usual_bytes)
