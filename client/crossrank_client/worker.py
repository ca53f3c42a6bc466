"""The one background thread: takes closed spans from the ring, encodes, compresses, posts, and keeps what cannot be posted now.

It yields the interpreter after every CHUNK spans, so that the training never waits for it longer than it takes to encode those. No fault of
its own ends it, and none leaves it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from crossrank_client.backlog import Backlog, Batch
from crossrank_client.clock import Clock, mono_ns, pause
from crossrank_client.compress import ENCODING, compressed
from crossrank_client.encode import BATCH_BYTES, Encoder
from crossrank_client.sender import Outcome, Sender
from crossrank_client.span import Lane, Span
from crossrank_client.watch import Watch

if TYPE_CHECKING:
    from crossrank_client.client import Client

POLL_S = 0.5
BATCH_S = 1.0
BATCH_EVENTS = 4096
TOO_LARGE = 413
REST_S = 10.0  # a process that has nothing to say posts its clock sample this often
CHUNK = 128
CHUNK_PAUSE_S = 0.0005
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
TOPOLOGIES_WAITING = 10_000
_log = logging.getLogger("crossrank_client")


class Worker:
    """Runs until stopped. Everything but `wake`, `stop` and reading the counts is its own thread's."""

    def __init__(self, client: Client, sender: Sender, backlog: Backlog, encoder: Encoder, clock: Clock, watch: Watch) -> None:
        self._client, self._sender, self._backlog, self._encoder, self._clock, self.watch = (
            client,
            sender,
            backlog,
            encoder,
            clock,
            watch,
        )
        self._lane = Lane("crossrank", 0)
        self._wake, self._stopping = threading.Event(), False
        # Flushes are numbered: asked for, taken from the ring by a turn that began after, and with the service.
        self._flushed = threading.Condition()
        self._asked = self._collected = self._answered = 0
        self._deadline_ns: int | None = None
        self._last_batch_ns = mono_ns()
        self._next_try_ns, self._pause_s = 0, FIRST_PAUSE_S
        self._sample: Span | None = None
        self._said: dict[str, int] = {}
        self.topologies: deque[dict[str, Any]] = deque()
        self.topologies_dropped = 0
        self.drained = self.highest_ordinal = 0
        self.counts = {
            "posts": 0,
            "retries": 0,
            "accepted": 0,
            "duplicate": 0,
            "rejected": 0,
            "refused": 0,
            "faults": 0,
            "adopted": 0,
        }
        self.last_status: int | None = None
        self._one_by_one = 0  # batches that go alone, after a post of several was too large for somebody on the way
        sender.idle = self._while_waiting
        self.thread = threading.Thread(target=self._run, name="crossrank", daemon=True)

    def dropped(self) -> dict[str, int]:
        """Events lost so far by reason; reasons without any are left out."""
        found = {
            "ring_full": max(0, self.highest_ordinal - self.drained),
            "backlog_full": self._backlog.dropped_events,
            "refused": self.counts["refused"],
            "rejected": self.counts["rejected"],
            "unencodable": self._encoder.unencodable,
            "too_large": self._encoder.too_large,
            "never_ended": self._client.never_ended,
            "recorder_overrun": self._client.recorder_overrun,
            "topologies": self.topologies_dropped,
        }
        return {reason: count for reason, count in found.items() if count}

    def say_topology(self, part: dict[str, Any]) -> None:
        """Posts it when it can; what is beyond TOPOLOGIES_WAITING is dropped and counted."""
        if len(self.topologies) < TOPOLOGIES_WAITING:
            self.topologies.append(part)
        else:
            self.topologies_dropped += 1

    def all_sent(self, timeout_s: float) -> bool:
        """Posts what there is now and waits until everything is with the service; False if it is not in time."""
        if self.is_running_here():
            return False
        with self._flushed:
            self._asked += 1
            number = self._asked
            self._wake.set()
            return self._flushed.wait_for(lambda: self._answered >= number, timeout_s)

    def is_running_here(self) -> bool:
        """Whether the caller is the thread itself, as in a hook."""
        return threading.current_thread() is self.thread

    def stop(self, deadline_ns: int) -> None:
        """Posts what can be posted until the deadline (monotonic), writes the rest to disk, ends."""
        self._deadline_ns = deadline_ns
        self._stopping = True
        self._wake.set()

    def abort(self) -> None:
        """Ends a post that waits; what it held is kept."""
        self._sender.abort()

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Outcome:
        """Posts anything, once. Only for this thread."""
        return self._sender.post(path, body, headers)

    def adopt(self) -> None:
        """Before the thread runs: takes over what earlier processes of this job could not send."""
        self.counts["adopted"] = self._backlog.adopt()

    def left_behind(self) -> None:
        """In the child of a fork: closes what the parent goes on using, without a word to anybody."""
        self._backlog.close()
        self._sender.close()

    def stats(self) -> dict[str, Any]:
        """Counts so far. misuses: calls with arguments that mean nothing; recorded: spans closed; waiting: batches not yet with the service."""
        return {
            "misuses": self._client.misuses,
            "recorded": self.drained + len(self._client.ring) + max(0, self.highest_ordinal - self.drained),
            **self.counts,
            "dropped": self.dropped(),
            "standstills": self.watch.standstills,
            "waiting_batches": len(self._backlog),
            "spooled_bytes": self._backlog.on_disk_bytes,
            "disk_faults": self._backlog.disk_faults,
            "last_status": self.last_status,
        }

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(POLL_S)
            self._wake.clear()
            try:
                self._turn()
            except Exception:  # noqa: BLE001 -- the training must not notice
                self._fault()
                pause(POLL_S)
        try:
            self._finish()
        except Exception:  # noqa: BLE001
            self._fault()
        self._backlog.close()
        self._sender.close()

    def _fault(self) -> None:
        self.counts["faults"] += 1
        _log.debug("crossrank: a fault of the client's own", exc_info=True)

    def _turn(self) -> None:
        asked = self._asked
        urgent = asked > self._collected
        since_s = (mono_ns() - self._last_batch_ns) / 1e9
        if urgent or since_s >= BATCH_S or len(self._client.ring) >= BATCH_EVENTS:
            stands = False
            try:
                stands = self._say_what_happened()
            except Exception:  # noqa: BLE001 -- what was recorded is collected all the same
                self._fault()
            self._collect(urgent=urgent or stands)
            if self._sample is not None and (urgent or since_s >= REST_S):
                self._put([self._sample])
            self._collected = asked
        if urgent or mono_ns() >= self._next_try_ns:
            self._send_waiting()
        if self._answered < self._collected and not len(self._backlog) and not self.topologies:
            with self._flushed:
                self._answered = self._collected
                self._flushed.notify_all()

    def _say_what_happened(self) -> bool:
        """Marks and metrics about the client itself and standstills go into the ring like everything else. True at a standstill."""
        self._say_drops()
        step = self._clock.wall_step_ns()
        if step is not None:
            self._note("clock.step", "mark", size_ns=step)
        standing = self.watch.standing(self._client.lanes(), self._client.open_begun(), self._encoder.id_of)
        for span in standing:
            span.ordinal = self._client.next_ordinal()
            self._client.ring.append(span)
        return bool(standing)

    def _say_drops(self) -> None:
        for reason, count in self.dropped().items():
            if count > self._said.get(reason, 0):
                added, self._said[reason] = count - self._said.get(reason, 0), count
                self._note("client.dropped", "metric", value=count, reason=reason, added=added)

    def _note(self, name: str, kind: str, **fields: Any) -> None:
        self._client.ring.append(self._made(name, kind, mono_ns(), fields))

    def _made(self, name: str, kind: str, at_ns: int, fields: dict[str, Any]) -> Span:
        return self._client.finished(name, kind, at_ns, at_ns, self._lane, fields)

    def _collect(self, *, urgent: bool = False) -> None:
        """Has the hooks add what they know, and empties the ring into batches."""
        ring = self._client.ring
        self._last_batch_ns = mono_ns()
        for hook in list(self._client.before_batch):
            try:
                hook(urgent)
            except Exception:  # noqa: BLE001 -- what was recorded is collected all the same
                self._fault()
        left = len(ring)  # what comes meanwhile is for the next time
        while left > 0:
            spans = [ring.popleft() for _ in range(min(left, BATCH_EVENTS))]
            left -= len(spans)
            self.drained += len(spans)
            self._put(spans)

    def _put(self, spans: list[Span]) -> None:
        """Encodes spans, with a clock sample that waits, into batches at the end of the backlog."""
        if self._sample is not None and spans != [self._sample]:
            spans.append(self._sample)
        self._sample = None
        lines: list[bytes] = []
        size = 0
        for at in range(0, len(spans), CHUNK):
            chunk = spans[at : at + CHUNK]
            self.highest_ordinal = max(self.highest_ordinal, *(span.ordinal for span in chunk))
            for span in chunk:
                self.watch.saw(span)
            fresh = self._encoder.lines(chunk)
            lines += fresh
            size += sum(map(len, fresh))
            if size > BATCH_BYTES:
                self._pack(lines)
                lines, size = [], 0
            if not self._stopping and at + CHUNK < len(spans):
                pause(CHUNK_PAUSE_S)
        if lines:
            self._pack(lines)

    def _pack(self, lines: list[bytes]) -> None:
        raw = b"".join(lines)
        body = compressed(raw)
        self._backlog.put(Batch(len(lines), len(raw), ENCODING, len(body), body))

    def _send_waiting(self) -> None:
        """Posts batches, oldest first, until there are none or one has to wait."""
        while (batch := self._backlog.first(alone=self._one_by_one > 0)) is not None and self._time_left():
            outcome = self._sender.post_events(batch.body or b"", batch.encoding)
            self.counts["posts"] += 1
            self.last_status = outcome.status
            if not outcome.taken and outcome.worth_retrying:
                self._wait_after(outcome)
                return
            self._pause_s, self._next_try_ns = FIRST_PAUSE_S, 0
            if outcome.status == TOO_LARGE and self._backlog.joined > 1:
                self._one_by_one = self._backlog.joined
                self._backlog.kept()
                continue
            self._one_by_one = max(0, self._one_by_one - 1)
            self._count(outcome, batch)
            self._backlog.done()
            if not self._stopping:
                self._collect_if_full()
        self._send_topologies()

    def _while_waiting(self) -> bool:
        """Goes on making batches while a slow service answers; False once the time to stop has come."""
        if (mono_ns() - self._last_batch_ns) / 1e9 >= BATCH_S:
            self._collect()
        self._collect_if_full()
        return self._deadline_ns is None or mono_ns() < self._deadline_ns

    def _collect_if_full(self) -> None:
        if len(self._client.ring) >= BATCH_EVENTS:  # a long backlog must not let the ring run over
            self._collect()

    def _send_topologies(self) -> None:
        while self.topologies and self._time_left():
            outcome = self._sender.post_topology(self.topologies[0])
            if not outcome.taken and outcome.worth_retrying:
                self._wait_after(outcome)
                return
            if not outcome.taken:
                self.counts["refused"] += 1
            self.topologies.popleft()

    def _wait_after(self, outcome: Outcome) -> None:
        self.counts["retries"] += 1
        self._backlog.kept()
        # Jitter: thousands of ranks that lost the service together must not come back together.
        wait_s = max(outcome.pause_s or 0.0, self._pause_s) * random.uniform(0.75, 1.25)  # noqa: S311 -- not a secret
        self._next_try_ns = mono_ns() + int(wait_s * 1e9)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _count(self, outcome: Outcome, batch: Batch) -> None:
        if not outcome.taken:
            self.counts["refused"] += batch.events
            return
        answer = outcome.answer
        for name in ("accepted", "duplicate", "rejected"):
            if isinstance(answer.get(name), int):
                self.counts[name] += answer[name]
        for hook in list(self._client.on_answer):
            try:
                hook(answer)
            except Exception:  # noqa: BLE001 -- a hook must not end the thread
                self._fault()
        received, replied = answer.get("received_ns"), answer.get("sent_ns")
        if outcome.sample is not None and isinstance(received, int) and isinstance(replied, int) and not self._stopping:
            sent, got = (at + self._clock.offset_ns for at in outcome.sample)
            stamps = {"sent_ns": sent, "received_ns": received, "replied_ns": replied, "got_ns": got}
            self._sample = self._made("clock.sample", "metric", outcome.sample[1], {"attrs": stamps, "step": None})
            self.drained += 1  # it never passes the ring
            self.highest_ordinal = max(self.highest_ordinal, self._sample.ordinal)

    def _time_left(self) -> bool:
        deadline = self._deadline_ns
        if deadline is None:
            return True
        left_s = (deadline - mono_ns()) / 1e9
        self._sender.timeout_s = max(0.05, left_s)
        return left_s > 0

    def _finish(self) -> None:
        for _ in range(2):  # a second time for what was dropped or learned in the first
            self._say_drops()
            self._collect()
            self._send_waiting()
        self._backlog.persist()
