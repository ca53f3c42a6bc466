"""The happened-before order (Lamport 1978), by replaying the job without its clocks.

Every lane runs through its stamps in program order. At the end of a span that waits at a gate (model.gates) the lane stops
until the gate is open; the last start that opens it sets all waiting lanes going again. The order in which stamps are passed is
topological, and the Lamport clock falls out of the same pass:

    L(start) = L(previous on lane) + 1
    L(end)   = max(L(previous on lane), L(gate)) + 1,   L(gate) = max over the starts it needs of L(start)

If all lanes stand still, the gates they wait at form a cycle: something was matched wrongly, because no real run can do this. Of
every cycle the gate with the fewest members is dropped (it has the least support), reported in `broken`, and the replay goes on.
Cost O(stamps); each standstill adds O(lanes + members of the gates waited at). After STANDSTILLS_MAX of them, which only garbage
reaches, all gates still closed are dropped at once.
"""

from __future__ import annotations

import itertools

import numpy as np
from numba import njit

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.gates import Gates, gates_of
from crossrank.model.matches import Matches
from crossrank.model.order import Order
from crossrank.model.trace import JobTrace

STANDSTILLS_MAX = 1_000


def replay(trace: JobTrace, matches: Matches) -> Order:
    """A topological order of all stamps with Lamport times; the same for the same trace, whatever the clocks say."""
    gates = gates_of(matches, len(trace))
    need = gates.needs.copy()
    lanes = len(trace.lanes)
    state = _Standstill(trace, gates)
    order = np.empty(len(trace.lane_stamps), dtype=np.int64)
    lamport = np.zeros(2 * len(trace), dtype=np.int64)
    at = trace.lane_stamp_ptr[:-1].copy()
    blocked_at = np.full(lanes, -1, dtype=np.int32)
    clock = np.zeros(lanes, dtype=np.int64)
    gate_clock = np.zeros(len(gates), dtype=np.int64)
    come = np.zeros(len(gates), dtype=np.int64)
    ready = np.arange(lanes, dtype=np.int32)[::-1].copy()
    waiting = np.full(len(gates), -1, dtype=np.int32), np.full(lanes, -1, dtype=np.int32)
    done = 0
    broken: list[int] = []
    for standstills in itertools.count(1):
        done = _run(
            trace.lane_stamps, trace.lane_stamp_ptr, gates.arrives, gates.waits,
            need, come, gate_clock, at, blocked_at, clock, *waiting, ready, order, lamport, done,
        )  # fmt: skip
        if done == len(order):
            break
        if standstills < STANDSTILLS_MAX:
            dropped = state.weakest_of_cycles(blocked_at, lamport)
        else:
            dropped = np.flatnonzero(come < need).tolist()
        assert dropped, (done, len(order))
        broken += dropped
        need[dropped] = 0
        gate_clock[dropped] = 0
        ready = np.flatnonzero((blocked_at >= 0) & (need[blocked_at] == 0)).astype(np.int32)[::-1].copy()
        waiting[0][blocked_at[ready]] = -1
        blocked_at[ready] = -1
    return Order(order, lamport, tuple(gates.name(g) for g in sorted(broken)))


@njit(cache=True, nogil=True)
def _run(
    stamps: Int64Array, ptr: Int64Array, arrives: Int32Array, waits: Int32Array,
    need: Int64Array, come: Int64Array, gate_clock: Int64Array, at: Int64Array, blocked_at: Int32Array, clock: Int64Array,
    head: Int32Array, following: Int32Array, ready: Int32Array, order: Int64Array, lamport: Int64Array, done: int,
) -> int:  # fmt: skip
    """Runs all ready lanes until each has ended or waits; returns the number of stamps passed so far.

    The lanes that wait at a gate are a linked list: `head` [gates], `following` [lanes].
    """
    stack = np.empty(len(at) + 1, dtype=np.int32)
    top = 0
    for lane in ready:
        stack[top] = lane
        top += 1
    while top > 0:
        top -= 1
        lane = stack[top]
        while at[lane] < ptr[lane + 1]:
            stamp = stamps[at[lane]]
            span = stamp >> 1
            if stamp & 1:
                gate = waits[span]
                if gate >= 0:
                    if come[gate] < need[gate]:
                        blocked_at[lane] = gate
                        following[lane] = head[gate]
                        head[gate] = lane
                        break
                    clock[lane] = max(clock[lane], gate_clock[gate])
            clock[lane] += 1
            lamport[stamp] = clock[lane]
            order[done] = stamp
            done += 1
            at[lane] += 1
            gate = arrives[span]
            if (stamp & 1) == 0 and gate >= 0:
                come[gate] += 1
                if come[gate] <= need[gate]:  # a dropped gate needs nothing: late arrivals no longer move its clock
                    gate_clock[gate] = max(gate_clock[gate], clock[lane])
                if come[gate] == need[gate]:
                    waiting = head[gate]
                    head[gate] = -1
                    while waiting >= 0:
                        blocked_at[waiting] = -1
                        stack[top] = waiting
                        top += 1
                        waiting = following[waiting]
    return done


class _Standstill:
    """Finds the cycles among the gates at which lanes wait, when no lane can go on."""

    def __init__(self, trace: JobTrace, gates: Gates) -> None:
        self._lane = trace.lane
        self._arrives = gates.arrives
        self._needs = gates.needs
        self._arrivers: tuple[Int64Array, Int64Array] | None = None

    def weakest_of_cycles(self, blocked_at: Int32Array, lamport: Int64Array) -> list[int]:
        """The gate of least support in every cycle, ascending; ties go to the lowest gate number."""
        spans, ptr = self._arrivers_of_gates()
        waited_at = np.unique(blocked_at[blocked_at >= 0])
        leads_to: dict[int, int] = {}
        for gate in waited_at.tolist():
            members = spans[ptr[gate] : ptr[gate + 1]]
            missing = members[_not_passed(members, lamport)]
            leads_to[gate] = int(blocked_at[self._lane[missing[0]]])
        return sorted({min(cycle, key=lambda g: (int(self._needs[g]), g)) for cycle in _cycles(leads_to)})

    def _arrivers_of_gates(self) -> tuple[Int64Array, Int64Array]:
        if self._arrivers is None:
            spans = np.flatnonzero(self._arrives >= 0)
            spans = spans[np.argsort(self._arrives[spans], kind="stable")]
            ptr = np.searchsorted(self._arrives[spans], np.arange(len(self._needs) + 1)).astype(np.int64)
            self._arrivers = (spans, ptr)
        return self._arrivers


def _not_passed(spans: Int64Array, lamport: Int64Array) -> BoolArray:
    return lamport[2 * spans] == 0


def _cycles(leads_to: dict[int, int]) -> list[list[int]]:
    """All cycles of a graph in which every node leads to exactly one."""
    seen: dict[int, int] = {}
    cycles = []
    for start in leads_to:
        path = []
        node = start
        while node not in seen:
            seen[node] = start
            path.append(node)
            node = leads_to[node]
        if seen[node] == start:  # met on this very walk: the rest of the path is a cycle
            cycles.append(path[path.index(node) :])
    return cycles
