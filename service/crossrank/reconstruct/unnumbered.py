"""Numbers for collectives whose senders gave no seq, and how far they can be trusted.

Within a step the n-th operation of one (group, operation, size, type) is the same on all ranks, if all count alike. Where an
operation may move different sizes on different ranks, or some rank does not say its size, size is left out. Outside of steps
nothing says where to begin to count: where ranks count differently, the windows are aligned by content.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.kinds import canonical_op
from crossrank.model.timeline import NO_STEP
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.keys import pack_keys
from crossrank.reconstruct.ordinals import number_by_order
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.windows import UNSURE, align_windows

UNEVEN_OPS: Final = frozenset({"all_to_all", "gather", "scatter"})  # members may move different sizes
BY_ORDER: Final = 0.9
DOUBTFUL: Final = 0.4
BINDING: Final = 0.6  # below, an operation binds nobody in time
_BY_CONTENT = 1  # sorts of numbers: 0 as sent, 1 by content, 2 and up by order in one bucket each


def number_operations(trace: JobTrace, spans: Int64Array) -> tuple[Int64Array, Int64Array, Float64Array]:
    """Number, sort of number and confidence of m collectives without seq."""
    step = assign_steps(trace)[spans]
    bucket = _buckets(trace, spans)
    number, doubtful = number_by_order(bucket, step, trace.rank[spans], trace.start_ns[spans])
    sort = bucket + 2
    confidence = np.where(doubtful, DOUBTFUL, BY_ORDER)
    loose = doubtful & (step == NO_STEP)
    for group in np.unique(trace.group[spans][loose]).tolist():
        mine = np.flatnonzero((trace.group[spans] == group) & (step == NO_STEP))
        aligned, sure = align_windows(bucket[mine], trace.rank[spans][mine].astype(np.int64), trace.start_ns[spans][mine])
        fits = sure >= UNSURE
        number[mine[fits]] = aligned[fits] - aligned[fits].min() + 1 if fits.any() else 0
        sort[mine[fits]] = _BY_CONTENT
        confidence[mine] = np.where(fits, sure, DOUBTFUL)
    return number, sort, confidence


def _buckets(trace: JobTrace, spans: Int64Array) -> Int64Array:
    """[m] small codes of (group, operation, size, type)."""
    uneven = np.array([*(canonical_op(op) in UNEVEN_OPS for op in trace.ops), True])[trace.op[spans]]
    of_op = np.unique(pack_keys(trace.group[spans], trace.op[spans]), return_inverse=True)[1]
    unsaid = np.bincount(of_op, weights=trace.size_bytes[spans] == 0)[of_op] > 0
    size = np.where(uneven | unsaid, 0, trace.size_bytes[spans])
    return np.unique(pack_keys(of_op, size, trace.dtype[spans]), return_inverse=True)[1].astype(np.int64)
