"""Which time of a lane is a rank's own work, and which span it belongs to.

Between two neighbouring stamps of a lane something was done, or the lane waited. Blame and what-if need to know which, because
only own work can be a cause: a rank that waits for another is a victim, however long it looks. So every stamp gets

    pred        the stamp it follows in program order (-1: the first of its lane)
    weight_ns   the time since then
    owner       the span whose work that time is (-1: nobody's, a gap between spans)

A communication with program stamps of its lane inside (a launch that completes later, DDP's buckets during `backward`) ends off
the program: nothing on the lane follows from its end, so its end hangs on its own start. A communication with nothing but such
completions inside blocks the lane: its time is waiting and transfer, never the work of the span around it. The owner of working
time is the innermost span around it that computes; a send owns time only where nothing computes around it (a send that blocks
the program is a slow link, not a slow computation). A step span owns what no named phase inside it does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.model.arrays import BoolArray, Int8Array, Int64Array
from crossrank.model.kinds import COLLECTIVE, MARK, METRIC, RECV, SEND, STEP
from crossrank.model.timeline import Timeline
from crossrank.model.trace import JobTrace

NO_STAMP = -1
NO_OWNER = -1

# What a span is to the program of its lane.
_WORK, _FRAME, _BLOCKING, _OVERLAPPED, _OVERLAPPED_SEND, _INSTANT = 0, 1, 2, 3, 4, 5
_DEPTH = 1024  # spans open at once on a lane; deeper ones own nothing


@dataclass(frozen=True, slots=True)
class LaneWork:
    """Program order and ownership of all 2n stamps; the missing end of an open span has no predecessor."""

    pred: Int64Array  # [2n] stamp or NO_STAMP
    weight_ns: Int64Array  # [2n]
    owner: Int64Array  # [2n] span or NO_OWNER
    is_program: BoolArray  # [2n] the next program stamp of the lane follows from this one
    is_blocking: BoolArray  # [n] communications for which the program stood still


def stamp_times(timeline: Timeline) -> Int64Array:
    """[2n] aligned time of every stamp, in stamp order."""
    return np.stack((timeline.start_ns, timeline.end_ns), axis=1).reshape(-1)


def lane_work(timeline: Timeline) -> LaneWork:
    """Finds program order, blocking and ownership. O(stamps), two compiled passes."""
    trace = timeline.trace
    role = _roles(trace)
    pred, weight, owner, is_program = _walk_lanes(trace.lane_stamps, trace.lane_stamp_ptr, role, timeline.start_ns, timeline.end_ns)
    return LaneWork(pred, weight, owner, is_program, role == _BLOCKING)


def own_ns(work: LaneWork) -> Int64Array:
    """[n] working time each span owns: its exclusive time without waits and without the communication inside it."""
    return _owned(work.owner, work.weight_ns, len(work.is_blocking))


@njit(cache=True, nogil=True)
def _owned(owner: Int64Array, weight_ns: Int64Array, spans: int) -> Int64Array:
    total = np.zeros(spans, dtype=np.int64)
    for s in range(len(owner)):
        if owner[s] >= 0:
            total[owner[s]] += weight_ns[s]
    return total


def _roles(trace: JobTrace) -> Int8Array:
    comm = np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async
    instant = np.isin(trace.kind, (MARK, METRIC))
    overlapped = comm & (trace.is_open | _holds_program(trace.lane_stamps, comm, instant))
    role = np.full(len(trace), _WORK, dtype=np.int8)
    role[trace.kind == STEP] = _FRAME
    role[comm] = _BLOCKING
    role[overlapped] = _OVERLAPPED
    role[overlapped & (trace.kind == SEND)] = _OVERLAPPED_SEND
    role[instant] = _INSTANT
    return role


@njit(cache=True, nogil=True)
def _holds_program(stamps: Int64Array, comm: BoolArray, instant: BoolArray) -> BoolArray:
    """[n] whether a program stamp lies between a span's own stamps. Completions and instants are none."""
    at_start = np.zeros(len(comm), dtype=np.int64)
    holds = np.zeros(len(comm), dtype=np.bool_)
    passed = 0  # program stamps so far, along all lanes
    for s in stamps:
        span, is_end = s // 2, s % 2 == 1
        if not instant[span] and not (is_end and comm[span]):
            passed += 1
        if is_end:
            holds[span] = passed > at_start[span]
        else:
            at_start[span] = passed
    return holds


@njit(cache=True, nogil=True)
def _owner(stack: Int64Array, depth: int, role: Int8Array) -> int:
    send = -1
    for k in range(depth - 1, -1, -1):
        span = stack[k]
        if role[span] == _OVERLAPPED_SEND:
            if send < 0:
                send = span
        elif role[span] == _WORK or role[span] == _BLOCKING:
            return span
        elif role[span] == _FRAME:
            return send if send >= 0 else span
    return send


@njit(cache=True, nogil=True)
def _walk_lanes(
    stamps: Int64Array, ptr: Int64Array, role: Int8Array, start_ns: Int64Array, end_ns: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, BoolArray]:
    """One pass over every lane with a stack of the spans that are open."""
    pred = np.full(2 * len(role), -1, dtype=np.int64)
    weight = np.zeros(2 * len(role), dtype=np.int64)
    owner = np.full(2 * len(role), -1, dtype=np.int64)
    is_program = np.empty(2 * len(role), dtype=np.bool_)
    for span in range(len(role)):
        is_program[2 * span] = role[span] != _INSTANT
        is_program[2 * span + 1] = role[span] != _INSTANT and role[span] != _OVERLAPPED and role[span] != _OVERLAPPED_SEND
    stack = np.empty(_DEPTH, dtype=np.int64)
    for lane in range(len(ptr) - 1):
        depth, last = 0, -1
        for j in range(ptr[lane], ptr[lane + 1]):
            s = stamps[j]
            span, is_end = s // 2, s % 2 == 1
            completes = is_end and (role[span] == _OVERLAPPED or role[span] == _OVERLAPPED_SEND)
            before = 2 * span if completes else last
            if before >= 0:
                pred[s] = before
                since = end_ns[before // 2] if before % 2 == 1 else start_ns[before // 2]
                weight[s] = (end_ns[span] if is_end else start_ns[span]) - since
            if not completes and role[span] != _INSTANT:
                owner[s] = _owner(stack, depth, role)
                last = s
            if role[span] == _INSTANT:
                continue
            if is_end:
                k = depth - 1
                while k >= 0 and stack[k] != span:
                    k -= 1
                if k >= 0:
                    for m in range(k, depth - 1):
                        stack[m] = stack[m + 1]
                    depth -= 1
            elif depth < _DEPTH:
                stack[depth] = span
                depth += 1
    return pred, weight, owner, is_program
