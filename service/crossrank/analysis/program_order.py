"""In which order a rank calls its communications within a step, learnt from its own steps before.

Training repeats itself: what rank r called in step k - 1 it calls in step k, with every sequence number of a channel moved on by
as many as the channel has in a step. So the place of an operation that r has not reported can be looked up one step earlier, on
r's own clock. A channel is a group, or for messages a group and the other rank, in one direction. Without steps or sequence
numbers nothing is known, which is never taken for an answer. Nor is a hole: where a number between others of its channel was not
reported, the steps before say what stood there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from crossrank.model.kinds import COLLECTIVE, RECV, SEND
from crossrank.model.timeline import NO_STEP, Timeline

_STEPS_BACK = 4


class Channel(NamedTuple):
    """kind: COLLECTIVE, SEND or RECV; group: index into `trace.groups`; peer: -1 for collectives."""

    kind: int
    group: int
    peer: int


class Operation(NamedTuple):
    """One number of a channel."""

    channel: Channel
    seq: int


class ProgramOrder:
    """Answers about any rank of a timeline; what was learnt of a rank is kept."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._known: dict[int, _Rank | None] = {}

    def step_of(self, rank: int) -> int | None:
        """The last step of which anything is known on a rank."""
        lo, hi = self._timeline.trace.rows_of(rank)
        last = int(self._timeline.step_of[lo:hi].max()) if hi > lo else NO_STEP
        return None if last == NO_STEP else last

    def comes_before(self, rank: int, first: Operation, second: Operation, step: int, *, on_one_lane: bool = False) -> bool | None:
        """Whether the rank calls `first` before `second` in `step`; None where its history does not say.

        on_one_lane: operations of different lanes have no order that could be relied on.
        """
        known = self._of(rank)
        if known is None or (on_one_lane and known.lane.get(first.channel) != known.lane.get(second.channel)):
            return None
        for places in known.forecasts(step):
            if first in places and second in places:
                return places[first] < places[second]
        return None

    def next_of(self, rank: int, passed: Callable[[Operation], bool]) -> Operation | None:
        """What the rank calls after the last communication known of it, leaving out what it must have passed; None: not known."""
        known = self._of(rank)
        if known is None:
            return None
        for step in (known.step, known.step + 1):
            ops = known.outlook(step)
            done = [place for place, op in enumerate(ops) if op.seq <= known.furthest.get(op.channel, op.seq - 1)]
            for op in ops[max(done, default=-1) + 1 :]:
                if not passed(op):
                    return op
        return None

    def _of(self, rank: int) -> _Rank | None:
        if rank not in self._known:
            self._known[rank] = _learn(self._timeline, rank)
        return self._known[rank]


class _Rank:
    """The communications of one rank by step, in the order it called them."""

    def __init__(self, by_step: dict[int, list[Operation]], step: int, lane: dict[Channel, int]) -> None:
        self.step = step
        self.lane = lane
        self._by_step = by_step
        self._seen = {op for ops in by_step.values() for op in ops}
        self.furthest: dict[Channel, int] = {}
        self._first: dict[Channel, int] = {}
        for op in self._seen:
            self.furthest[op.channel] = max(op.seq, self.furthest.get(op.channel, op.seq))
            self._first[op.channel] = min(op.seq, self._first.get(op.channel, op.seq))
        self._per_step = _moves(by_step)

    def outlook(self, step: int) -> list[Operation]:
        """What the rank will call in `step`, in order: as in the step before, whose holes are filled from earlier ones."""
        latest, *earlier = self.forecasts(step) or [{}]
        ops = list(latest)
        for places in earlier:
            at = 0
            for op in places:
                if op in latest:
                    at = ops.index(op) + 1
                elif op not in ops and self._is_hole(op):
                    ops.insert(at, op)
                    at += 1
        return ops

    def _is_hole(self, op: Operation) -> bool:
        """Whether the number that stood for it a step before is missing among others of its channel."""
        channel, seq = op.channel, op.seq - self._per_step.get(op.channel, 0)
        return self._first[channel] < seq < self.furthest[channel] and Operation(channel, seq) not in self._seen

    def forecasts(self, step: int) -> list[dict[Operation, int]]:
        """For each earlier step, the latest first: its operations as they would be numbered in `step`, with their places."""
        made = []
        for back in range(1, _STEPS_BACK):
            ops = self._by_step.get(step - back)
            if ops:
                moved = [Operation(op.channel, op.seq + back * self._per_step.get(op.channel, 0)) for op in ops]
                made.append({op: place for place, op in enumerate(moved)})
        return made


def _moves(by_step: dict[int, list[Operation]]) -> dict[Channel, int]:
    """How many numbers each channel moves on in a step: the most frequent difference of first and of last numbers."""
    ends: dict[Channel, dict[int, tuple[int, int]]] = {}
    for step, ops in by_step.items():
        for op in ops:
            low, high = ends.setdefault(op.channel, {}).get(step, (op.seq, op.seq))
            ends[op.channel][step] = min(low, op.seq), max(high, op.seq)
    moves: dict[Channel, int] = {}
    for channel, steps in ends.items():
        votes = Counter(steps[s + 1][i] - steps[s][i] for s in steps if s + 1 in steps for i in (0, 1))
        if votes:
            moves[channel] = max(votes.items(), key=lambda item: (item[1], item[0]))[0]
    return moves


def _learn(timeline: Timeline, rank: int) -> _Rank | None:
    trace = timeline.trace
    lo, hi = trace.rows_of(rank)
    step = timeline.step_of[lo:hi]
    last = int(step.max()) if hi > lo else NO_STEP
    if last == NO_STEP:
        return None
    kind = trace.kind[lo:hi]
    comm = np.isin(kind, (COLLECTIVE, SEND, RECV)) & trace.has_seq[lo:hi] & ~trace.is_async[lo:hi]
    spans = lo + np.flatnonzero(comm & (step > last - _STEPS_BACK - 1))
    by_step: dict[int, list[Operation]] = {}
    lane: dict[Channel, int] = {}
    for i in spans[np.argsort(trace.start_ns[spans], kind="stable")].tolist():
        peer = -1 if trace.kind[i] == COLLECTIVE else int(trace.peer[i])
        op = Operation(Channel(int(trace.kind[i]), int(trace.group[i]), peer), int(trace.seq[i]))
        by_step.setdefault(int(timeline.step_of[i]), []).append(op)
        lane[op.channel] = int(trace.lane[i])
    return _Rank(by_step, last, lane)
