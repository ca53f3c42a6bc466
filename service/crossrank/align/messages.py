"""What messages in both directions say about the offset of two clocks.

A message takes its delay and shows it mixed with the offset: forth = delay + offset, back = delay - offset. So with equal
delays offset = (forth - back) / 2, as in NTP. Most delays hold waiting, which is not symmetric, but the quickest ones hold
little: per pair of clocks and stretch between two knots the low quantile of each direction is taken (the quickest single
message would rest on one stamp). Of a few messages, as clock samples are, even the quickest may have been held up: where both
directions together took longer than at the pair's best by E, the offset is uncertain by E / (2 sqrt 3). Delays that differ by direction always
shift the result by half their difference; nothing in the stamps can tell, so only the guaranteed interval (see bounds) covers that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from crossrank.align.components import MESSAGE_QUANTILE
from crossrank.align.knots import Knots
from crossrank.align.rows import Rows
from crossrank.model.arrays import Float64Array, Int32Array, Int64Array

SINGLE_SIGMA_NS = 5000.0  # how far the quickest of a few messages may be from the undisturbed delay, over sqrt(count)
FLOOR_SIGMA_NS = 500.0
HUBER_SIGMAS = 2.0
FEW = 4  # messages, or samples: more of them show by their spread how far the quickest may be off


@dataclass(frozen=True, slots=True)
class TwoWay:
    """Messages of pairs of clocks and stretches that have both directions, sorted by pair, stretch and direction.

    Segment i holds the messages `message[ptr[i]:ptr[i+1]]`; segments 2p (from the lower to the higher clock) and 2p + 1 (back)
    belong to pair row p, whose clocks are low[p] and high[p] and whose mean axis time is z[p].
    """

    message: Int64Array
    ptr: Int64Array
    low: Int32Array
    high: Int32Array
    z: Float64Array

    def rows(self, knots: Knots, curve: Int32Array, phi: Float64Array, delay: Float64Array, *, constant: bool) -> Rows:
        """Two-member groups that agree when forth and back do.

        curve: [V] of each clock. delay: [p] of all messages, under the correction phi. constant: phi is constant from knot to knot, not linear between them.
        """
        low_q, middle = _quantiles(self.ptr, delay[self.message])
        count = np.diff(self.ptr).astype(np.float64)
        offset = (low_q[0::2] - low_q[1::2]) / 2.0
        spread = (middle - low_q) ** 2 / count
        fewer = np.minimum(count[0::2], count[1::2])
        held_up = np.where(fewer <= FEW, self._excess(low_q[0::2] + low_q[1::2]), 0.0)
        variance = (spread[0::2] + spread[1::2] + held_up**2 / 3.0) / 4.0 + FLOOR_SIGMA_NS**2 + SINGLE_SIGMA_NS**2 / fewer
        # Two members of weight w each pull their difference with w / 2.
        weight = 2.0 / variance / np.maximum(1.0, np.abs(offset) / (HUBER_SIGMAS * np.sqrt(variance)))
        e = np.stack((self.low, self.high), axis=1).ravel()
        j, u = knots.place(np.repeat(self.z, 2))
        if constant:
            u = np.zeros_like(u)
        shown = np.zeros(len(e))
        shown[1::2] = offset
        rows = Rows(np.arange(0, len(e) + 1, 2, dtype=np.int64), curve[e], e, j, u, shown, np.repeat(weight, 2))
        return replace(rows, y=shown - rows.correction(phi))

    def _excess(self, trip: Float64Array) -> Float64Array:
        """Of each pair row: how much longer forth and back took together than at that pair's best, which no offset changes."""
        if len(trip) == 0:
            return trip
        first = np.flatnonzero((np.diff(self.low, prepend=-1) != 0) | (np.diff(self.high, prepend=-1) != 0))
        best = np.minimum.reduceat(trip, first)
        return trip - np.repeat(best, np.diff(first, append=len(trip)))


def pair_up(before: Int32Array, after: Int32Array, z: Float64Array, knots: Knots) -> TwoWay:
    """Messages from clocks `before` to clocks `after` at axis times z, sorted into pairs and stretches."""
    j = knots.place(z)[0].astype(np.int64)
    low, high = np.minimum(before, after).astype(np.int64), np.maximum(before, after).astype(np.int64)
    clocks = int(high.max(initial=0)) + 1
    stretch = (low * clocks + high) * knots.count + j
    key = 2 * stretch + (before > after)
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    segment = stretch[order[first]]
    forth = np.flatnonzero(segment[1:] == segment[:-1])  # a stretch has at most two segments, forth before back
    chosen = np.stack((forth, forth + 1), axis=1).ravel()
    length = np.diff(first, append=len(order))
    in_use = np.zeros(len(first), bool)
    in_use[chosen] = True
    message = order[np.repeat(in_use, length)]
    ptr = np.concatenate(([0], np.cumsum(length[chosen]))).astype(np.int64)
    pair = np.repeat(np.arange(len(forth)), length[chosen][0::2] + length[chosen][1::2])
    mean = np.bincount(pair, z[message], minlength=len(forth)) / np.maximum(np.bincount(pair, minlength=len(forth)), 1)
    of = order[first[forth]]
    return TwoWay(message, ptr, low[of].astype(np.int32), high[of].astype(np.int32), mean)


@numba.njit(cache=True, nogil=True)
def _quantiles_of_segments(ptr: Int64Array, value: Float64Array, quantile: float, low: Float64Array, middle: Float64Array) -> None:
    for i in range(len(ptr) - 1):
        ordered = np.sort(value[ptr[i] : ptr[i + 1]])
        low[i] = ordered[int(len(ordered) * quantile)]
        middle[i] = ordered[len(ordered) // 2]


def _quantiles(ptr: Int64Array, value: Float64Array) -> tuple[Float64Array, Float64Array]:
    low, middle = np.empty(len(ptr) - 1), np.empty(len(ptr) - 1)
    _quantiles_of_segments(ptr, value, MESSAGE_QUANTILE, low, middle)
    return low, middle
