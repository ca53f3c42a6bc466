"""How natural the program of a lane looks once a clock step is taken out of it.

A lane is a chain of intervals, each from one stamp to the next: a span's own work, a piece of it between two operations inside,
the gap after it. The interval that holds a step of J shows a length wrong by J. So for the right cut, and only for it, taking J
off the interval around the cut, on every lane of the domain, gives lengths like those of other intervals between the same kinds
of stamps. Like means near to any one of them, not to their mean: one name may stand for short and long work alike.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.trace import JobTrace

FEWEST = 5  # intervals of a kind from which usual lengths can be told
FLOOR_NS = 2000.0
MOST = 12.0  # one odd interval says no more than this


class Straddlers:
    """Lane intervals of one domain around a stretch of local time that holds its step of `size_ns`."""

    def __init__(self, trace: JobTrace, domain: int, size_ns: int, between: tuple[int, int]) -> None:
        low, high = between
        start, end, kind = _intervals(trace, domain)
        inside = (start < high) & (end >= low)
        length = (end - start).astype(np.float64)
        usual_kind, usual = kind[~inside], length[~inside]
        order = np.lexsort((usual, usual_kind))
        usual_kind, usual = usual_kind[order], usual[order]
        self._start, self._end = start[inside], end[inside]
        self._gain = np.zeros(len(self._start))
        for k in np.unique(kind[inside]).tolist():
            here = kind[inside] == k
            known = usual[np.searchsorted(usual_kind, k) : np.searchsorted(usual_kind, k, side="right")]
            if len(known) >= FEWEST:
                shown = length[inside][here]
                self._gain[here] = _oddity(shown - size_ns, known) - _oddity(shown, known)

    def cost(self, cut: Int64Array) -> Float64Array:
        """[c] how much odder the lengths are with the step at each cut than with no step; negative where it explains them."""
        # Begun before the cut, less those ended before it.
        return _sum_before(self._start, self._gain, cut) - _sum_before(self._end, self._gain, cut)


def _sum_before(at: Int64Array, gain: Float64Array, cut: Int64Array) -> Float64Array:
    order = np.argsort(at, kind="stable")
    running = np.concatenate(([0.0], np.cumsum(gain[order])))
    return running[np.searchsorted(at[order], cut, side="left")]


def _intervals(trace: JobTrace, domain: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Start, end and kind of every interval between neighbouring stamps on the lanes of a domain."""
    span = trace.lane_stamps >> 1
    lane = trace.lane[span]
    own = trace.domain[span] == domain
    stamps, lane = trace.lane_stamps[own], lane[own]
    span, is_end = stamps >> 1, stamps & 1
    local = np.where(is_end == 1, trace.end_ns[span], trace.start_ns[span])
    what = ((trace.name[span].astype(np.int64) + 1) * (len(trace.groups) + 1) + trace.group[span] + 1) * 2 + is_end
    what = np.unique(what, return_inverse=True)[1].astype(np.int64)
    same = lane[1:] == lane[:-1]
    kind = what[:-1] * (int(what.max(initial=0)) + 1) + what[1:]
    return local[:-1][same], local[1:][same], kind[same]


def _oddity(length: Float64Array, known: Float64Array) -> Float64Array:
    """Distance to the nearest known length, on the scale on which they spread."""
    at = np.clip(np.searchsorted(known, length), 1, len(known) - 1)
    nearest = np.minimum(np.abs(length - known[at - 1]), np.abs(length - known[at]))
    spread = (known[int(0.9 * (len(known) - 1))] - known[int(0.1 * (len(known) - 1))]) / 10.0 + FLOOR_NS
    return np.minimum(nearest / spread, MOST)
