"""Which operation on the device a launch on the host started.

A launch ends when the operation is enqueued, so it never says when data moved; but it says when the host got there, and that is
what a rank's program did. Launch and operation are of one rank, one group (and peer) and one seq; without seq, the n-th launch is
the n-th operation where both are equally many.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.model.kinds import COLLECTIVE, RECV, SEND
from crossrank.model.matches import LaunchMatches
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.keys import first_of_runs, pack_keys, place_in_run


def match_launches(trace: JobTrace) -> LaunchMatches:
    """Launches with their operations, ascending by launch."""
    comm = np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & (trace.group >= 0)
    if not (comm & trace.is_async).any():
        none = np.empty(0, dtype=np.int64)
        return LaunchMatches(none, none)
    spans = np.flatnonzero(comm)
    channel = pack_keys(trace.rank[spans], trace.kind[spans], trace.group[spans], trace.peer[spans], trace.has_seq[spans])
    number = np.where(trace.has_seq[spans], trace.seq[spans], _order_where_even(trace, spans, channel))
    usable = trace.has_seq[spans] | (number >= 0)
    spans, channel, number = spans[usable], channel[usable], number[usable]
    order = np.lexsort((trace.start_ns[spans], ~trace.is_async[spans], number, channel))
    spans, key = spans[order], pack_keys(channel, number)[order]
    kept = first_of_runs(key * 2 + ~trace.is_async[spans])
    spans, key = spans[kept], key[kept]
    pair = np.flatnonzero((key[1:] == key[:-1]) & trace.is_async[spans[:-1]] & ~trace.is_async[spans[1:]])
    launch, operation = spans[pair], spans[pair + 1]
    by_launch = np.argsort(launch, kind="stable")
    return LaunchMatches(launch[by_launch], operation[by_launch])


def _order_where_even(trace: JobTrace, spans: Int64Array, channel: Int64Array) -> Int64Array:
    """Place of each span among the launches, or the operations, of its channel; -1 where these are not equally many."""
    side = trace.is_async[spans].astype(np.int64)
    order = np.lexsort((trace.start_ns[spans], side, channel))
    place = np.empty(len(spans), dtype=np.int64)
    place[order] = place_in_run(first_of_runs((channel * 2 + side)[order]))
    channels, of = np.unique(channel, return_inverse=True)
    launches = np.bincount(of[side == 1], minlength=len(channels))
    even = 2 * launches == np.bincount(of, minlength=len(channels))
    return np.where(even[of], place, -1)
