"""How much of a span's time is its own: its duration minus the union of the spans nested in it on its lane.

`forward` holds blocking all-reduces, `backward` holds asynchronous ones that overlap each other: what they cover together is not
the phase's own time. Nested means wholly inside (the outer one first where both are equal); a span that only overlaps another
takes nothing from it, so an operation that is still in flight when the phase ends does not hide the phase.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.model.timeline import Timeline

_DEPTH = 256  # spans open at once on a lane; one that lies deeper is taken out of the outer ones only


def exclusive_ns(timeline: Timeline) -> Int64Array:
    """[n] own time of each span; 0 for open spans. O(n x nesting depth)."""
    own = timeline.end_ns - timeline.start_ns
    _take_nested(timeline.trace.lane, timeline.start_ns, timeline.end_ns, own)
    return own


@njit(cache=True, nogil=True)
def _take_nested(lane: Int32Array, start_ns: Int64Array, end_ns: Int64Array, own: Int64Array) -> None:
    """One pass in span order, which is (lane, start, longer first). `active` are the spans that may still hold others."""
    active = np.empty(_DEPTH, dtype=np.int64)
    covered_to = np.empty(_DEPTH, dtype=np.int64)
    depth = 0
    for i in range(len(lane)):
        kept = 0
        for a in range(depth):
            outer = active[a]
            if lane[outer] == lane[i] and end_ns[outer] > start_ns[i]:
                active[kept], covered_to[kept] = outer, covered_to[a]
                if end_ns[i] <= end_ns[outer]:
                    own[outer] -= max(0, end_ns[i] - max(start_ns[i], covered_to[kept]))
                    covered_to[kept] = max(covered_to[kept], end_ns[i])
                kept += 1
        depth = kept
        if depth < _DEPTH and end_ns[i] > start_ns[i]:
            active[depth], covered_to[depth] = i, start_ns[i]
            depth += 1
