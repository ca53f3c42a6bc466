"""Which receive took what which send sent: by (group, source, destination, seq), without seq by tag and order.

A tag (model.tags) chooses among the messages of one sender, so a receive may take the second message first. Where both sides of a
channel say their tags, order counts within one tag only. A seq that names messages of different tags on the two sides is no name of
a message but a count of calls, and is not used in that channel.

Calls that were coalesced (`batch_isend_irecv`) may share one seq: where both sides have equally many of them, on one lane each,
they are told apart by their place; else the first counts and the others are `doubled`.

An asynchronous send is as good as a blocking one (its launch precedes the receive's end); the launch of an asynchronous receive
is not (it ends before anything has come), so it is left out.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.kinds import RECV, SEND
from crossrank.model.matches import MessageMatches
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.keys import first_of_runs, pack_keys, place_in_run
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
    channel = np.unique(pack_keys(trace.group[spans], source, target), return_inverse=True)[1].astype(np.int64)
    tag = np.where(_all_of(channel, trace.has_tag[spans]), trace.tag[spans], 0)
    by_order = ~trace.has_seq[spans] | _contradicted(trace, spans, channel, tag, is_recv)
    seq = trace.seq[spans].copy()
    certain = np.ones(len(spans), dtype=np.bool_)
    if by_order.any():
        numbered = spans[by_order]
        bucket = pack_keys(channel[by_order], tag[by_order])
        seq[by_order], doubtful = number_by_order(
            bucket, assign_steps(trace)[numbered], is_recv[by_order], trace.start_ns[numbered]
        )
        certain[by_order] = ~doubtful
        _count(unmatched, by_order=(~doubtful).sum(), order_doubtful=doubtful.sum())
    key = pack_keys(channel, by_order, np.where(by_order, tag, 0), seq)
    return _pair(trace, spans[certain], key[certain], is_recv[certain], unmatched)


def _all_of(of: Int64Array, told: BoolArray) -> BoolArray:
    """[m] whether all rows of the row's channel tell."""
    silent = np.bincount(of, weights=~told)
    everyone: BoolArray = silent[of] == 0
    return everyone


def _contradicted(trace: JobTrace, spans: Int64Array, channel: Int64Array, tag: Int64Array, is_recv: BoolArray) -> BoolArray:
    """[m] rows of channels in which the first send and the first receive of one seq have different tags."""
    numbered = np.flatnonzero(trace.has_seq[spans])
    key = pack_keys(channel[numbered], trace.seq[spans[numbered]], is_recv[numbered])
    by_time = np.lexsort((trace.start_ns[spans[numbered]], key))
    first = by_time[first_of_runs(key[by_time])]
    order, key = numbered[first], pack_keys(channel[numbered[first]], trace.seq[spans[numbered[first]]])
    pair = np.flatnonzero(key[1:] == key[:-1])
    unlike = tag[order][pair] != tag[order][pair + 1]
    return np.isin(channel, channel[order][pair[unlike]])


def _pair(trace: JobTrace, spans: Int64Array, key: Int64Array, is_recv: np.ndarray, unmatched: dict[str, int]) -> MessageMatches:
    """Joins the sends and receives of every key; the device's span goes before the launch's."""
    order = np.lexsort((trace.start_ns[spans], trace.is_async[spans], is_recv, key))
    spans, key, is_recv = spans[order], key[order], is_recv[order]
    key, kept, shared = _coalesced_apart(trace, spans, key, is_recv)
    order = np.lexsort((is_recv, key))
    spans, key, is_recv, kept = spans[order], key[order], is_recv[order], kept[order]
    spans, key, is_recv = spans[kept], key[kept], is_recv[kept]
    pair = np.flatnonzero((key[1:] == key[:-1]) & ~is_recv[:-1] & is_recv[1:])
    _count(
        unmatched,
        coalesced=shared,
        doubled=(~kept).sum(),
        unreceived=(~is_recv).sum() - len(pair),
        unsent=is_recv.sum() - len(pair),
    )
    return MessageMatches(spans[pair], spans[pair + 1])


def _coalesced_apart(trace: JobTrace, spans: Int64Array, key: Int64Array, is_recv: np.ndarray) -> tuple[Int64Array, BoolArray, int]:
    """Keys with the place among those that share one, which spans count, and how many were told apart. Rows are sorted."""
    new_side = first_of_runs(key * 2 + is_recv)
    if new_side.all():
        return key, new_side, 0
    first = np.flatnonzero(new_side)
    side = np.cumsum(new_side) - 1
    count = np.diff(np.append(first, len(key)))
    lane = trace.lane[spans]
    one_lane = np.minimum.reduceat(lane, first) == np.maximum.reduceat(lane, first)
    of_key = np.flatnonzero(first_of_runs(key[first]))
    sides = np.diff(np.append(of_key, len(first)))
    even = (sides == 2) & (np.minimum.reduceat(count, of_key) == np.maximum.reduceat(count, of_key))
    even &= np.minimum.reduceat(one_lane, of_key)
    apart = np.repeat(even, sides)[side] & (count[side] > 1)
    place = np.where(apart, place_in_run(new_side), 0)
    return pack_keys(key, place), new_side | apart, int(apart.sum())


def _count(unmatched: dict[str, int], **found: np.integer | int) -> None:
    for reason, n in found.items():
        unmatched[reason] = unmatched.get(reason, 0) + int(n)
