"""Matching with dictionaries, one event at a time. The judge of `reconstruct.match`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from crossrank.model.kinds import KINDS, canonical_op
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.steps import assign_steps


def naive_instances(trace: JobTrace) -> dict[tuple[Any, ...], list[int]]:
    """Members by rank of every collective: key (group, seq, part) with seq, (group, op, size, type, step, ordinal) without.

    Operations without seq must have a step (elsewhere windows are aligned, see reconstruct.windows).
    """
    step = assign_steps(trace).tolist()
    spans = [i for i in range(len(trace)) if _takes_part(trace, i)]
    spans.sort(key=lambda i: (int(trace.rank[i]), int(trace.start_ns[i]), i))
    unsaid = {(int(trace.group[i]), int(trace.op[i])) for i in spans if not trace.has_seq[i] and trace.size_bytes[i] == 0}
    by_seq: dict[tuple[Any, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    by_order: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    counted: dict[tuple[Any, ...], int] = defaultdict(int)
    for i in spans:
        group, op, rank = int(trace.group[i]), int(trace.op[i]), int(trace.rank[i])
        if trace.has_seq[i]:
            by_seq[group, int(trace.seq[i])][rank].append(i)
            continue
        uneven = op < 0 or canonical_op(trace.ops[op]) in {"all_to_all", "gather", "scatter"}
        size = 0 if uneven or (group, op) in unsaid else int(trace.size_bytes[i])
        bucket = (group, op, size, int(trace.dtype[i]), step[i])
        counted[bucket, rank] += 1
        by_order[*bucket, counted[bucket, rank]].append(i)
    return by_order | _parts(trace, by_seq)


def _takes_part(trace: JobTrace, i: int) -> bool:
    group = int(trace.group[i])
    if KINDS[trace.kind[i]] != "collective" or trace.is_async[i] or group < 0:
        return False
    return not trace.group_ranks[group] or int(trace.rank[i]) in trace.group_ranks[group]


def _parts(trace: JobTrace, by_seq: dict[tuple[Any, ...], dict[int, list[int]]]) -> dict[tuple[Any, ...], list[int]]:
    """Splits operations that every member calls several times under one seq, on one lane; else the first of each member counts."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for key, members in by_seq.items():
        counts = {len(spans) for spans in members.values()}
        one_lane = all(len({int(trace.lane[i]) for i in spans}) == 1 for spans in members.values())
        parts = max(counts) if len(members) > 1 and len(counts) == 1 and one_lane else 1
        for part in range(parts):
            found[*key, part] = [members[r][part] for r in sorted(members)]
    return found


def agree(trace: JobTrace, members: list[int]) -> bool:
    """Whether members name one operation of one size, as far as they say."""
    ops = {canonical_op(trace.ops[trace.op[m]]) for m in members if trace.op[m] >= 0}
    sizes = {int(trace.size_bytes[m]) for m in members if trace.size_bytes[m] > 0}
    return len(ops) <= 1 and (len(sizes) <= 1 or ops <= {"all_to_all", "gather", "scatter"})


def naive_messages(trace: JobTrace) -> set[tuple[int, int]]:
    """(send, receive) pairs: by seq, without it by tag and order within a step.

    Where a send and a receive of one seq have different tags, the whole channel goes by tag and order.
    """
    step = assign_steps(trace).tolist()
    channels: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i in sorted(range(len(trace)), key=lambda i: (int(trace.start_ns[i]), i)):
        kind, rank, peer = KINDS[trace.kind[i]], int(trace.rank[i]), int(trace.peer[i])
        if kind in ("send", "recv") and peer >= 0 and not (kind == "recv" and trace.is_async[i]):
            channels[int(trace.group[i]), *((rank, peer) if kind == "send" else (peer, rank))].append(i)
    found: set[tuple[int, int]] = set()
    for spans in channels.values():
        tag = {i: int(trace.tag[i]) if all(trace.has_tag[j] for j in spans) else 0 for i in spans}
        by_seq = _two_sides(trace, [i for i in spans if trace.has_seq[i]], lambda i: int(trace.seq[i]))
        if any(a and b and tag[a[0]] != tag[b[0]] for a, b in by_seq.values()):
            by_seq = {}
        for sent, received in by_seq.values():
            launches_last = [sorted(side, key=lambda i: bool(trace.is_async[i])) for side in (sent, received)]
            one_lane = all(len({int(trace.lane[i]) for i in side}) == 1 for side in launches_last)
            parts = len(sent) if len(sent) == len(received) and one_lane else 1
            found |= set(zip(*(side[:parts] for side in launches_last), strict=False))
        rest = [i for i in spans if not by_seq or not trace.has_seq[i]]
        for sent, received in _two_sides(trace, rest, {i: (tag[i], step[i]) for i in rest}.__getitem__).values():
            found |= set(zip(sent, received, strict=True)) if len(sent) == len(received) else set()
    return found


def _two_sides(trace: JobTrace, spans: list[int], key: Callable[[int], Any]) -> dict[Any, tuple[list[int], list[int]]]:
    """The sends and the receives of each key."""
    sides: dict[Any, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i in spans:
        sides[key(i)][KINDS[trace.kind[i]] == "recv"].append(i)
    return sides
