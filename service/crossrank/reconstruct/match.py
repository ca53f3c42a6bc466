"""Which spans of different ranks are one operation.

Collectives match by (group, seq), where a group is its name and membership; messages by (group, source, destination, seq). Where
senders gave no seq, operations are numbered by order (reconstruct.ordinals). Nothing is guessed beyond that: what cannot be
matched, and what is matched but doubtful, is counted by reason in `Matches.unmatched`:

    async_launch    spans that are only the launch of an operation      no_group, no_peer   spans that do not say with whom
    not_a_member    spans of a rank that is not in its own group        doubled     second spans of one rank for one operation
    alone           collectives with one member                         incomplete  others with fewer members than their group
    mismatched      collectives whose members disagree on operation or size: kept, but they bind nobody
    by_order        spans matched by order                              order_doubtful  spans whose order proves nothing
    unsent          receives without their send                         unreceived  sends without their receive
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.kinds import ALL_TO_ROOT_OPS, COLLECTIVE, ROOT_TO_ALL_OPS, SYNCHRONISING_OPS, canonical_op
from crossrank.model.matches import CollectiveMatches, Matches
from crossrank.model.trace import NO_CODE, JobTrace
from crossrank.reconstruct.keys import first_of_runs, pack_keys
from crossrank.reconstruct.messages import match_messages
from crossrank.reconstruct.ordinals import number_by_order
from crossrank.reconstruct.steps import assign_steps

_UNEVEN_OPS = frozenset({"all_to_all", "gather", "scatter"})  # members may move different sizes


def match(trace: JobTrace) -> Matches:
    """All collectives and messages of a trace: deterministic, O(n log n), the same for any clocks if senders gave seq."""
    unmatched: dict[str, int] = {}
    collectives = _match_collectives(trace, unmatched)
    messages = match_messages(trace, unmatched)
    return Matches(collectives, messages, {reason: n for reason, n in sorted(unmatched.items()) if n})


def _match_collectives(trace: JobTrace, unmatched: dict[str, int]) -> CollectiveMatches:
    spans = _candidates(trace, unmatched)
    seq, by_order, doubtful = _numbers(trace, spans)
    unmatched["by_order"] = int((by_order & ~doubtful).sum())
    unmatched["order_doubtful"] = int(doubtful.sum())
    key = pack_keys(trace.group[spans], seq, np.where(by_order, trace.op[spans] + 2, 0))
    # Spans are numbered by (rank, lane, start): a stable sort leaves every instance ascending by rank.
    order = np.lexsort((trace.start_ns[spans], trace.rank[spans], key)) if len(spans) else np.empty(0, dtype=np.int64)
    again = ~first_of_runs(key[order]) & ~first_of_runs(trace.rank[spans][order])
    unmatched["doubled"] = int(again.sum())
    order = order[~again]
    ptr = np.append(np.flatnonzero(first_of_runs(key[order])), len(order)).astype(np.int64)
    if len(order) == 0:
        ptr = np.zeros(1, dtype=np.int64)
    return _judge(trace, spans[order], ptr, seq[order], doubtful[order], unmatched)


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


def _numbers(trace: JobTrace, spans: Int64Array) -> tuple[Int64Array, BoolArray, BoolArray]:
    """Seq of each span as sent or counted, whether it was counted, and whether the count is doubtful."""
    seq = trace.seq[spans].copy()
    by_order = ~trace.has_seq[spans]
    doubtful = np.zeros(len(spans), dtype=np.bool_)
    if by_order.any():
        counted = spans[by_order]
        bucket = pack_keys(trace.group[counted], trace.op[counted])
        seq[by_order], doubtful[by_order] = number_by_order(
            bucket, assign_steps(trace)[counted], trace.rank[counted], trace.start_ns[counted]
        )
    return seq, by_order, doubtful


def _judge(
    trace: JobTrace, member: Int64Array, ptr: Int64Array, seq: Int64Array, doubtful: BoolArray, unmatched: dict[str, int]
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
    same_size_op = ~_is_one_of(words, _UNEVEN_OPS)[op]
    sent = trace.size_bytes[member]
    mismatched |= same_size_op & _differs(sent, sent > 0, ptr)
    alone = size == 1
    unmatched["mismatched"] = int(mismatched.sum())
    unmatched["alone"] = int((alone & (expected > 1)).sum())
    unmatched["incomplete"] = int((~alone & (size < expected)).sum())
    binds = ~mismatched & ~alone & (_reduce(np.logical_or, doubtful, first) == False)  # noqa: E712  (an array)
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
