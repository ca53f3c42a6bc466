"""Vector timestamps at some of the gates: checkpoints at which a search for causes may stop.

The vector timestamp of a gate (Fidge, Mattern 1988) has one entry for each lane: the last stamp of that lane that happened before the
gate opened. With it "did a happen before this?" is one comparison. A vector at every stamp of 1,024 lanes would take gigabytes for a
million spans (and N entries cannot be avoided, Charron-Bost 1991), so only some gates keep theirs: whenever a lane has waited `every`
times without passing one that does; gates that many wait at come first, since all of them pass the vector. A search backwards from any stamp then meets one within `every` waits on each lane, or twice as many, and what
that vector rules out on all other lanes need not be looked at. `every` is as small as fits into BYTES_PER_SPAN.

The vectors come out of one pass over a topological order. Only lanes and gates that are open but not yet passed by all who wait hold
a live one; where these would not fit into LIVE_BYTES there are no vectors, and a search goes on without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array

BYTES_PER_SPAN = 32
LIVE_BYTES = 64 << 20  # of lanes, and as much of gates
MOST_OFTEN = 4  # waits between two vectors of a lane: closer ones would hardly shorten a search


@dataclass(frozen=True, slots=True)
class Vectors:
    """v vectors over all lanes, and where each lane passes them: its marks are [lane_ptr[l], lane_ptr[l + 1]).

    after: [v, lanes] place of the last stamp of each lane that the gate comes after, -1.
    place: [m] of the end that waited, ascending within a lane; vector: [m] of the gate it waited at.
    """

    after: Int32Array
    lane_ptr: Int64Array
    place: Int32Array
    vector: Int32Array

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.after.nbytes + self.lane_ptr.nbytes + self.place.nbytes + self.vector.nbytes


def vectors_of(
    order: Int64Array, lane_of: Int32Array, lanes: int, place: Int32Array, arrives: Int32Array, waits: Int32Array, gates: int
) -> Vectors:
    """Vectors of a trace: `order` and the gates of its stamps as in `causality.CausalIndex`."""
    none = Vectors(np.empty((0, lanes), np.int32), np.zeros(lanes + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
    row_bytes = 4 * lanes
    if lanes < 2 or lanes * row_bytes > LIVE_BYTES:
        return none
    every, chosen = MOST_OFTEN, np.zeros(gates, np.bool_)
    waiters = np.bincount(waits[waits >= 0], minlength=gates)
    # Along a lane vectors must grow, so a gate's must hold the history of all who wait at it: they opened it too, or it is one
    # receiver, whose own vector is kept then.
    opened_it = np.bincount(waits[(waits >= 0) & (waits == arrives)], minlength=gates)
    weight = np.where((opened_it == waiters) | (waiters == 1), waiters, 0)
    while (count := _choose(order, lane_of, lanes, waits, weight, every, chosen)) * row_bytes > BYTES_PER_SPAN * len(lane_of):
        every += every // 4 + 1
    number = np.where(chosen, np.cumsum(chosen) - 1, -1).astype(np.int32)
    after = np.full((count, lanes), -1, np.int32)
    live, known = np.empty((max(LIVE_BYTES // row_bytes, 1), lanes), np.int32), np.full((lanes, lanes), -1, np.int32)
    marked = np.zeros(len(lane_of), np.bool_)
    if not _pass(order, lane_of, place, arrives, waits, waiters, number, known, live, after, marked):
        return none
    span = np.flatnonzero(marked)
    span = span[np.argsort(place[2 * span + 1], kind="stable")]
    lane_ptr = np.concatenate(([0], np.cumsum(np.bincount(lane_of[span], minlength=lanes)))).astype(np.int64)
    return Vectors(after, lane_ptr, place[2 * span + 1], number[waits[span]])


@njit(cache=True, nogil=True)
def _choose(
    order: Int64Array, lane_of: Int32Array, lanes: int, waits: Int32Array, weight: Int64Array, every: int, chosen: BoolArray
) -> int:
    """Marks the gates that keep their vector; how many. weight: [g] who wait at the gate, 0 where it may not keep one."""
    chosen[:] = False
    since = np.zeros(lanes, np.int64)
    count = 0
    for stamp in order:
        span = stamp >> 1
        gate = waits[span]
        if (stamp & 1) == 0 or gate < 0:
            continue
        lane = lane_of[span]
        since[lane] += 1
        if not chosen[gate] and weight[gate] > 0 and since[lane] >= (every if weight[gate] > 1 else 2 * every):
            chosen[gate] = True
            count += 1
        if chosen[gate]:
            since[lane] = 0
    return count


@njit(cache=True, nogil=True)
def _pass(
    order: Int64Array, lane_of: Int32Array, place: Int32Array, arrives: Int32Array, waits: Int32Array, waiters: Int64Array,
    number: Int32Array, known: Int32Array, live: Int32Array, after: Int32Array, marked: BoolArray,
) -> bool:  # fmt: skip
    """Fills `after` and `marked`; False where more gates are open at once than `live` has rows. known: [lanes, lanes] starts at -1.

    Marked are waiters that know no more than the gate: spans nest, and an operation inside another has an end of its own.
    """
    row_of = np.full(len(waiters), -1, np.int32)
    left = waiters.copy()
    free = np.arange(len(live), dtype=np.int32)[::-1].copy()
    top = len(free)
    for stamp in order:
        span = stamp >> 1
        lane = lane_of[span]
        if stamp & 1:
            gate = waits[span]
            if gate < 0 or row_of[gate] < 0:  # a gate without openers has no vector
                continue
            _raise(known[lane], live[row_of[gate]])
            if number[gate] >= 0:
                if left[gate] == waiters[gate]:
                    after[number[gate]] = live[row_of[gate]] if waiters[gate] > 1 else known[lane]
                marked[span] = _same_but(lane, known[lane], after[number[gate]])
            left[gate] -= 1
            if left[gate] == 0:
                free[top] = row_of[gate]
                top += 1
                row_of[gate] = -1
        else:
            gate = arrives[span]
            if gate < 0 or left[gate] == 0:
                continue
            if row_of[gate] < 0:
                if top == 0:
                    return False
                top -= 1
                row_of[gate] = free[top]
                live[free[top]] = known[lane]
            else:
                _raise(live[row_of[gate]], known[lane])
            live[row_of[gate], lane] = max(live[row_of[gate], lane], place[stamp])
    return True


@njit(cache=True, nogil=True)
def _raise(lower: Int32Array, by: Int32Array) -> None:
    for i in range(len(lower)):
        lower[i] = max(lower[i], by[i])


@njit(cache=True, nogil=True)
def _same_but(lane: int, one: Int32Array, other: Int32Array) -> bool:
    """Whether two vectors agree on all other lanes; its own a lane need not be told."""
    same = True
    for i in range(len(one)):
        same = same and (one[i] == other[i] or i == lane)
    return same
