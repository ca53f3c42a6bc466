"""The smallest repair of fitted times that leaves nothing before its cause.

After the fit a few stamps still lie a little before something they must follow. Two passes over the happened-before order give
two repairs that move everything one way only (times t, edges u -> v meaning x_u <= x_v):

    forward   F_v = max(t_v, F_u for all u before v)      moves late what comes too early
    backward  B_v = min(t_v, B_w for all w after v)       moves early what comes too late

Both keep every edge, and so does their mean x = (F + B) / 2, since edges are linear. If the worst violation along a chain is V
then F - t and t - B are at most V, so no stamp moves more than V / 2, and no repair can do better: the two ends of that chain
must close V between them. What is not on a violated chain does not move at all. (The forward pass alone is the logical clock of
Lamport, "controlled" by Rabenseifner; it moves everything late and twice as far.)

All in integers: rounding (F + B) down keeps the order of sums, so no violation returns by rounding.
"""

from __future__ import annotations

import numba
import numpy as np

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.model.gates import NO_GATE, Gates, gates_of
from crossrank.model.matches import Matches
from crossrank.model.order import Order
from crossrank.model.trace import JobTrace

_EARLIEST = np.iinfo(np.int64).min
_LATEST = np.iinfo(np.int64).max


def repair(
    trace: JobTrace, matches: Matches, order: Order, start_ns: Int64Array, end_ns: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Repaired (start, end) [n] of all spans of a trace; for an open span both are its start.

    Every edge that `order` kept holds afterwards, whatever the times were. Constraints it had to drop do not bind.
    """
    stamp_ns = np.empty(2 * len(trace), dtype=np.int64)
    stamp_ns[0::2], stamp_ns[1::2] = start_ns, end_ns
    gates = _without(gates_of(matches, len(trace)), order)
    where = trace.lane, len(trace.lanes), gates.arrives, gates.waits, len(gates)
    late, early = stamp_ns.copy(), stamp_ns.copy()
    _forward(order.stamps, *where, late)
    _backward(order.stamps, *where, early)
    repaired = early + (late - early) // 2
    start = repaired[0::2]
    return start.copy(), np.where(trace.is_open, start, repaired[1::2])


def _without(gates: Gates, order: Order) -> Gates:
    """Gates with those left out whose constraint closed a cycle."""
    if not order.broken:
        return gates
    kept = np.ones(len(gates), dtype=bool)
    for kind, number in order.broken:
        kept[number + (gates.collectives if kind == "message" else 0)] = False
    arrives = np.where((gates.arrives != NO_GATE) & kept[gates.arrives], gates.arrives, NO_GATE)
    waits = np.where((gates.waits != NO_GATE) & kept[gates.waits], gates.waits, NO_GATE)
    return Gates(arrives, waits, np.where(kept, gates.needs, 0), gates.collectives)


@numba.njit(cache=True, nogil=True)
def _forward(
    stamps: Int64Array, lane: Int32Array, lanes: int, arrives: Int32Array, waits: Int32Array, gates: int, t: Int64Array
) -> None:
    """Each stamp not before its predecessor on the lane and, for an end that waits, all starts that opened its gate."""
    latest = np.full(lanes, _EARLIEST, dtype=np.int64)
    opened = np.full(gates, _EARLIEST, dtype=np.int64)
    for stamp in stamps:
        span = stamp >> 1
        x = max(t[stamp], latest[lane[span]])
        if stamp & 1:
            if waits[span] >= 0:
                x = max(x, opened[waits[span]])
        elif arrives[span] >= 0:
            opened[arrives[span]] = max(opened[arrives[span]], x)
        latest[lane[span]] = x
        t[stamp] = x


@numba.njit(cache=True, nogil=True)
def _backward(
    stamps: Int64Array, lane: Int32Array, lanes: int, arrives: Int32Array, waits: Int32Array, gates: int, t: Int64Array
) -> None:
    """The mirror image: each stamp not after its successor on the lane and, for a start, all ends that wait for it."""
    earliest = np.full(lanes, _LATEST, dtype=np.int64)
    closed = np.full(gates, _LATEST, dtype=np.int64)
    for i in range(len(stamps) - 1, -1, -1):
        stamp = stamps[i]
        span = stamp >> 1
        x = min(t[stamp], earliest[lane[span]])
        if stamp & 1:
            if waits[span] >= 0:
                closed[waits[span]] = min(closed[waits[span]], x)
        elif arrives[span] >= 0:
            x = min(x, closed[arrives[span]])
        earliest[lane[span]] = x
        t[stamp] = x
