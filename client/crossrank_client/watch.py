"""Notices that a thread stands still, and shows where: its open spans are posted as open, with the Python stack of the thread.

Each lane has a rhythm: the longest pause between two completed spans among its last GAPS. A lane with an open span on which nothing has
begun or completed for FACTOR times that, and at least `least_s`, stands still. A span that `begin` opened has no lane to itself: it
stands still after FACTOR times the longest that a span of its name took. Open spans are posted once; when one ends after all,
the usual event with the same id takes the place of the open one.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable

from crossrank_client.clock import mono_ns
from crossrank_client.span import Lane, Span

GAPS = 256
FACTOR = 3.0
LANES_KEPT = 1024
NAMES_KEPT = 4096
STACK_CHARACTERS = 4000
SPANS_POSTED = 256
DEEPEST = 1000


class _Rhythm:
    __slots__ = ("gaps_ns", "last_ns")

    def __init__(self, last_ns: int) -> None:
        self.last_ns = last_ns
        self.gaps_ns: deque[int] = deque(maxlen=GAPS)


class Watch:
    """Standstills of one process. least_s: no standstill is shorter."""

    def __init__(self, least_s: float) -> None:
        self._least_ns = int(least_s * 1e9)
        self._rhythms: dict[str, _Rhythm] = {}
        self._longest_ns: dict[str, int] = {}
        self._posted: set[Span] = set()
        self.standstills = 0

    def saw(self, span: Span) -> None:
        """A span has completed."""
        if span.end_ns is None or span.kind in ("metric", "mark") or not isinstance(span.name, str):
            return
        took = span.end_ns - span.start_ns
        if took > self._longest_ns.get(span.name, 0) and (span.name in self._longest_ns or len(self._longest_ns) < NAMES_KEPT):
            self._longest_ns[span.name] = took
        rhythm = self._rhythms.get(span.lane.name)
        if rhythm is None:
            if len(self._rhythms) < LANES_KEPT:
                self._rhythms[span.lane.name] = _Rhythm(span.end_ns)
        elif span.end_ns > rhythm.last_ns:
            rhythm.gaps_ns.append(span.end_ns - rhythm.last_ns)
            rhythm.last_ns = span.end_ns

    def standing(self, lanes: Iterable[Lane], begun: Iterable[Span], id_of: Callable[[Span], int]) -> list[Span]:
        """Copies of open spans of lanes that stand still and were not posted yet, outermost first, each with the stack in its fields."""
        now = mono_ns()
        lanes = list(lanes)
        for lane in lanes:
            _cut(lane)
        standing = [span for lane in lanes if self._lane_stands(lane, now) for span in _open_on(lane)]
        standing += [span for span in begun if self._lasts(span, now)]
        self._posted = {span for span in self._posted if span.end_ns is None}
        found = [span for span in standing if span not in self._posted][:SPANS_POSTED]
        if not found:
            return []
        self.standstills += 1
        self._posted |= set(found)
        stacks = _stacks({span.lane.thread for span in found})
        for span in found:
            id_of(span)  # the copy and the span that closes later have the same
        return [_shown(span, stacks.get(span.lane.thread), now) for span in found]

    def _lane_stands(self, lane: Lane, now: int) -> bool:
        """Whether nothing has begun or ended on the lane for too long."""
        top, rhythm = lane.top, self._rhythms.get(lane.name)
        if top is None:
            return False
        last, longest = (0, 0) if rhythm is None else (rhythm.last_ns, max(rhythm.gaps_ns, default=0))
        return now - max(last, top.start_ns) > max(self._least_ns, FACTOR * longest)

    def _lasts(self, span: Span, now: int) -> bool:
        """Whether work that completes elsewhere is taking too long for its name."""
        return now - span.start_ns > max(self._least_ns, FACTOR * self._longest_ns.get(span.name, 0))


def _cut(lane: Lane) -> None:
    """Lets go of open spans that DEEPEST others are open in: code that never closes its spans would fill the memory with them."""
    span = lane.top
    for _ in range(DEEPEST):
        if span is None:
            return
        span = span.parent
    if span is not None:
        span.parent = None


def _open_on(lane: Lane) -> list[Span]:
    found: list[Span] = []
    span = lane.top
    while span is not None and len(found) < SPANS_POSTED:
        if span.end_ns is None:
            found.append(span)
        span = span.parent
    return found[::-1]


def _shown(span: Span, stack: str | None, now: int) -> Span:
    """A copy of an open span to post."""
    copy = Span.__new__(Span)
    for name in ("name", "kind", "end_ns", "id", "lane", "parent", "start_ns", "step"):
        setattr(copy, name, getattr(span, name))
    copy.fields = {**span.fields, "standing_s": round((now - span.start_ns) / 1e9, 3)}
    if stack is not None:
        copy.fields["python_stack"] = stack
    return copy


def _stacks(threads: set[int]) -> dict[int, str]:
    frames = sys._current_frames()  # noqa: SLF001 -- the only way to see another thread's stack
    own = threading.get_ident()
    return {
        thread: "".join(traceback.format_stack(frames[thread]))[-STACK_CHARACTERS:]
        for thread in threads
        if thread in frames and thread != own
    }
