"""Which optimizer step each span belongs to.

A step number sent with the span counts. Else the span belongs to the step span that is running on its rank when it starts: the
last one that began before it on the same clock and has not ended (open step spans run on). Raw times of one rank on one clock
domain may be compared without any alignment. Everything else is outside all steps.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.model.kinds import STEP
from crossrank.model.timeline import NO_STEP
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.keys import pack_keys


def assign_steps(trace: JobTrace) -> Int64Array:
    """[n] step of each span, NO_STEP outside all steps. Negative step numbers as sent are kept out: they mean nothing."""
    step_of = np.where(trace.has_step & (trace.step >= 0), trace.step, NO_STEP).astype(np.int64)
    holders = np.flatnonzero((trace.kind == STEP) & (step_of != NO_STEP))
    if len(holders) == 0 or not (step_of == NO_STEP).any():
        return step_of
    place = pack_keys(trace.rank, trace.domain)
    holders = holders[np.lexsort((trace.start_ns[holders], place[holders]))]
    homeless = np.flatnonzero(step_of == NO_STEP)
    homeless = homeless[np.argsort(place[homeless], kind="stable")]
    keys = np.unique(place[homeless])
    holder_ptr = np.searchsorted(place[holders], keys), np.searchsorted(place[holders], keys, side="right")
    homeless_ptr = np.searchsorted(place[homeless], keys), np.searchsorted(place[homeless], keys, side="right")
    for i in range(len(keys)):
        mine = holders[holder_ptr[0][i] : holder_ptr[1][i]]
        if len(mine) == 0:
            continue
        spans = homeless[homeless_ptr[0][i] : homeless_ptr[1][i]]
        last = np.searchsorted(trace.start_ns[mine], trace.start_ns[spans], side="right") - 1
        holder = mine[np.maximum(last, 0)]
        inside = (last >= 0) & (trace.is_open[holder] | (trace.start_ns[spans] < trace.end_ns[holder]))
        step_of[spans[inside]] = step_of[holder[inside]]
    return step_of
