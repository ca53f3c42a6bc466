"""What sets a lane going that stood still: the edges between the lanes of one rank.

Two questions, both about one rank and therefore one clock.

*A wait ends.* A `sync` span ends because something asynchronous of its rank completed. It is the communication in flight whose
end lies nearest to the wait's end (recorders stamp that end shortly before or after the wait returns). The wait then ends as that
communication does: after its gate, plus what it took in the recording.

*A span starts on an idle lane.* Either its own lane has just become free (the gap is short: a queue), or something on another
lane of the rank launched it: then it follows the latest program stamp there, and the time in between is the work going on there.
On the rank's main lane (the one that holds its steps) a start follows the lane itself, unless something else completed just
before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.analysis.lane_work import NO_STAMP, LaneWork, stamp_times
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.kinds import COLLECTIVE, RECV, SEND, STEP, SYNC
from crossrank.model.timeline import Timeline
from crossrank.model.trace import JobTrace

QUEUE_GAP_NS = 50_000  # a lane that goes on within this time was waiting for itself, not for a launch
_WAIT_TOLERANCE_NS = 1_000_000  # how far a completion may be stamped from the end of the wait it ends


@dataclass(frozen=True, slots=True)
class Releases:
    """Second predecessors of stamps."""

    waits_for: Int64Array  # [n] communication whose completion ends this wait, -1
    launched_by: Int64Array  # [2n] stamp on another lane that a start follows, NO_STAMP
    by_lane: BoolArray  # [2n] the own lane's predecessor still counts in full


def find_releases(timeline: Timeline, work: LaneWork) -> Releases:
    """Finds both kinds of edges. O(stamps log stamps)."""
    trace = timeline.trace
    time_ns = stamp_times(timeline)
    launched_by = np.full(2 * len(trace), NO_STAMP, dtype=np.int64)
    by_lane = np.ones(2 * len(trace), dtype=np.bool_)
    if len(trace.lanes) > len(trace.ranks):
        stamps, ptr = _program_by_rank(trace, work, time_ns)
        idle = _starts_on_idle_lane(trace, work)
        _launches(stamps, ptr, trace.lane, idle, _main_lane(trace), work.pred, time_ns, launched_by, by_lane)
    return Releases(_ends_of_waits(timeline), launched_by, by_lane)


def _ends_of_waits(timeline: Timeline) -> Int64Array:
    trace = timeline.trace
    found = np.full(len(trace), -1, dtype=np.int64)
    waits = np.flatnonzero((trace.kind == SYNC) & ~trace.is_open)
    comm = np.flatnonzero(np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async & ~trace.is_open)
    if len(waits) == 0 or len(comm) == 0:
        return found
    comm = comm[np.lexsort((timeline.end_ns[comm], trace.rank[comm]))]
    waits = waits[np.lexsort((timeline.end_ns[waits], trace.rank[waits]))]
    _nearest_completion(waits, comm, trace.rank, timeline.start_ns, timeline.end_ns, found)
    return found


@njit(cache=True, nogil=True)
def _nearest_completion(
    waits: Int64Array, comm: Int64Array, rank: Int32Array, start_ns: Int64Array, end_ns: Int64Array, found: Int64Array
) -> None:
    """For each wait (by rank, end) the communication in flight whose end is nearest to its end, within the tolerance."""
    low = 0
    for w in waits:
        tolerance = max(_WAIT_TOLERANCE_NS, (end_ns[w] - start_ns[w]) // 20)
        first = min(start_ns[w], end_ns[w] - tolerance)
        while low < len(comm) and (rank[comm[low]] < rank[w] or (rank[comm[low]] == rank[w] and end_ns[comm[low]] < first)):
            low += 1
        best = tolerance + 1
        for j in range(low, len(comm)):
            c = comm[j]
            if rank[c] != rank[w] or end_ns[c] > end_ns[w] + tolerance:
                break
            away = abs(end_ns[c] - end_ns[w])
            if start_ns[c] < end_ns[w] and end_ns[c] >= start_ns[w] and away < best:
                best = away
                found[w] = c


def _main_lane(trace: JobTrace) -> BoolArray:
    """[lanes] the lane of each rank that holds its steps, or else most of its program."""
    lanes = len(trace.lanes)
    frames = np.bincount(trace.lane[trace.kind == STEP], minlength=lanes)
    score = frames * (len(trace) + 1) + np.bincount(trace.lane[~np.isin(trace.kind, (COLLECTIVE, SEND, RECV))], minlength=lanes)
    order = np.lexsort((np.arange(lanes), -score, trace.lane_rank))
    main = np.zeros(lanes, dtype=np.bool_)
    main[order[np.unique(trace.lane_rank[order], return_index=True)[1]]] = True
    return main


def _starts_on_idle_lane(trace: JobTrace, work: LaneWork) -> BoolArray:
    """[2n] starts with nobody at work on their lane before them."""
    is_start = np.arange(2 * len(trace)) % 2 == 0
    owned = work.owner >= 0
    by_frame = np.zeros(2 * len(trace), dtype=np.bool_)
    by_frame[owned] = trace.kind[work.owner[owned]] == STEP
    return is_start & work.is_program & (~owned | by_frame)


def _program_by_rank(trace: JobTrace, work: LaneWork, time_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Program stamps of the ranks with more than one lane, by (rank, time); at equal times ends come first."""
    lane_of = np.repeat(np.arange(len(trace.lanes)), np.diff(trace.lane_stamp_ptr))
    crowded = (np.bincount(trace.lane_rank, minlength=int(trace.rank.max()) + 1) > 1)[trace.lane_rank]
    kept = crowded[lane_of] & work.is_program[trace.lane_stamps]
    stamps, lane_of = trace.lane_stamps[kept], lane_of[kept]
    stamps = stamps[np.lexsort((1 - stamps % 2, time_ns[stamps], trace.lane_rank[lane_of]))]
    ranks = trace.rank[stamps // 2]
    return stamps, np.concatenate((np.flatnonzero(np.diff(ranks, prepend=-1)), [len(stamps)])).astype(np.int64)


@njit(cache=True, nogil=True)
def _launches(
    stamps: Int64Array,
    ptr: Int64Array,
    lane: Int32Array,
    idle: BoolArray,
    main: BoolArray,
    pred: Int64Array,
    time_ns: Int64Array,
    launched_by: Int64Array,
    by_lane: BoolArray,
) -> None:
    """For each start on an idle lane: the latest stamp on another lane of the rank, and whether its own lane was busy till then."""
    for r in range(len(ptr) - 1):
        last = -1  # latest stamp of the rank
        other = -1  # latest stamp on another lane than that of `last`
        for j in range(ptr[r], ptr[r + 1]):
            s = stamps[j]
            mine = lane[s // 2]
            away = last if (last >= 0 and lane[last // 2] != mine) else other
            if idle[s] and away >= 0:
                before = time_ns[pred[s]] if pred[s] >= 0 else -1
                gap = time_ns[s] - before if pred[s] >= 0 else time_ns[s] - time_ns[away] + 1
                near = time_ns[s] - time_ns[away]
                if main[mine]:
                    if away % 2 == 1 and time_ns[away] > before and near <= max(QUEUE_GAP_NS, gap // 20):
                        launched_by[s] = away
                        by_lane[s] = False
                elif gap > max(QUEUE_GAP_NS, near // 20):
                    launched_by[s] = away
                    by_lane[s] = False
            if last >= 0 and lane[last // 2] != mine:
                other = last
            last = s
