"""What each rank did with its step: one state at every nanosecond, so the parts sum to the rank's step exactly.

At any moment several lanes of a rank may be busy. The first of these that is true says what the moment was for:

    compute, data, checkpoint, copy, other      a lane works on it (analysis.lane_work says whose work a stretch is)
    transfer, wait                              a communication blocks a lane: after, before its last participant had come
    transfer, wait                              a communication is in flight while no lane works (a `sync` waits for it, say)
    sync, idle                                  a span of that kind
    unknown                                     nothing was recorded, or only that a step was running

So communication counts only where it is *exposed*; what runs beside work is given as `overlapped_ns` and is part of no sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from crossrank.analysis.lane_work import NO_OWNER, LaneWork, lane_work, stamp_times
from crossrank.analysis.steps import StepTable
from crossrank.analysis.waits import gate_times, waits_of_spans
from crossrank.model.arrays import Int8Array, Int32Array, Int64Array
from crossrank.model.gates import gates_of
from crossrank.model.kinds import COLLECTIVE, KIND_CODE, KINDS, RECV, SEND
from crossrank.model.timeline import Timeline
from crossrank.model.trace import JobTrace

CATEGORIES: Final = ("compute", "data", "checkpoint", "copy", "other", "transfer", "wait", "sync", "idle", "unknown")

# States by rank of precedence; communication in flight comes in twice, blocking and not.
_STATES = ("compute", "data", "checkpoint", "copy", "other", "transfer", "wait", "transfer", "wait", "sync", "idle", "unknown")
_WORKING = 5  # states below this are work
_BLOCKED_TRANSFER, _BLOCKED_WAIT, _FLYING_TRANSFER, _FLYING_WAIT, _SYNC, _IDLE, _UNKNOWN = 5, 6, 7, 8, 9, 10, 11
_ROW_BEGINS, _ROW_ENDS = 100, 101


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of each row (step, rank) of a StepTable."""

    time_ns: Int64Array  # [r, len(CATEGORIES)]; every row sums to rank_end_ns - rank_start_ns
    overlapped_ns: Int64Array  # [r] communication in flight while the rank worked

    def of(self, category: str) -> Int64Array:
        """[r] time in one category."""
        return self.time_ns[:, CATEGORIES.index(category)]


def breakdown(timeline: Timeline, steps: StepTable, work: LaneWork | None = None) -> Breakdown:
    """Parts of all steps of all ranks. O(stamps log stamps of one rank).

    work: `lane_work(timeline)`, when it is at hand.
    """
    trace = timeline.trace
    work = work or lane_work(timeline)
    horizon = int(steps.rank_end_ns.max()) if len(steps.rank_end_ns) else 0
    parts = (_lane_intervals(timeline, work), _communication_intervals(timeline, work, horizon))
    rank, start, end, state = (np.concatenate([p[i] for p in parts]) for i in range(4))
    order = np.argsort(rank, kind="stable")
    rows = np.argsort(steps.rank, kind="stable")
    ranks = trace.ranks
    by_state, overlapped = _sweep(
        np.searchsorted(rank[order], np.append(ranks, np.iinfo(np.int32).max)), start[order], end[order], state[order],
        np.searchsorted(steps.rank[rows], np.append(ranks, np.iinfo(np.int32).max)), rows,
        steps.rank_start_ns, steps.rank_end_ns,
    )  # fmt: skip
    time_ns = np.zeros((len(rows), len(CATEGORIES)), dtype=np.int64)
    for s, name in enumerate(_STATES):
        time_ns[:, CATEGORIES.index(name)] += by_state[:, s]
    return Breakdown(time_ns, overlapped)


_Intervals = tuple[Int32Array, Int64Array, Int64Array, Int8Array]  # rank, start, end, state


def _lane_intervals(timeline: Timeline, work: LaneWork) -> _Intervals:
    """Stretches in which lanes work, sync or idle; neighbours of one state on one lane are one."""
    trace = timeline.trace
    stamps = trace.lane_stamps[work.is_program[trace.lane_stamps]]
    stamps = stamps[work.pred[stamps] >= 0]
    times = stamp_times(timeline)
    owner = work.owner[stamps]
    state = np.where(owner == NO_OWNER, np.int8(_UNKNOWN), _state_of_spans(trace)[owner]).astype(np.int8)
    lane = trace.lane[stamps // 2]
    begins = np.ones(len(stamps), dtype=np.bool_)
    begins[1:] = (lane[1:] != lane[:-1]) | (state[1:] != state[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(stamps)) - 1 if len(first) else first
    kept = state[first] != _UNKNOWN
    first, last = first[kept], last[kept]
    return trace.rank[stamps[first] // 2], times[work.pred[stamps[first]]], times[stamps[last]], state[first]


def _state_of_spans(trace: JobTrace) -> Int8Array:
    """[n] state a lane is in while it works on a span. Communications count by their own intervals, step spans say nothing."""
    state = np.full(len(KINDS), _STATES.index("other"), dtype=np.int8)
    for name in ("compute", "data", "checkpoint", "copy", "sync", "idle"):
        state[KIND_CODE[name]] = _STATES.index(name)
    state[KIND_CODE["step"]] = _UNKNOWN
    states = state[trace.kind]
    states[np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async] = _UNKNOWN
    return states


def _communication_intervals(timeline: Timeline, work: LaneWork, horizon: int) -> _Intervals:
    """Waits and transfers. An open communication waits up to the horizon: nothing says that all have come."""
    trace = timeline.trace
    comm = np.flatnonzero(np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async)
    gates = gates_of(timeline.matches, len(trace))
    start = timeline.start_ns[comm]
    is_open = trace.is_open[comm]
    end = np.where(is_open, np.maximum(start, horizon), timeline.end_ns[comm])
    turn = np.where(is_open, end, start + waits_of_spans(timeline, gates, gate_times(timeline, gates))[comm])
    blocks = work.is_blocking[comm]
    waiting, moving = turn > start, end > turn
    wait_state = np.where(blocks, np.int8(_BLOCKED_WAIT), np.int8(_FLYING_WAIT))
    move_state = np.where(blocks, np.int8(_BLOCKED_TRANSFER), np.int8(_FLYING_TRANSFER))
    return (
        np.concatenate((trace.rank[comm][waiting], trace.rank[comm][moving])),
        np.concatenate((start[waiting], turn[moving])),
        np.concatenate((turn[waiting], end[moving])),
        np.concatenate((wait_state[waiting], move_state[moving])),
    )


@njit(cache=True, nogil=True)
def _sweep(
    ptr: Int64Array, start: Int64Array, end: Int64Array, state: Int8Array,
    row_ptr: Int64Array, rows: Int64Array, row_start: Int64Array, row_end: Int64Array,
) -> tuple[Int64Array, Int64Array]:  # fmt: skip
    """Per rank: all edges in the order of time, running totals per state; a row gets their growth between its two edges.

    Edges of one moment may come in any order: nothing passes between them.
    """
    out = np.zeros((len(row_start), 12), dtype=np.int64)
    overlapped = np.zeros(len(row_start), dtype=np.int64)
    for r in range(len(ptr) - 1):
        m, w = ptr[r + 1] - ptr[r], row_ptr[r + 1] - row_ptr[r]
        time = np.empty(2 * (m + w), dtype=np.int64)
        what = np.empty(2 * (m + w), dtype=np.int64)
        row = np.full(2 * (m + w), -1, dtype=np.int64)
        for j in range(m):
            i = ptr[r] + j
            time[2 * j], time[2 * j + 1] = start[i], end[i]
            what[2 * j], what[2 * j + 1] = state[i] + 1, -state[i] - 1
        for j in range(w):
            i = rows[row_ptr[r] + j]
            k = 2 * (m + j)
            time[k], time[k + 1] = row_start[i], row_end[i]
            what[k], what[k + 1] = _ROW_BEGINS, _ROW_ENDS
            row[k], row[k + 1] = i, i
        active = np.zeros(12, dtype=np.int64)
        total = np.zeros(12, dtype=np.int64)
        both, last = 0, 0
        for e in np.argsort(time):
            passed = time[e] - last
            last = time[e]
            now = 0
            while now < _UNKNOWN and active[now] == 0:
                now += 1
            total[now] += passed
            if now < _WORKING and active[_BLOCKED_TRANSFER : _FLYING_WAIT + 1].any():
                both += passed
            if row[e] < 0:
                active[abs(what[e]) - 1] += 1 if what[e] > 0 else -1
            elif what[e] == _ROW_BEGINS:
                out[row[e]] -= total
                overlapped[row[e]] -= both
            else:
                out[row[e]] += total
                overlapped[row[e]] += both
    return out, overlapped
