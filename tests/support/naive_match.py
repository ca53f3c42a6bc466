"""Matching with dictionaries, one event at a time. The judge of `reconstruct.match`."""

from __future__ import annotations

from collections import defaultdict
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
    """(send, receive) pairs of messages with a seq."""
    ends: dict[str, dict[tuple[int, ...], int]] = {"send": {}, "recv": {}}
    for i in sorted(range(len(trace)), key=lambda i: (bool(trace.is_async[i]), int(trace.start_ns[i]), i)):
        kind, rank, peer = KINDS[trace.kind[i]], int(trace.rank[i]), int(trace.peer[i])
        if kind not in ends or peer < 0 or not trace.has_seq[i] or (kind == "recv" and trace.is_async[i]):
            continue
        source, target = (rank, peer) if kind == "send" else (peer, rank)
        ends[kind].setdefault((int(trace.group[i]), source, target, int(trace.seq[i])), i)
    return {(ends["send"][key], ends["recv"][key]) for key in ends["send"].keys() & ends["recv"].keys()}
