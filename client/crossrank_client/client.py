"""The client of one rank. Recording a span never waits: it is an append to a bounded ring that one background thread empties.

    hot path   span closes -> deque.append (the oldest falls out when the ring is full; gaps in the ordinals count them)
    thread     ring -> NDJSON -> compressed batch -> backlog (memory, then disk) -> POST /v1/events

After a fork the child has a ring, ids and lanes of its own; its thread starts with its first span. No method raises for anything but
an argument that is missing; calls whose arguments mean nothing are counted.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossrank_client.backlog import MEMORY_BYTES, Backlog, default_root, spool_of
from crossrank_client.clock import Clock, machine_clock, mono_ns
from crossrank_client.encode import Encoder
from crossrank_client.sender import Outcome, Sender
from crossrank_client.span import Lane, Span, StepSpan
from crossrank_client.watch import Watch
from crossrank_client.worker import Worker

RING_SPANS = 32_768
SPOOL_BYTES = 64 << 20
SHUTDOWN_S = 2.0
BEGUN_KEPT = 10_000
_log = logging.getLogger("crossrank_client")


class Client:
    """One rank of one job. Arguments as of `crossrank_client.init`, none of them guessed here.

    on_answer: called with each answer of the service to a post, in the client's thread. before_batch: called there each second or so
    before what was recorded is collected, with whether it is urgent (flushed, or something stands still). on_shutdown: called first
    of all at the end. The child of a fork has neither on_answer nor before_batch.
    """

    def __init__(
        self,
        url: str,
        job: str,
        *,
        rank: int,
        host: str,
        attempt: int = 0,
        world_size: int | None = None,
        clock: str | None = None,
        token: str | None = None,
        spool_dir: str | os.PathLike[str] | None = None,
        spool_bytes: int = SPOOL_BYTES,
        memory_bytes: int = MEMORY_BYTES,
        ring_spans: int = RING_SPANS,
        standstill_s: float = 3.0,
    ) -> None:
        self.job, self.rank, self.host, self.attempt, self.world_size = job, rank, host, attempt, world_size
        self.machine_clock: Clock = machine_clock(job, attempt)
        # Without a shared offset, ranks of a host need not share a clock.
        self.clock = clock or (host if self.machine_clock.shared else f"{host}:{rank}")
        self._ring_spans, self._standstill_s = ring_spans, standstill_s
        self._spool_bytes, self._memory_bytes = spool_bytes, memory_bytes
        root = default_root() if spool_dir is None else Path(spool_dir)
        self._spool = spool_of(job, root) if spool_bytes > 0 and root is not None else None
        self._new_sender = functools.partial(Sender, url, job, token)
        self._new_sender()  # an address that cannot be one shows now
        self.current_step: int | None = None
        self.steps_are_ours = False  # begun by the torch part, not numbered by the job
        self.misuses = 0  # calls whose arguments mean nothing
        self._marked: StepSpan | None = None
        self._lock = threading.RLock()  # a signal handler or a finalizer may record while its thread holds it
        self._closed = False
        self.append: Callable[[Span], None] = _ignore
        self.on_answer: list[Callable[[dict[str, Any]], None]] = []
        self.before_batch: list[Callable[[bool], None]] = []
        self.on_shutdown: list[Callable[[], None]] = []
        self._begin_anew("cpu:")
        if world_size is not None and rank == 0:
            self._worker.say_topology({"world_size": world_size})
        self._worker.adopt()
        self._start()
        _living.add(self)

    # --- recording ---

    def span(self, name: str, kind: str | None = None, **fields: Any) -> Span:
        """A span of this client; see `crossrank_client.span`."""
        return Span(name, kind, **fields).by(self)

    def step(self, number: int | None = None, **fields: Any) -> StepSpan:
        """Begins step `number` (the next one if None). With `with` it ends there, without when the next step begins."""
        try:
            chosen = None if number is None else int(number)
        except (TypeError, ValueError, OverflowError):
            chosen = None
            self.misuses += 1
        if chosen is None:
            chosen = 0 if self.current_step is None else self.current_step + 1
        self._end_marked()
        span = self._marked = StepSpan(self, chosen, **fields)
        return span

    def step_ended(self, span: StepSpan) -> None:
        """Called by the span of a step when it ends."""
        if self._marked is span:
            self._marked = None

    def _end_marked(self) -> None:
        marked, self._marked = self._marked, None
        if marked is not None and not marked.managed:
            marked.__exit__(None, None, None)

    def begin(self, name: str, kind: str | None = None, *, lane: str | None = None, **fields: Any) -> Span:
        """Opens a span that ends when `end()` of it is called, from any thread: for work that completes elsewhere."""
        span = self._made(name, kind, mono_ns(), self.lane_named(lane), fields)
        self.begun[span] = None
        if len(self.begun) > BEGUN_KEPT:
            self._give_up_oldest()
        return span

    def _give_up_oldest(self) -> None:
        """Of spans that `begin` opened: they are lost when they end after all, as the job has probably lost them itself."""
        try:
            del self.begun[next(iter(self.begun))]
            self.never_ended += 1
        except (KeyError, RuntimeError, StopIteration):  # another thread was faster: it is one less anyway
            pass

    def open_begun(self) -> list[Span]:
        """Spans that `begin` opened and nobody has ended."""
        return list(self.begun)

    def record(self, name: str, kind: str | None, start_ns: int, end_ns: int, *, lane: str | None = None, **fields: Any) -> None:
        """Adds a span that is over. Times are of `time.monotonic_ns`. Fields as of `span`, and `step`."""
        try:
            times = int(start_ns), int(end_ns)
        except (TypeError, ValueError, OverflowError):
            self.misuses += 1
            return
        self.append(self.finished(name, kind, *times, self.lane_named(lane), fields))

    def mark(self, name: str, *, lane: str | None = None, **fields: Any) -> None:
        """Adds a point in time."""
        now = mono_ns()
        self.append(self.finished(name, "mark", now, now, self.lane_named(lane), fields))

    def metric(self, name: str, value: float, *, lane: str | None = None, **fields: Any) -> None:
        """Adds a value measured now."""
        now = mono_ns()
        self.append(self.finished(name, "metric", now, now, self.lane_named(lane), {**fields, "value": value}))

    # --- topology ---

    def group(self, name: str, ranks: Sequence[int], description: str | None = None) -> None:
        """Says which ranks a process group has. Every member may call it; the first member posts it."""
        try:
            members = [int(rank) for rank in ranks]
        except (TypeError, ValueError, OverflowError):
            self.misuses += 1
            return
        if members and min(members) == self.rank:
            described = {} if description is None else {"desc": description}
            self.topology({"groups": [{"name": name, "ranks": members, **described}]})

    def coordinates(self, **coords: int) -> None:
        """Says where this rank stands along dimensions of parallelism: `coordinates(dp=0, tp=3)`."""
        self.topology({"ranks": [{"rank": self.rank, "host": self.host, "clock": self.clock, "coords": coords}]})

    def topology(self, part: dict[str, Any]) -> None:
        """Posts a part of the topology as POST /v1/jobs/{job}/topology takes it."""
        self._started().say_topology(part)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Outcome:
        """Posts anything to the service, once. Only from the client's own thread, that is, from a hook in `on_answer`."""
        return self._worker.post(path, body, headers)

    # --- life ---

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until everything recorded so far is with the service; False if it is not in time, or asked by a hook."""
        return self._started().all_sent(timeout_s)

    def shutdown(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Posts what can be posted in time, writes the rest to the spool, ends the thread. Later calls of anything do nothing."""
        until_ns = mono_ns() + int(timeout_s * 1e9)
        self.stop(until_ns)
        self.await_end(until_ns)

    def stop(self, until_ns: int) -> None:
        """The first half of `shutdown`: nothing is recorded any more, and the thread is told to end by then."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._end_marked()
        for hook in list(self.on_shutdown):  # each takes itself out
            try:
                hook()
            except Exception:  # noqa: BLE001 -- whatever it was, the rest must be posted
                _log.debug("crossrank: a hook failed at shutdown", exc_info=True)
        self.append = _ignore
        _living.discard(self)
        now = mono_ns()
        self._worker.stop(now + int(0.6 * max(0, until_ns - now)))

    def await_end(self, until_ns: int) -> None:
        """The second half: waits for the thread, and ends a post that holds it."""
        worker = self._worker
        if worker.thread.ident is None or worker.is_running_here():
            return
        worker.thread.join(0.75 * max(0, until_ns - mono_ns()) / 1e9)
        while worker.thread.is_alive() and mono_ns() < until_ns:
            worker.abort()
            worker.thread.join(0.05)

    close = shutdown

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def stats(self) -> dict[str, Any]:
        """Counts of events and posts so far, and what was dropped by reason."""
        return self._worker.stats()

    # --- for the spans, the thread and the torch part ---

    def finished(self, name: str, kind: str | None, start_ns: int, end_ns: int, lane: Lane, fields: dict[str, Any]) -> Span:
        """A closed span that was not appended yet."""
        span = self._made(name, kind, start_ns, lane, fields)
        span.end_ns = end_ns
        span.ordinal = self.next_ordinal()
        return span

    def _made(self, name: str, kind: str | None, start_ns: int, lane: Lane, fields: dict[str, Any]) -> Span:
        step = fields.pop("step", self.current_step)
        span = Span(name if isinstance(name, str) else str(name), kind).by(self)
        span.fields, span.lane, span.parent, span.step, span.start_ns = fields, lane, lane.top, step, start_ns
        return span

    def new_lane(self) -> Lane:
        """The lane of the calling thread, made on its first span."""
        thread = threading.current_thread()
        word = "main" if thread is threading.main_thread() else thread.name
        lane = Lane(self._lane_prefix + word, threading.get_ident())
        self.threads.lane = lane
        with self._lock:
            self._lanes.add(lane)
        return lane

    def lanes(self) -> list[Lane]:
        """Lanes of threads that live."""
        with self._lock:
            return list(self._lanes)

    def lane_named(self, name: str | None) -> Lane:
        """A lane that is no thread's, or that of the calling thread if None."""
        if name is not None:
            return Lane(str(name), threading.get_ident())
        lane: Lane | None = getattr(self.threads, "lane", None)
        return self.new_lane() if lane is None else lane

    def _begin_anew(self, lane_prefix: str) -> None:
        """A ring, ids and lanes that nobody has used: of a new client, and of a child after a fork."""
        self._lane_prefix = lane_prefix
        self.ring: deque[Span] = deque(maxlen=self._ring_spans)
        self.next_ordinal: Callable[[], int] = itertools.count(1).__next__
        self.threads = threading.local()
        self._lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        self.begun: dict[Span, None] = {}  # in the order of beginning; who takes a span out ends it
        self.never_ended = 0
        self.recorder_overrun = 0  # entries of PyTorch's flight recorder that were overwritten before they were read
        self.append = self._append_first
        self._worker = self._new_worker()

    def _new_worker(self) -> Worker:
        constant = {"job": self.job, "attempt": self.attempt, "rank": self.rank, "host": self.host, "clock": self.clock}
        return Worker(
            self,
            self._new_sender(),
            Backlog(self._spool, self._spool_bytes, self._memory_bytes),
            Encoder(constant, self.machine_clock.offset_ns),
            self.machine_clock,
            Watch(self._standstill_s),
        )

    def _append_first(self, span: Span) -> None:
        self._started()
        self.ring.append(span)

    def _started(self) -> Worker:
        if self._worker.thread.ident is None:
            self._start()
        return self._worker

    def _start(self) -> None:
        with self._lock:
            if self._worker.thread.ident is None and not self._closed:
                try:
                    self._worker.thread.start()
                except RuntimeError:  # the interpreter is ending
                    return
            if not self._closed:
                self.append = self.ring.append

    def after_fork_in_child(self) -> None:
        """Leaves the parent's thread, ring and ids behind. The thread of the child starts with its first span."""
        if self._closed:
            return
        self._lock = threading.RLock()
        self._marked = None
        self.on_answer, self.before_batch = [], []  # what they read and answer is the parent's
        self._worker.left_behind()
        self._begin_anew(f"pid:{os.getpid()}:")
        self.append = self._append_first_in_child

    def _append_first_in_child(self, span: Span) -> None:
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:  # its children end without atexit
            multiprocessing.Finalize(None, self.shutdown, exitpriority=10)
        self._append_first(span)


def _ignore(_span: Span) -> None:
    """Where spans go after `shutdown`."""


_living: weakref.WeakSet[Client] = weakref.WeakSet()


def _shut_all_down() -> None:
    """At exit: all clients together have SHUTDOWN_S."""
    until_ns = mono_ns() + int(SHUTDOWN_S * 1e9)
    ending = list(_living)
    for client in ending:
        client.stop(until_ns)
    for client in ending:
        client.await_end(until_ns)


def _after_fork_in_child() -> None:
    for client in list(_living):
        client.after_fork_in_child()


atexit.register(_shut_all_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
