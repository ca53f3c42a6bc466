"""An order in which every stamp comes after all that it follows from.

Stamps by aligned time, ties in happened-before order, are such an order for edges that take time. Edges of no length between lanes
(stated causes, operations without duration) need more: a depth-first pass that puts whatever a stamp still lacks before it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.model.timeline import Timeline


def by_time(timeline: Timeline, recorded: Int64Array) -> Int64Array:
    """Stamps by aligned time, ties in happened-before order."""
    place = np.zeros(len(recorded), dtype=np.int64)
    place[timeline.order.stamps] = np.arange(len(timeline.order.stamps))
    stamps = timeline.trace.lane_stamps
    time_ns = recorded[stamps]
    order = np.argsort(time_ns)  # not stable, but several times faster than a sort by two keys; ties are few
    ranked = time_ns[order]
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[1:] = ranked[1:] == ranked[:-1]
    tied[:-1] |= tied[1:]
    at = np.flatnonzero(tied)
    order[at] = order[at][np.lexsort((place[stamps[order[at]]], ranked[at]))]
    return stamps[order]


def with_causes(
    order: Int64Array, pred: Int64Array, launch: Int64Array, cause_ptr: Int64Array, cause: Int64Array,
    opens: Int32Array, gate: Int32Array, gates: int,
) -> Int64Array:  # fmt: skip
    """The order with causes before their effects; what closes a cycle is ignored. O(stamps + edges)."""
    opener = np.flatnonzero(opens >= 0)
    opener = opener[np.argsort(opens[opener], kind="stable")]
    opener_ptr = np.searchsorted(opens[opener], np.arange(gates + 1)).astype(np.int64)
    return _depth_first(order, pred, launch, cause_ptr, cause, opener_ptr, opener, gate)


@njit(cache=True, nogil=True)
def _depth_first(
    order: Int64Array, pred: Int64Array, launch: Int64Array, cause_ptr: Int64Array, cause: Int64Array,
    opener_ptr: Int64Array, opener: Int64Array, gate: Int32Array,
) -> Int64Array:  # fmt: skip
    out = np.empty(len(order), dtype=np.int64)
    done = 0
    state = np.zeros(len(pred), dtype=np.int8)  # 1: on the stack, 2: placed
    step = np.zeros(len(pred), dtype=np.int64)  # how many prerequisites have been looked at
    gate_step = np.zeros(max(len(opener_ptr) - 1, 1), dtype=np.int64)  # openers below this are placed
    stack = np.empty(len(order) + 1, dtype=np.int64)
    for first in order:
        if state[first] != 0:
            continue
        top = 0
        stack[0], state[first] = first, 1
        while top >= 0:
            s = stack[top]
            causes = cause_ptr[s // 2 + 1] - cause_ptr[s // 2] if s % 2 == 0 else 0
            need = -1
            while need < 0 and step[s] < causes + 2:
                k = step[s]
                step[s] += 1
                p = pred[s] if k == 0 else launch[s] if k == 1 else cause[cause_ptr[s // 2] + k - 2]
                if p >= 0 and state[p] == 0:
                    need = p
            g = gate[s]
            while need < 0 and g >= 0 and gate_step[g] < opener_ptr[g + 1] - opener_ptr[g]:
                p = opener[opener_ptr[g] + gate_step[g]]
                if state[p] == 0:
                    need = p
                else:
                    gate_step[g] += 1
            if need >= 0:
                top += 1
                stack[top], state[need] = need, 1
            else:
                state[s] = 2
                out[done] = s
                done += 1
                top -= 1
    return out[:done]
