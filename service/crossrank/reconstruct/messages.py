"""Which receive took what which send sent: by (group, source, destination, seq), without seq by order.

An asynchronous send is as good as a blocking one (its launch precedes the receive's end); the launch of an asynchronous receive
is not (it ends before anything has come), so it is left out.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.model.kinds import RECV, SEND
from crossrank.model.matches import MessageMatches
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.keys import first_of_runs, pack_keys
from crossrank.reconstruct.ordinals import number_by_order
from crossrank.reconstruct.steps import assign_steps


def match_messages(trace: JobTrace, unmatched: dict[str, int]) -> MessageMatches:
    """Matched messages ordered by (group, source, destination, seq); counts what is left over into `unmatched`."""
    spans = np.flatnonzero((trace.kind == SEND) | (trace.kind == RECV))
    launch = trace.is_async[spans] & (trace.kind[spans] == RECV)
    nobody = ~launch & (trace.peer[spans] < 0)
    _count(unmatched, async_launch=launch.sum(), no_peer=nobody.sum())
    spans = spans[~launch & ~nobody]
    if len(spans) == 0:
        none = np.empty(0, dtype=np.int64)
        return MessageMatches(none, none)
    is_recv = trace.kind[spans] == RECV
    source = np.where(is_recv, trace.peer[spans], trace.rank[spans])
    target = np.where(is_recv, trace.rank[spans], trace.peer[spans])
    seq = trace.seq[spans].copy()
    by_order = ~trace.has_seq[spans]
    certain = np.ones(len(spans), dtype=np.bool_)
    if by_order.any():
        numbered = spans[by_order]
        bucket = pack_keys(trace.group[numbered], source[by_order], target[by_order])
        seq[by_order], doubtful = number_by_order(
            bucket, assign_steps(trace)[numbered], is_recv[by_order], trace.start_ns[numbered]
        )
        certain[by_order] = ~doubtful
        _count(unmatched, by_order=(~doubtful).sum(), order_doubtful=doubtful.sum())
    key = pack_keys(trace.group[spans], source, target, by_order, seq)
    return _pair(trace, spans[certain], key[certain], is_recv[certain], unmatched)


def _pair(trace: JobTrace, spans: Int64Array, key: Int64Array, is_recv: np.ndarray, unmatched: dict[str, int]) -> MessageMatches:
    """Joins the first send and the first receive of every key; the device's span goes before the launch's."""
    order = np.lexsort((trace.start_ns[spans], trace.is_async[spans], is_recv, key))
    spans, key, is_recv = spans[order], key[order], is_recv[order]
    kept = first_of_runs(key * 2 + is_recv)
    spans, key, is_recv = spans[kept], key[kept], is_recv[kept]
    pair = np.flatnonzero((key[1:] == key[:-1]) & ~is_recv[:-1] & is_recv[1:])
    _count(
        unmatched,
        doubled=(~kept).sum(),
        unreceived=(~is_recv).sum() - len(pair),
        unsent=is_recv.sum() - len(pair),
    )
    return MessageMatches(spans[pair], spans[pair + 1])


def _count(unmatched: dict[str, int], **found: np.integer | int) -> None:
    for reason, n in found.items():
        unmatched[reason] = unmatched.get(reason, 0) + int(n)
