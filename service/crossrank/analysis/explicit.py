"""Causes that the senders stated themselves: the links of a span, as edges of the replay.

A span starts after what its links name has ended, plus the delay that the recording shows after the latest of those and of the
stamp before it on its lane. A cause that was still running then (a launch whose kernel began before the call returned) has set it
off by its start. Causes that lie in the future are no causes and are left out.

Where a stated cause is at least as late as the stamp before the span on its lane, the links say all there is to say, and nothing
is guessed about other lanes (analysis.release).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.lane_work import NO_STAMP
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.trace import JobTrace


@dataclass(frozen=True, slots=True)
class Explicit:
    """Stated causes of n spans: stamps cause[ptr[i]:ptr[i+1]] come before the start of span i."""

    ptr: Int64Array  # [n + 1]
    cause: Int64Array  # [e] stamps
    delay_ns: Int64Array  # [n] from the latest of them, and of the stamp before, to the start
    rules: BoolArray  # [n] the links say all

    def __len__(self) -> int:
        return len(self.cause)


def least_delay_ns(explicit: Explicit, trace: JobTrace) -> Int64Array:
    """[n] delay that an operation cannot do without: the least with which any of its name has followed its stated causes.

    What a start has above it was waiting for something that nobody recorded, and would not be there in a faster job.
    """
    delay = explicit.delay_ns.copy()
    ruled = np.flatnonzero(explicit.rules)
    name = trace.name[ruled].astype(np.int64) + 1
    least = np.full(len(trace.names) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, name, delay[ruled])
    delay[ruled] = least[name]
    return delay


def explicit_causes(trace: JobTrace, time_ns: Int64Array, pred: Int64Array) -> Explicit:
    """The usable links of a trace. time_ns, pred: [2n] of every stamp."""
    n = len(trace)
    cause, effect = trace.link_cause, trace.link_effect
    if len(cause) == 0:
        return Explicit(np.zeros(n + 1, dtype=np.int64), cause, np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_))
    at = time_ns[2 * effect]
    ended = (time_ns[2 * cause + 1] <= at) & ~trace.is_open[cause]
    stamp = 2 * cause + ended
    kept = time_ns[stamp] <= at
    stamp, effect = stamp[kept], effect[kept]
    ptr = np.searchsorted(effect, np.arange(n + 1)).astype(np.int64)
    latest = np.full(n, np.iinfo(np.int64).min)
    np.maximum.at(latest, effect, time_ns[stamp])
    before = pred[0::2]
    on_lane = np.where(before != NO_STAMP, time_ns[np.maximum(before, 0)], np.iinfo(np.int64).min)
    caused = np.diff(ptr) > 0
    delay = np.where(caused, time_ns[0::2] - np.where(caused, np.maximum(latest, on_lane), 0), 0)
    return Explicit(ptr, stamp, delay, caused & (latest >= on_lane))
