"""Numbers for operations whose senders gave no seq: the n-th on one side is the n-th on the other.

Counting starts anew in every step, so that one lost event cannot shift the matches of any other step. In a step where the sides
counted differently nobody can tell which one is missing: all its operations are doubtful.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.reconstruct.keys import first_of_runs, pack_keys, place_in_run


def number_by_order(bucket: Int64Array, step: Int64Array, side: np.ndarray, start_ns: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Seq (from 1, per bucket, ascending by step and order) and doubt of m operations.

    bucket: what operations are counted within (group and operation, or group, source and destination). side: who counts (the
    rank; for messages sender or receiver). start_ns is only compared within one side.
    """
    order = np.lexsort((start_ns, side, step, bucket))
    per_side = pack_keys(bucket, step, side)
    first = first_of_runs(per_side[order])
    ordinal = np.empty(len(order), dtype=np.int64)
    ordinal[order] = place_in_run(first)
    slots, slot = np.unique(pack_keys(bucket, step, ordinal), return_inverse=True)
    of_slot = np.empty(len(slots), dtype=np.int64)
    of_slot[slot] = bucket
    seq = (place_in_run(first_of_runs(of_slot)) + 1)[slot]
    return seq, _sides_differ(pack_keys(bucket, step), per_side)


def _sides_differ(place: Int64Array, per_side: Int64Array) -> BoolArray:
    sides, side, count = np.unique(per_side, return_inverse=True, return_counts=True)
    place_of_side = np.empty(len(sides), dtype=np.int64)
    place_of_side[side] = np.unique(place, return_inverse=True)[1]
    places = int(place_of_side.max()) + 1 if len(sides) else 0
    most = np.zeros(places, dtype=np.int64)
    least = np.full(places, np.iinfo(np.int64).max)
    np.maximum.at(most, place_of_side, count)
    np.minimum.at(least, place_of_side, count)
    differ: BoolArray = (most != least)[place_of_side[side]]
    return differ
