"""Whether one span happened before another, and through which chain of operations.

Span a happened before span b when everything in a was over, in the order of causes, before b began: a chain leads from a's end to
b's start along lanes and through gates (model.gates). Then no clock can put b first. When neither happened before the other they
are concurrent: what the aligned times say about their order is only as good as the clocks.

The search goes backwards from b. On every lane it keeps the latest stamp known to precede b; every end below it that waited at a
gate makes the starts that opened the gate precede b as well. A gate is looked at once; what is not later than a in Lamport time
cannot follow from a and is left out. Cost: the members of the gates between a and b, in Lamport time, that b depends on.

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


@dataclass(frozen=True, slots=True)
class Relation:
    """How two spans relate, and spans that witness it from the earlier one to the later one (empty when concurrent)."""

    relation: Literal["before", "after", "concurrent"]
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CausalIndex:
    """What all questions about one trace share: 28 bytes a span beside the arrays of the trace and the order."""

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
    steps = _search(
        first, last, index.lane_of, index.stamps, index.place, index.waited, index.lamport, index.gate_of, index.opener,
        index.opener_ptr, np.full(index.lanes, -1, dtype=np.int64), np.zeros(len(index.opener_ptr), dtype=np.uint8),
    )  # fmt: skip
    if steps[0] < 0:
        return None
    spans = [first // 2, *steps[1:].tolist(), last // 2]
    return tuple(s for i, s in enumerate(spans) if i == 0 or s != spans[i - 1])


@njit(cache=True, nogil=True)
def _search(
    first: int, last: int, lane_of: Int32Array, stamps: Int64Array, place: Int64Array, waited: Int64Array, lamport: Int64Array,
    gate_of: Int32Array, opener: Int64Array, opener_ptr: Int64Array, reach: Int64Array, seen: Int64Array,
) -> Int64Array:  # fmt: skip
    """[0, spans of the chain: opener and waiter of each gate, from first to last] or [-1]. `reach` starts at -1, `seen` at 0."""
    home, goal = lane_of[first >> 1], place[first]
    # Discoveries: the start `entry` precedes `last` because the end `through` waited for it, found from discovery `parent`.
    entry, through, parent = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256, np.int64)
    entry[0], through[0], parent[0] = last, -1, -1
    count, found = 1, -1
    reach[lane_of[last >> 1]] = place[last]
    if lane_of[last >> 1] == home and place[last] > goal:
        found = 0
    at = 0
    while at < count and found < 0:
        z = waited[place[entry[at]]]
        while z >= 0 and found < 0 and lamport[stamps[z]] > lamport[first]:
            gate = gate_of[stamps[z] >> 1]
            if seen[gate] == 0:
                seen[gate] = 1
                for k in range(opener_ptr[gate], opener_ptr[gate + 1]):
                    span = opener[k]
                    lane, p = lane_of[span], place[2 * span]
                    if p <= reach[lane] or (lamport[2 * span] <= lamport[first] and 2 * span != first):
                        continue
                    reach[lane] = p
                    if count == len(entry):
                        entry, through, parent = _doubled(entry), _doubled(through), _doubled(parent)
                    entry[count], through[count], parent[count] = 2 * span, stamps[z], at
                    if lane == home and p >= goal:
                        found = count
                    count += 1
            z = waited[z - 1] if z > 0 and lane_of[stamps[z - 1] >> 1] == lane_of[stamps[z] >> 1] else -1
        at += 1
    if found < 0:
        return np.full(1, -1, dtype=np.int64)
    chain = [np.int64(0)]
    while parent[found] >= 0:
        chain.append(entry[found] >> 1)
        chain.append(through[found] >> 1)
        found = parent[found]
    return np.array(chain)


@njit(cache=True, nogil=True)
def _doubled(values: Int64Array) -> Int64Array:
    out = np.empty(2 * len(values), np.int64)
    out[: len(values)] = values
    return out
