"""Which spans of different ranks are one operation.

Collectives match by (group, seq), where a group is its name and membership; messages by (group, source, destination, seq), or by tag
and order (reconstruct.messages). Where senders gave no seq, operations of one group, operation, size and type are numbered by order
within each step (reconstruct.ordinals), outside of steps by the content of the ranks' windows (reconstruct.windows). What cannot be
matched, and what is matched but doubtful, is counted by reason in `Matches.unmatched`:

    async_launch    launches whose operation was not recorded           no_group, no_peer   spans that do not say with whom
    not_a_member    spans of a rank that is not in its own group        doubled     second spans of one rank for one operation
    alone           collectives with one member                         incomplete  others with fewer members than their group
    mismatched      collectives whose members disagree on operation, size or type: kept, but they bind nobody
    coalesced       spans of operations that share one seq with others of their rank, matched by their place among them
    by_order        spans matched by order                              order_doubtful  spans whose order proves nothing
    by_content      spans of windows aligned by what they hold
    mixed_records   collectives of which a dump alone knows some members, by the host's times: they bind nobody either
    unsent          receives without their send                         unreceived  sends without their receive
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from crossrank.model.kinds import ALL_TO_ROOT_OPS, COLLECTIVE, ROOT_TO_ALL_OPS, SYNCHRONISING_OPS, canonical_dtype, canonical_op
from crossrank.model.matches import CollectiveMatches, Matches
from crossrank.model.progress import RECORDER_LANE
from crossrank.model.trace import JobTrace
from crossrank.model.words import NO_CODE
from crossrank.reconstruct.keys import first_of_runs, pack_keys, place_in_run
from crossrank.reconstruct.launches import match_launches
from crossrank.reconstruct.messages import match_messages
from crossrank.reconstruct.unnumbered import BINDING, BY_ORDER, UNEVEN_OPS, number_operations
from crossrank.reconstruct.windows import SURE


def match(trace: JobTrace) -> Matches:
    """All collectives and messages of a trace: deterministic, O(n log n), the same for any clocks if senders gave seq."""
    unmatched: dict[str, int] = {}
    collectives = _match_collectives(trace, unmatched)
    messages = match_messages(trace, unmatched)
    launches = match_launches(trace)
    unmatched["async_launch"] -= len(launches)
    return Matches(collectives, messages, launches, {reason: n for reason, n in sorted(unmatched.items()) if n})


def _match_collectives(trace: JobTrace, unmatched: dict[str, int]) -> CollectiveMatches:
    spans = _candidates(trace, unmatched)
    seq, sort, confidence = _numbers(trace, spans, unmatched)
    key = pack_keys(trace.group[spans], seq, sort)
    # Spans are numbered by (rank, lane, start): a stable sort leaves every instance ascending by rank.
    order = np.lexsort((trace.start_ns[spans], trace.rank[spans], key)) if len(spans) else np.empty(0, dtype=np.int64)
    key, order = _coalesced_apart(trace, spans, key, order, unmatched)
    again = ~first_of_runs(key[order]) & ~first_of_runs(trace.rank[spans][order])
    unmatched["doubled"] = int(again.sum())
    order = order[~again]
    ptr = np.append(np.flatnonzero(first_of_runs(key[order])), len(order)).astype(np.int64)
    if len(order) == 0:
        ptr = np.zeros(1, dtype=np.int64)
    return _judge(trace, spans[order], ptr, seq[order], confidence[order], unmatched)


def _coalesced_apart(
    trace: JobTrace, spans: Int64Array, key: Int64Array, order: Int64Array, unmatched: dict[str, int]
) -> tuple[Int64Array, Int64Array]:
    """Operations that share a seq on every rank equally often, on one lane each, are several: told apart by their place."""
    new_key = first_of_runs(key[order])
    new_run = new_key | first_of_runs(trace.rank[spans][order])
    if new_run.all():
        return key, order
    run = np.cumsum(new_run) - 1
    first = np.flatnonzero(new_run)
    count = np.diff(np.append(first, len(order)))
    lane = trace.lane[spans][order]
    one_lane = np.minimum.reduceat(lane, first) == np.maximum.reduceat(lane, first)
    of_key = np.flatnonzero(new_key[first])  # runs that begin an operation
    even = np.minimum.reduceat(count, of_key) == np.maximum.reduceat(count, of_key)
    even &= np.minimum.reduceat(one_lane, of_key) & (np.diff(np.append(of_key, len(first))) > 1)
    apart = even[(np.cumsum(new_key[first]) - 1)][run]
    place = np.zeros(len(key), dtype=np.int64)
    place[order] = np.where(apart, place_in_run(new_run), 0)
    unmatched["coalesced"] = int((apart & (count[run] > 1)).sum())
    parted = pack_keys(key, place)
    return parted, np.lexsort((trace.start_ns[spans], trace.rank[spans], parted))


def _candidates(trace: JobTrace, unmatched: dict[str, int]) -> Int64Array:
    spans = np.flatnonzero(trace.kind == COLLECTIVE)
    for reason, mask in (("async_launch", trace.is_async), ("no_group", trace.group < 0)):
        unmatched[reason] = int(mask[spans].sum())
        spans = spans[~mask[spans]]
    stranger = _strangers(trace, spans)
    unmatched["not_a_member"] = int(stranger.sum())
    return spans[~stranger]


def _strangers(trace: JobTrace, spans: Int64Array) -> BoolArray:
    """Spans of a rank that is not among the members of its own group."""
    known = np.array([len(m) > 0 for m in trace.group_ranks] or [False])
    listed = [(g, r) for g, members in enumerate(trace.group_ranks) for r in members]
    pairs = np.array(listed, dtype=np.int64).reshape(-1, 2)
    width = np.int64(1) << 32
    inside = np.isin(trace.group[spans] * width + trace.rank[spans], pairs[:, 0] * width + pairs[:, 1])
    strangers: BoolArray = known[trace.group[spans]] & ~inside
    return strangers


def _numbers(trace: JobTrace, spans: Int64Array, unmatched: dict[str, int]) -> tuple[Int64Array, Int64Array, Float64Array]:
    """Seq of each span as sent or found, the sort of number it is (equal numbers of two sorts are not equal), and confidence."""
    seq = trace.seq[spans].copy()
    sort = np.zeros(len(spans), dtype=np.int64)
    confidence = np.ones(len(spans))
    counted = np.flatnonzero(~trace.has_seq[spans])
    if len(counted):
        seq[counted], sort[counted], confidence[counted] = number_operations(trace, spans[counted])
    unmatched["by_order"] = int((confidence[counted] == BY_ORDER).sum())
    unmatched["by_content"] = int((confidence[counted] == SURE).sum())
    unmatched["order_doubtful"] = int((confidence[counted] < BINDING).sum())
    return seq, sort, confidence


def _judge(
    trace: JobTrace, member: Int64Array, ptr: Int64Array, seq: Int64Array, confidence: Float64Array, unmatched: dict[str, int]
) -> CollectiveMatches:
    """What each instance is and whom it binds."""
    size = np.diff(ptr)
    first = ptr[:-1]
    group = trace.group[member[first]]
    group_size = np.array([len(m) for m in trace.group_ranks] or [0], dtype=np.int64)
    expected = np.where(group_size[group] > 0, group_size[group], size).astype(np.int32)
    words = tuple(canonical_op(op) for op in trace.ops)
    meaning = _codes_of_equal(words)[trace.op[member]]
    op = _majority(trace.op[member], ptr)
    mismatched = _differs(meaning, meaning >= 0, ptr)
    same_size_op = ~_is_one_of(words, UNEVEN_OPS)[op]
    sent = trace.size_bytes[member]
    mismatched |= same_size_op & _differs(sent, sent > 0, ptr)
    dtype = _codes_of_equal(tuple(canonical_dtype(d) for d in trace.dtypes))[trace.dtype[member]]
    mismatched |= _differs(dtype, dtype >= 0, ptr)
    recorded = np.array([lane == RECORDER_LANE for lane in trace.lanes], dtype=np.bool_)[trace.lane[member]]
    mixed = _differs(recorded.view(np.int8), np.ones(len(member), dtype=np.bool_), ptr)
    unmatched["mixed_records"] = int(mixed.sum())
    sure = _reduce(np.minimum, confidence, first)
    alone = size == 1
    unmatched["mismatched"] = int(mismatched.sum())
    unmatched["alone"] = int((alone & (expected > 1)).sum())
    unmatched["incomplete"] = int((~alone & (size < expected)).sum())
    binds = ~mismatched & ~alone & ~mixed & (sure >= BINDING)
    to_all, to_root = _is_one_of(words, ROOT_TO_ALL_OPS)[op], _is_one_of(words, ALL_TO_ROOT_OPS)[op]
    root = np.where(binds & (to_all | to_root), _root(trace, member, ptr), -1).astype(np.int32)
    return CollectiveMatches(
        group=group,
        seq=seq[first],
        op=op,
        ptr=ptr,
        member=member,
        expected=expected,
        synchronising=binds & _is_one_of(words, SYNCHRONISING_OPS)[op],
        root=root,
        root_sends=to_all,
        confidence=sure,
    )


def _reduce(function: np.ufunc, values: np.ndarray, first: Int64Array) -> np.ndarray:
    """`function` over the members of each instance."""
    return function.reduceat(values, first) if len(first) else values[:0]


def _differs(values: np.ndarray, known: BoolArray, ptr: Int64Array) -> BoolArray:
    """[k] whether known values of an instance's members disagree."""
    info = np.iinfo(values.dtype)
    low = _reduce(np.minimum, np.where(known, values, info.max), ptr[:-1])
    high = _reduce(np.maximum, np.where(known, values, info.min), ptr[:-1])
    differs: BoolArray = low < high
    return differs


def _majority(values: Int32Array, ptr: Int64Array) -> Int32Array:
    """[k] the most frequent code among the members, the lowest one in a tie; NO_CODE only where no member has one."""
    chosen = _reduce(np.maximum, values, ptr[:-1]).astype(np.int32)
    split = _differs(values, values >= 0, ptr)
    if split.any():
        instance = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        rows = split[instance] & (values >= 0)
        votes, count = np.unique(np.stack((instance[rows], values[rows])), axis=1, return_counts=True)
        best = np.lexsort((votes[1], -count, votes[0]))
        best = best[first_of_runs(votes[0][best])]
        chosen[votes[0][best]] = votes[1][best]
    return chosen


def _root(trace: JobTrace, member: Int64Array, ptr: Int64Array) -> Int64Array:
    """[k] span of the root of each instance by the rank its members name as `peer`; -1 where unknown, unseen or disputed."""
    named = trace.peer[member]
    disputed = _differs(named, named >= 0, ptr)
    rank = np.where(disputed, NO_CODE, _reduce(np.maximum, named, ptr[:-1]))
    is_root = trace.rank[member] == np.repeat(rank, np.diff(ptr))
    root: Int64Array = _reduce(np.maximum, np.where(is_root, member, -1), ptr[:-1])
    return root


def _codes_of_equal(words: tuple[str, ...]) -> Int32Array:
    """One code for all spellings of one word; the last entry stands for "none" and is reached by index -1."""
    place = {word: i for i, word in enumerate(sorted(set(words)))}
    return np.array([*(place[w] for w in words), NO_CODE], dtype=np.int32)


def _is_one_of(words: tuple[str, ...], wanted: frozenset[str]) -> BoolArray:
    """Mask over words; the last entry stands for "none" and is reached by index -1."""
    return np.array([*(w in wanted for w in words), False], dtype=np.bool_)
