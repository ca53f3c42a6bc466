"""Whether one span happened before another, and through which chain of operations.

Span a happened before span b when everything in a was over, in the order of causes, before b began: a chain leads from a's end to
b's start along lanes and through gates (model.gates). Then no clock can put b first. When neither happened before the other they
are concurrent: what the aligned times say about their order is only as good as the clocks.

The search goes backwards from b. On every lane it keeps the latest stamp known to precede b; every end below it that waited at a
gate makes the starts that opened the gate precede b as well. A gate is looked at once; what is not later than a in Lamport time
cannot follow from a and is left out.

Vector timestamps at some gates (`vectors`) cut the walk along a lane short. Of those that a lane has passed, the earliest that comes
after a bounds it from above: a chain is found at that gate or since the vector before. The latest that does not come after a bounds
it from below, on this lane and, by its other entries, on all lanes. Cost: the members of the gates between two vectors of the
lanes that lie between a and b.

The cone of a span is everything that comes after its end: one pass over a topological order finds where each lane enters it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.model.gates import NO_GATE, gates_of
from crossrank.model.matches import Matches
from crossrank.model.order import Order
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.vectors import Vectors, vectors_of


@dataclass(frozen=True, slots=True)
class Relation:
    """How two spans relate, and spans that witness it from the earlier one to the later one (empty when concurrent)."""

    relation: Literal["before", "after", "concurrent"]
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CausalIndex:
    """What all questions about one trace share: some 60 bytes a span beside the arrays of the trace and the order."""

    lanes: int
    lane_of: Int32Array  # [n]
    stamps: Int64Array  # [s] in lane order
    place: Int32Array  # [2n] of each stamp in `stamps`, -1 for the missing end of an open span
    waited: Int32Array  # [s] place of the last end on the lane, here or before, that waits at a gate; -1
    lamport: Int64Array  # [2n]
    gate_of: Int32Array  # [n] gate at which the span's end waits, NO_GATE
    opener: Int32Array  # spans whose starts open gates, gate after gate
    opener_ptr: Int64Array  # [g + 1]
    arrives: Int32Array  # [n] gate that the span's start helps to open, NO_GATE
    order: Int64Array  # [s] stamps in topological order
    vectors: Vectors

    @property
    def nbytes(self) -> int:
        """Memory beyond the arrays of the trace and the order."""
        own = self.place, self.waited, self.gate_of, self.opener, self.opener_ptr, self.arrives
        return sum(a.nbytes for a in own) + self.vectors.nbytes


def causal_index(trace: JobTrace, matches: Matches, order: Order) -> CausalIndex:
    """Prepares questions. O(stamps). Gates that the replay had to drop are not part of any chain."""
    gates = gates_of(matches, len(trace))
    gate_of = gates.waits.copy()
    dropped = [i if what == "collective" else gates.collectives + i for what, i in order.broken]
    if dropped:
        gate_of[np.isin(gate_of, dropped)] = NO_GATE
    place = np.full(2 * len(trace), -1, dtype=np.int32)
    at = np.arange(len(trace.lane_stamps), dtype=np.int32)
    place[trace.lane_stamps] = at
    waits = (trace.lane_stamps % 2 == 1) & (gate_of[trace.lane_stamps // 2] != NO_GATE)
    waited = np.maximum.accumulate(np.where(waits, at, np.int32(-1))) if len(at) else at
    lane_start = np.repeat(trace.lane_stamp_ptr[:-1].astype(np.int32), np.diff(trace.lane_stamp_ptr))
    arriving = np.flatnonzero(gates.arrives != NO_GATE)
    arriving = arriving[np.argsort(gates.arrives[arriving], kind="stable")]
    return CausalIndex(
        lanes=len(trace.lanes),
        lane_of=trace.lane,
        stamps=trace.lane_stamps,
        place=place,
        waited=np.where(waited >= lane_start, waited, np.int32(-1)),
        lamport=order.lamport,
        gate_of=gate_of,
        opener=arriving.astype(np.int32),
        opener_ptr=np.concatenate((np.zeros(1, np.int64), np.cumsum(gates.needs))),
        arrives=gates.arrives,
        order=order.stamps,
        vectors=vectors_of(order.stamps, trace.lane, len(trace.lanes), place, gates.arrives, gate_of, len(gates)),
    )


def relation(index: CausalIndex, a: int, b: int) -> Relation:
    """How span a relates to span b. An open span has no end, so it is before nothing."""
    forward = _chain(index, 2 * a + 1, 2 * b)
    if forward is not None:
        return Relation("before", forward)
    backward = _chain(index, 2 * b + 1, 2 * a)
    return Relation("concurrent", ()) if backward is None else Relation("after", backward)


@dataclass(frozen=True, slots=True)
class Cone:
    """All that a span's end happened before. entry: [lanes] first stamp of each lane inside, -1 where none; stamps: how many."""

    entry: Int64Array
    stamps: int


def cone(index: CausalIndex, a: int) -> Cone:
    """Everything that can be late because of span a. O(stamps after it). Of an open span nothing is known to follow."""
    entry = np.full(index.lanes, -1, dtype=np.int64)
    if index.place[2 * a + 1] < 0:
        return Cone(entry, 0)
    begin = int(np.flatnonzero(index.order == 2 * a + 1)[0])
    opened = np.zeros(len(index.opener_ptr), dtype=np.uint8)
    return Cone(entry, int(_spread(index.order, begin, index.lane_of, index.arrives, index.gate_of, opened, entry)))


@njit(cache=True, nogil=True)
def _spread(
    order: Int64Array,
    begin: int,
    lane_of: Int32Array,
    arrives: Int32Array,
    waits: Int32Array,
    opened: Int64Array,
    entry: Int64Array,
) -> int:
    """Fills `entry`; `opened` starts at 0. The stamp at `begin` is the apex and not counted itself."""
    inside = np.zeros(len(entry), np.uint8)
    inside[lane_of[order[begin] >> 1]] = 1
    count = 0
    for i in range(begin + 1, len(order)):
        stamp = order[i]
        span = stamp >> 1
        lane = lane_of[span]
        if stamp & 1 and waits[span] >= 0 and opened[waits[span]] == 1:
            inside[lane] = 1
        if inside[lane] == 1:
            if entry[lane] < 0:
                entry[lane] = stamp
            count += 1
            if (stamp & 1) == 0 and arrives[span] >= 0:
                opened[arrives[span]] = 1
    return count


def _chain(index: CausalIndex, first: int, last: int) -> tuple[int, ...] | None:
    """Spans from one stamp to a later one, or None when there is no chain between them."""
    if index.place[first] < 0 or index.place[last] < 0 or index.lamport[first] >= index.lamport[last]:
        return None
    v = index.vectors
    steps = _search(
        first, last, index.lane_of, index.stamps, index.place, index.waited, index.lamport, index.gate_of, index.opener,
        index.opener_ptr, v.after, v.lane_ptr, v.place, v.vector,
    )  # fmt: skip
    if steps[0] < 0:
        return None
    spans = [first // 2, *steps[1:].tolist(), last // 2]
    return tuple(s for i, s in enumerate(spans) if i == 0 or s != spans[i - 1])


@njit(cache=True, nogil=True)
def _search(
    first: int, last: int, lane_of: Int32Array, stamps: Int64Array, place: Int64Array, waited: Int64Array, lamport: Int64Array,
    gate_of: Int32Array, opener: Int64Array, opener_ptr: Int64Array,
    after: Int32Array, mark_ptr: Int64Array, mark_place: Int32Array, mark_vector: Int32Array,
) -> Int64Array:  # fmt: skip
    """[0, spans of the chain: opener and waiter of each gate, from first to last] or [-1]."""
    home, goal = lane_of[first >> 1], place[first]
    # [lanes] up to where a lane is known to precede `last` and either is looked at already or does not come after `first`.
    reach = np.full(len(mark_ptr) - 1, -1, np.int32)
    seen = np.zeros(len(opener_ptr) - 1, np.uint8)
    # Discoveries: the start `entry` precedes `last` because the end `through` waited for it, found from discovery `parent`.
    entry, through, parent = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256, np.int64)
    entry[0], through[0], parent[0] = last, -1, -1
    count, found = 1, -1
    if lane_of[last >> 1] == home and place[last] > goal:
        found = 0
    at = 0
    while at < count and found < 0:
        here, p = lane_of[entry[at] >> 1], place[entry[at]]
        low, high = _between_marks(mark_ptr[here], mark_ptr[here + 1], mark_place, mark_vector, after, p, home, goal)
        floor = np.int64(-1)
        if low >= 0:
            floor = mark_place[low]
            _rule_out(reach, after[mark_vector[low]])
        z = waited[p if high < 0 else mark_place[high]]
        while z > floor and found < 0 and lamport[stamps[z]] > lamport[first]:
            gate = gate_of[stamps[z] >> 1]
            if seen[gate] == 0:
                seen[gate] = 1
                # Most chains end at a gate that the lane of `first` opened too: one look spares a thousand other openers.
                k = _opener_on(home, opener_ptr[gate], opener_ptr[gate + 1], opener, lane_of)
                begin = k if k >= 0 and place[2 * opener[k]] >= goal else opener_ptr[gate]
                for k in range(begin, opener_ptr[gate + 1]):
                    span = opener[k]
                    lane, q = lane_of[span], place[2 * span]
                    if q <= reach[lane] or (lamport[2 * span] <= lamport[first] and 2 * span != first):
                        continue
                    reach[lane] = q
                    if count == len(entry):
                        entry, through, parent = _doubled(entry), _doubled(through), _doubled(parent)
                    entry[count], through[count], parent[count] = 2 * span, stamps[z], at
                    count += 1
                    if lane == home and q >= goal:
                        found = count - 1
                        break
            z = waited[z - 1] if z > 0 and lane_of[stamps[z - 1] >> 1] == here else -1
        at += 1
    if found < 0:
        return np.full(1, -1, dtype=np.int64)
    steps = 0
    at = found
    while parent[at] >= 0:
        steps += 1
        at = parent[at]
    chain = np.zeros(1 + 2 * steps, np.int64)
    for i in range(steps):
        chain[1 + 2 * i], chain[2 + 2 * i] = entry[found] >> 1, through[found] >> 1
        found = parent[found]
    return chain


@njit(cache=True, nogil=True)
def _opener_on(lane: int, first: int, last: int, opener: Int64Array, lane_of: Int32Array) -> int:
    """Place among a gate's openers, which ascend by lane, of the one on a lane; -1 without."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if lane_of[opener[middle]] < lane:
            low = middle + 1
        else:
            high = middle
    return low if low < last and lane_of[opener[low]] == lane else -1


@njit(cache=True, nogil=True)
def _between_marks(
    first: int, last: int, mark_place: Int32Array, mark_vector: Int32Array, after: Int32Array, p: int, home: int, goal: int
) -> tuple[int, int]:
    """Of a lane's marks up to place p: the last whose vector is not after the goal on lane `home`, and the next one; -1 without."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if mark_place[middle] <= p and after[mark_vector[middle], home] < goal:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low > first else -1, low if low < last and mark_place[low] <= p else -1


@njit(cache=True, nogil=True)
def _rule_out(reach: Int32Array, after: Int32Array) -> None:
    for i in range(len(reach)):
        reach[i] = max(reach[i], after[i])


@njit(cache=True, nogil=True)
def _doubled(values: Int64Array) -> Int64Array:
    out = np.empty(2 * len(values), np.int64)
    out[: len(values)] = values
    return out
