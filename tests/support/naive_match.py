"""Matching with dictionaries, one event at a time. The judge of `reconstruct.match`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from crossrank.model.kinds import KINDS, canonical_op
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.steps import assign_steps


def naive_instances(trace: JobTrace) -> dict[tuple[Any, ...], list[int]]:
    """Members by rank of every collective: key (group, seq) with seq, (group, op, step, ordinal) without."""
    step = assign_steps(trace).tolist()
    kinds = [KINDS[k] for k in trace.kind.tolist()]
    found: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    counted: dict[tuple[Any, ...], int] = defaultdict(int)
    for i in sorted(range(len(trace)), key=lambda i: (int(trace.rank[i]), int(trace.start_ns[i]), i)):
        group, rank = int(trace.group[i]), int(trace.rank[i])
        if kinds[i] != "collective" or trace.is_async[i] or group < 0:
            continue
        if trace.group_ranks[group] and rank not in trace.group_ranks[group]:
            continue
        key: tuple[Any, ...] = (group, int(trace.seq[i]))
        if not trace.has_seq[i]:
            place = (group, int(trace.op[i]), step[i], rank)
            counted[place] += 1
            key = (group, int(trace.op[i]), step[i], counted[place])
        found[key].setdefault(rank, i)
    return {key: [members[r] for r in sorted(members)] for key, members in found.items()}


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
