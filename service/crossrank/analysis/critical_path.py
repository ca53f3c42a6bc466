"""What made a step as long as it was: one unbroken chain of work and transfers that fills it from start to end.

The walk goes backwards from the end of the rank that finished last. At every stamp it asks what this stamp had to wait for:

    end of a communication that waited at a gate    the start that opened the gate, on the rank that came last; the time since
                                                    then is the communication's own (its transfer)
    end of any other communication                  its own start
    end of a wait for something asynchronous        the end of that communication (analysis.release), then as above
    start on an idle lane that another lane launched    that other lane
    anything else                                   the stamp before it on its lane; the time between is the owner's (lane_work)

Each answer lies earlier in the happened-before order, so the walk ends; it is cut at the step's start, even when it has come to
the work of another step. The segments tile the step to the nanosecond. A hop between two ranks carries the bound of their clocks:
a transfer shorter than the bound does not prove who came last.

`PathIndex` holds what all steps share. Build it once for a timeline: a path then costs O(its own length).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.analysis.lane_work import LaneWork, lane_work
from crossrank.analysis.release import Releases, find_releases
from crossrank.analysis.steps import StepTable
from crossrank.analysis.waits import gate_times
from crossrank.errors import NotFound
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.gates import NO_GATE, Gates, gates_of
from crossrank.model.kinds import COLLECTIVE, KINDS, RECV, SEND
from crossrank.model.timeline import Timeline

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the path on one lane. `span` is None where nothing was recorded: kind idle, name empty."""

    rank: int
    lane: str
    kind: str
    name: str
    start_ns: int
    end_ns: int
    span: int | None

    @property
    def on_path_ns(self) -> int:
        """How much of the step this stretch accounts for."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Hop:
    """The path goes from one rank to another: what `to_rank` waited for began on `from_rank` at `at_ns`."""

    from_rank: int
    to_rank: int
    at_ns: int
    edge: str  # collective, message
    group: str | None
    seq: int
    bound_ns: int  # how far the two clocks may be apart


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path of one step, in the order of time."""

    step: int
    start_ns: int
    end_ns: int
    segments: tuple[Segment, ...]
    hops: tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class PathIndex:
    """What the paths of all steps of a timeline share."""

    work: LaneWork
    releases: Releases
    gates: Gates
    gate_of: Int32Array  # [n] gate at which a span's end waits; NO_GATE also where the replay had to drop the gate
    opened_ns: Int64Array  # [g]
    opener: Int64Array  # [g] span whose start opened the gate
    is_comm: BoolArray  # [n]


def path_index(timeline: Timeline, work: LaneWork | None = None) -> PathIndex:
    """Prepares the walk for all steps. O(stamps log stamps).

    work: `lane_work(timeline)`, when it is at hand.
    """
    trace = timeline.trace
    gates = gates_of(timeline.matches, len(trace))
    gate_of = gates.waits.copy()
    dropped = [i if what == "collective" else gates.collectives + i for what, i in timeline.order.broken]
    if dropped:
        gate_of[np.isin(gate_of, dropped)] = NO_GATE
    opened = gate_times(timeline, gates)
    opener = _openers(gates.arrives, timeline.start_ns, opened)
    work = work or lane_work(timeline)
    is_comm = np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async
    return PathIndex(work, find_releases(timeline, work), gates, gate_of, opened, opener, is_comm)


@njit(cache=True, nogil=True)
def _openers(arrives: Int32Array, start_ns: Int64Array, opened_ns: Int64Array) -> Int64Array:
    """[gates] the first span whose start opened the gate; the number of spans where there is none."""
    opener = np.full(len(opened_ns), len(arrives), dtype=np.int64)
    for i in range(len(arrives) - 1, -1, -1):
        if arrives[i] >= 0 and start_ns[i] == opened_ns[arrives[i]]:
            opener[arrives[i]] = i
    return opener


def critical_path(timeline: Timeline, steps: StepTable, step: int, index: PathIndex | None = None) -> CriticalPath:
    """The critical path of one step. Raises NotFound for a step that is not in the table.

    index: `path_index(timeline)`, when paths of several steps are asked for.
    """
    row = steps.row_of(step)
    if row is None:
        raise NotFound(f"there is no step {step}", step=step)
    begin, end = int(steps.start_ns[row]), int(steps.end_ns[row])
    rows = slice(int(steps.ptr[row]), int(steps.ptr[row + 1]))
    last = int(steps.last_span[rows][np.argmax(steps.rank_end_ns[rows])])
    first_stamp = 2 * last if timeline.trace.is_open[last] else 2 * last + 1
    index = index or path_index(timeline)
    found = _walk_all(timeline, index, first_stamp, begin, end)
    return CriticalPath(step, begin, end, _segments(timeline, found), _hops(timeline, index, found))


@dataclass(frozen=True, slots=True)
class _Walked:
    """Stretches in backward order: owner (or NOBODY), a span of the lane it is on, its start; gate of the hop before it or -1."""

    owner: Int64Array
    where: Int64Array
    start_ns: Int64Array
    gate: Int64Array
    waiter: Int64Array
    end_ns: int


def _walk_all(timeline: Timeline, index: PathIndex, first_stamp: int, begin: int, end: int) -> _Walked:
    room = 4096
    while True:
        out = np.empty((5, room), dtype=np.int64)
        n = _walk(
            first_stamp, begin, end, timeline.start_ns, timeline.end_ns, index.work.pred, index.work.owner,
            index.releases.launched_by, index.releases.waits_for, index.is_comm, index.gate_of, index.opened_ns, index.opener, out,
        )  # fmt: skip
        if n >= 0:
            owner, where, start, gate, waiter = out[:, :n]
            return _Walked(owner, where, start, gate, waiter, end)
        room *= 4


@njit(cache=True, nogil=True)
def _walk(
    stamp: int, begin: int, end: int, start_ns: Int64Array, end_ns: Int64Array, pred: Int64Array, owner: Int64Array,
    launched_by: Int64Array, waits_for: Int64Array, is_comm: BoolArray, gate_of: Int32Array, opened_ns: Int64Array,
    opener: Int64Array, out: Int64Array,
) -> int:  # fmt: skip
    """Fills rows of (owner, where, start, gate, waiter) from the end back to `begin`; -1 when `out` has too little room."""
    n = 0
    now = end
    moves = 0
    while now > begin:
        moves += 1
        if n + 2 > out.shape[1]:
            return -1
        span = stamp >> 1
        gate, who, where = -1, -1, span
        comm = -1
        if stamp & 1:
            if is_comm[span]:
                comm = span
            elif waits_for[span] >= 0:
                c = waits_for[span]
                done = min(end_ns[c], now)
                g = gate_of[c]
                since = opened_ns[g] if g >= 0 else start_ns[c]
                # Only a wait that began before the communication was done waited for it.
                if done > start_ns[span] and max(since, start_ns[c]) < now:
                    comm = c
                    if done < now:
                        out[0, n], out[1, n], out[2, n], out[3, n], out[4, n] = span, span, max(done, begin), -1, -1
                        n += 1
                        now = done
        if comm >= 0:
            who, where = comm, comm
            g = gate_of[comm]
            target, since = 2 * comm, start_ns[comm]
            if g >= 0 and start_ns[comm] < opened_ns[g] <= now and opened_ns[g] > begin:
                gate, target, since = g, 2 * opener[g], opened_ns[g]
        elif (stamp & 1) == 0 and launched_by[stamp] >= 0:
            target = launched_by[stamp]
            where = target >> 1
            who = -1 if target & 1 else where
            since = end_ns[where] if target & 1 else start_ns[where]
        else:
            target, who = pred[stamp], owner[stamp]
            since = begin
            if target >= 0:
                since = end_ns[target >> 1] if target & 1 else start_ns[target >> 1]
        if target < 0 or moves > len(pred) + 8:
            since, target = begin, 0
        if since < now or gate >= 0:
            since = min(since, now)
            out[0, n], out[1, n], out[2, n], out[3, n], out[4, n] = who, where, max(since, begin), gate, comm
            n += 1
            now = since
        stamp = target
    return n


def _segments(timeline: Timeline, found: _Walked) -> tuple[Segment, ...]:
    """Stretches in the order of time; neighbours of one owner without a hop between them are one."""
    trace = timeline.trace
    owner, where = found.owner[::-1].tolist(), found.where[::-1].tolist()
    start = found.start_ns[::-1].tolist()
    end = [*start[1:], found.end_ns]
    segments: list[Segment] = []
    for i, span in enumerate(owner):
        if start[i] == end[i]:
            continue
        lane = int(trace.lane[where[i]])
        place = (int(trace.lane_rank[lane]), trace.lanes[lane])
        label = ("idle", "", None) if span == NOBODY else (KINDS[trace.kind[span]], trace.names[trace.name[span]], span)
        new = Segment(*place, label[0], label[1], start[i], end[i], label[2])
        last = segments[-1] if segments else None
        if last is not None and (last.rank, last.lane, last.span) == (new.rank, new.lane, new.span):
            segments[-1] = Segment(*place, label[0], label[1], last.start_ns, end[i], label[2])
        else:
            segments.append(new)
    return tuple(segments)


def _hops(timeline: Timeline, index: PathIndex, found: _Walked) -> tuple[Hop, ...]:
    """The rows at which the walk passed a gate to another rank, in the order of time."""
    trace, coll = timeline.trace, timeline.matches.collectives
    hops = []
    for i in np.flatnonzero(found.gate >= 0)[::-1].tolist():
        gate, waiter = int(found.gate[i]), int(found.waiter[i])
        opener = int(index.opener[gate])
        if trace.rank[opener] == trace.rank[waiter]:
            continue
        edge, place = index.gates.name(gate)
        group = int(trace.group[waiter])
        hops.append(
            Hop(
                from_rank=int(trace.rank[opener]),
                to_rank=int(trace.rank[waiter]),
                at_ns=int(found.start_ns[i]),
                edge=edge,
                group=trace.groups[group] if group >= 0 else None,
                seq=int(coll.seq[place] if edge == "collective" else trace.seq[waiter]),
                bound_ns=int(timeline.clocks.pairs.of(trace.domain[opener], trace.domain[waiter])),
            )
        )
    return tuple(hops)
