"""Ranks that do not call the same operations as the rest of their group: who, since when, and by which slip.

For every group the first number on which members disagree about operation, size, element type or step is looked at. The odd ones
are the minority; without a majority nobody can tell which, and both sides are named as candidates. What slip it was says the
comparison of the calls that follow (analysis.call_history). All later disagreements of the same ranks follow from it and are
counted, so one cause is one finding, whatever the order in which files or events came.

Legal and never a finding: different sizes of operations that allow them (all_to_all, gather, scatter, the variants ending in v),
or of gathers and scatters that differ all along while the job goes on; calls missing before or after what a rank has recorded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from crossrank.analysis.call_history import COMPARED_MOST, Call, Slip, explain
from crossrank.analysis.wording import capital, numbers, rank_list
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.kinds import canonical_dtype, canonical_op
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.model.verdicts import Mismatch, MismatchClass

_UNEVEN_OPS = frozenset({"all_to_all", "gather", "scatter"})
_MAYBE_UNEVEN_OPS = frozenset({"all_gather", "reduce_scatter"})
_HABIT = 3  # instances that went on although sizes differed: then they may
_STEPS_IN_AGREEMENT = 2  # steps a group has to agree on before a disagreement about the step alone counts
_GROUPS_LOOKED_AT = 64
_CAUSES_A_GROUP = 4
_HISTORY = 256  # numbers before and after the disagreement that are known to the comparison
_CALLS_A_GROUP = 50_000  # calls looked at one by one
_KEPT = np.iinfo(np.int64)


def find_mismatches(timeline: Timeline) -> tuple[Mismatch, ...]:
    """All causes, the earliest first. O(members of collectives) and O(calls around each disagreement)."""
    found = [m for k in _first_of_groups(timeline) for m in _causes(timeline, k)]
    found += _memberships(timeline)
    return tuple(sorted(found, key=lambda m: (m.step if m.step is not None else -1, m.group, m.seq, m.members)))


def disagreeing(timeline: Timeline) -> BoolArray:
    """[k] collectives whose members disagree on operation, size, element type or the step they were called in."""
    trace, coll = timeline.trace, timeline.matches.collectives
    if len(coll) == 0:
        return np.zeros(0, dtype=np.bool_)
    words = [canonical_op(op) for op in trace.ops]
    distinct = sorted(set(words))
    meaning = np.array([*(distinct.index(w) for w in words), -1], dtype=np.int64)
    op = meaning[trace.op[coll.member]]
    size, dtype = trace.size_bytes[coll.member], _dtype_codes(timeline)[trace.dtype[coll.member]]
    uneven = np.array([*(w in _UNEVEN_OPS or _is_vector(o) for w, o in zip(words, trace.ops, strict=True)), False])[coll.op]
    sizes = _differs(size, size > 0, coll.ptr) & ~uneven
    sizes &= ~_habitually_uneven(timeline, sizes, words)
    return _differs(op, op >= 0, coll.ptr) | sizes | _differs(dtype, dtype >= 0, coll.ptr) | _steps_differ(timeline)


def _dtype_codes(timeline: Timeline) -> Int64Array:
    """One code for all spellings of an element type; the last entry stands for "not said"."""
    words = [canonical_dtype(dtype) for dtype in timeline.trace.dtypes]
    distinct = sorted(set(words))
    return np.array([*(distinct.index(w) for w in words), -1], dtype=np.int64)


def _is_vector(op: str) -> bool:
    bare = "".join(c for c in op.lower() if c.isalnum())
    return bare.endswith("v") and canonical_op(bare[:-1]) != bare[:-1]


def _differs(values: Int64Array, known: BoolArray, ptr: Int64Array) -> BoolArray:
    low = np.minimum.reduceat(np.where(known, values, _KEPT.max), ptr[:-1])
    high = np.maximum.reduceat(np.where(known, values, _KEPT.min), ptr[:-1])
    differs: BoolArray = low < high
    return differs


def _habitually_uneven(timeline: Timeline, sizes: BoolArray, words: list[str]) -> BoolArray:
    """[k] instances of gathers and scatters of a group whose sizes differ more often than not, and that end all the same."""
    trace, coll = timeline.trace, timeline.matches.collectives
    maybe = np.array([*(w in _MAYBE_UNEVEN_OPS for w in words), False])[coll.op]
    kind = coll.group.astype(np.int64) * (len(words) + 1) + coll.op + 1
    ended = ~np.logical_or.reduceat(trace.is_open[coll.member], coll.ptr[:-1])
    kinds, place = np.unique(kind, return_inverse=True)
    uneven = np.bincount(place[sizes & maybe & ended], minlength=len(kinds))
    habit = (uneven >= _HABIT) & (2 * uneven > np.bincount(place[maybe], minlength=len(kinds)))
    return maybe & habit[place]


def _steps_differ(timeline: Timeline) -> BoolArray:
    """[k] members say different steps, after the group agreed on the steps of enough before."""
    trace, coll = timeline.trace, timeline.matches.collectives
    step, known = trace.step[coll.member], trace.has_step[coll.member]
    differs = _differs(step, known, coll.ptr)
    if not differs.any():
        return differs
    high = np.maximum.reduceat(np.where(known, step, -1), coll.ptr[:-1])
    size = np.diff(coll.ptr)
    agreed = ~differs & (size > 1) & (high >= 0)
    new_step = agreed & np.concatenate((np.ones(1, np.bool_), (high[1:] != high[:-1]) | (coll.group[1:] != coll.group[:-1])))
    before = np.cumsum(new_step) - new_step
    first = np.concatenate((np.ones(1, np.bool_), coll.group[1:] != coll.group[:-1]))
    start = np.maximum.accumulate(np.where(first, np.arange(len(coll)), 0))
    enough: BoolArray = differs & (before - before[start] >= _STEPS_IN_AGREEMENT)
    return enough


def _first_of_groups(timeline: Timeline) -> list[list[int]]:
    """The disagreeing instances of each group, ascending by number."""
    rows = np.flatnonzero(disagreeing(timeline))
    group = timeline.matches.collectives.group[rows]
    edges = np.flatnonzero(np.concatenate((np.ones(min(len(rows), 1), np.bool_), group[1:] != group[:-1])))
    return [part.tolist() for part in np.split(rows, edges[1:])[:_GROUPS_LOOKED_AT] if len(part)]


class _Calls:
    """The calls of one group around the instances looked at, by rank and number."""

    def __init__(self, timeline: Timeline, rows: list[int]) -> None:
        trace, coll = timeline.trace, timeline.matches.collectives
        group = int(coll.group[rows[0]])
        lo, hi = (int(np.searchsorted(coll.group, group, side=s)) for s in ("left", "right"))
        members = int(coll.ptr[rows[0] + 1] - coll.ptr[rows[0]])
        reach = max(2 * COMPARED_MOST if members < 256 else 8, min(_HISTORY, _CALLS_A_GROUP // members))
        first, last = max(lo, rows[0] - reach), min(hi, rows[0] + reach)
        self.rows = rows[: int(np.searchsorted(rows, last))]
        self.window = _in_common(
            trace.rank[coll.member[coll.ptr[lo] : coll.ptr[hi]]], np.repeat(coll.seq[lo:hi], np.diff(coll.ptr[lo : hi + 1]))
        )
        words = [canonical_op(op) for op in trace.ops]
        distinct = sorted(set(words))
        self.words = distinct
        dtypes = _dtype_codes(timeline)
        self.dtypes = sorted({canonical_dtype(dtype) for dtype in trace.dtypes})
        self.of: dict[int, dict[int, Call]] = {}
        self.ended: dict[tuple[int, int], bool] = {}
        seq = np.repeat(coll.seq[first:last], np.diff(coll.ptr[first : last + 1])).tolist()
        for q, span in zip(seq, coll.member[coll.ptr[first] : coll.ptr[last]].tolist(), strict=True):
            rank, op = int(trace.rank[span]), int(trace.op[span])
            step = int(trace.step[span]) if trace.has_step[span] else None
            call = Call(
                distinct.index(words[op]) if op >= 0 else -1, int(trace.size_bytes[span]), int(dtypes[trace.dtype[span]]), step
            )
            self.of.setdefault(rank, {})[q] = call
            self.ended[rank, q] = not trace.is_open[span]

    def told(self, call: Call) -> str:
        """A call in words."""
        op = self.words[call.op] if call.op >= 0 else "collective"
        parts = [f"{op} of {call.size} bytes" if call.size else op]
        parts += [f"of {self.dtypes[call.dtype]}"] if call.dtype >= 0 and call.size else []
        parts += [f"in step {call.step}"] if call.step is not None else []
        return " ".join(parts)


def _causes(timeline: Timeline, rows: list[int]) -> list[Mismatch]:
    """The causes behind the disagreeing instances of one group."""
    coll = timeline.matches.collectives
    calls = _Calls(timeline, rows)
    found: list[Mismatch] = []
    left = [int(coll.seq[k]) for k in calls.rows]
    later = len(rows) - len(left)  # so far on that only what came before explains them
    while left and len(found) < _CAUSES_A_GROUP:
        made = _causes_at(timeline, int(coll.group[rows[0]]), calls, left[0])
        odd = {r for m in made for r in (*m.odd_ranks, *m.candidates)}
        rest = [q for q in left[1:] if not odd or not _odd_of(calls, q)[0] <= odd]
        followers = len(left) - 1 - len(rest)
        found += [replace(m, followers=followers + (0 if found else later)) for m in made]
        left = rest
    return found


def _in_common(rank: np.ndarray, seq: Int64Array) -> tuple[int, int] | None:
    """First and last number between which all ranks have calls."""
    ranks, place = np.unique(rank, return_inverse=True)
    first, last = np.full(len(ranks), _KEPT.max), np.full(len(ranks), _KEPT.min)
    np.minimum.at(first, place, seq)
    np.maximum.at(last, place, seq)
    low, high = int(first.max()), int(last.min())
    return (low, high) if low <= high else None


def _odd_of(calls: _Calls, seq: int) -> tuple[set[int], Call | None]:
    """Ranks that differ from the majority at a number, and what the majority called; all of them and None without one."""
    made = {r: mine[seq] for r, mine in calls.of.items() if seq in mine}
    votes = Counter(made.values())
    best, most = max(votes.items(), key=lambda item: (item[1], item[0][:3], item[0].step or 0))
    if 2 * most <= len(made):
        return set(made), None
    return {r for r, call in made.items() if call != best}, best


def _causes_at(timeline: Timeline, group: int, calls: _Calls, seq: int) -> list[Mismatch]:
    """Causes at one number: one for each kind of slip among the odd ranks."""
    odd, majority = _odd_of(calls, seq)
    if majority is None:
        sides = {call for r in odd for call in [calls.of[r][seq]]}
        reference = max(sides, key=lambda c: (c[:3], c.step or 0))
        others = {r for r in odd if calls.of[r][seq] == reference}
        suspect = odd - others if len(odd - others) else odd
        slip = _slip(calls, min(suspect), others, seq)
        return [_mismatch(timeline, group, calls, seq, slip, suspect, reference, tuple(sorted(odd)))]
    others = {r for r in calls.of if r not in odd}
    by_slip: dict[tuple[str, int], set[int]] = {}
    slips: dict[tuple[str, int], Slip] = {}
    for r in sorted(odd):
        slip = _slip(calls, r, others, seq)
        key = (_class_of(slip, calls.of[r][seq], majority), slip.count)
        by_slip.setdefault(key, set()).add(r)
        slips.setdefault(key, slip)
    return [_mismatch(timeline, group, calls, seq, slips[key], ranks, majority, ()) for key, ranks in sorted(by_slip.items())]


def _slip(calls: _Calls, rank: int, others: set[int], seq: int) -> Slip:
    votes: dict[int, Counter[Call]] = {}
    for r in others:
        for q, call in calls.of.get(r, {}).items():
            votes.setdefault(q, Counter())[call] += 1
    ref = {q: max(c.items(), key=lambda item: (item[1], item[0][:3], item[0].step or 0))[0] for q, c in votes.items()}
    return explain(calls.of[rank], ref, seq, went_on=calls.ended[rank, seq])


def _class_of(slip: Slip, mine: Call, majority: Call) -> MismatchClass:
    if slip.what in ("skipped", "extra", "order"):
        return slip.what
    if mine.op != majority.op:
        return "op"
    if mine.size != majority.size:
        return "size"
    return "dtype" if mine.dtype != majority.dtype else "skipped"


def _mismatch(
    timeline: Timeline, group: int, calls: _Calls, seq: int, slip: Slip, ranks: set[int], majority: Call, tied: tuple[int, ...]
) -> Mismatch:
    trace = timeline.trace
    odd = tuple(sorted(ranks))
    class_ = _class_of(slip, calls.of[odd[0]][seq], majority)
    users = sorted(calls.of)
    members = trace.group_ranks[group] or tuple(users)
    told = {r: calls.told(calls.of[r][seq]) for r in (tied or odd)}
    name = trace.groups[group]
    unseen = tuple(sorted(set(members) - set(users)))
    steps = Counter(c.step for r in users for c in [calls.of[r].get(seq)] if c is not None and r not in ranks)
    step = majority.step if majority.step is not None else _step_at(timeline, group, seq)
    slipped = {
        "skipped": f"left out {_several(slip.count, 'operation')} just before",
        "extra": f"called {_several(slip.count, 'operation')} that the others did not",
        "order": "called this one and the next in the other order",
    }.get(class_, "")
    where = f"number {seq} of group {name}" + (f" (step {step})" if step is not None else "")
    who = ", ".join(f"rank {r} called {call}" for r, call in list(told.items())[:4]) + (" and more" if len(told) > 4 else "")
    if tied:
        sentence = f"{where}: {who}; without a majority nobody can tell which is wrong."
    else:
        sentence = f"{where}: {who}, the other {sum(steps.values())} called {calls.told(majority)}" + (
            f"; {rank_list(odd)} {slipped}." if slipped else "."
        )
    if unseen:
        sentence += f" Nothing is known of {rank_list(unseen)}."
    return Mismatch(
        class_, name, members, seq, step, () if tied else odd, tied, calls.told(majority), told, slip.count, 0,
        calls.window, unseen, _confidence(slip, tied), capital(sentence),
    )  # fmt: skip


def _step_at(timeline: Timeline, group: int, seq: int) -> int | None:
    coll = timeline.matches.collectives
    k = np.flatnonzero((coll.group == group) & (coll.seq == seq))
    if len(k) == 0:
        return None
    step = int(timeline.step_of[coll.member[coll.ptr[k[0]] : coll.ptr[k[0] + 1]]].max())
    return None if step == NO_STEP else step


def _several(count: int, what: str) -> str:
    return f"one {what}" if count == 1 else f"{count} {what}s"


def _confidence(slip: Slip, tied: tuple[int, ...]) -> float:
    if tied:
        return 0.5
    return 0.7 if slip.what == "unclear" else 0.9 if slip.checked == 0 else 0.97 if slip.checked < 3 else 0.99


def _memberships(timeline: Timeline) -> list[Mismatch]:
    """Groups of one name whose members are given differently by ranks that are in both lists."""
    trace = timeline.trace
    names = Counter(name for name, ranks in zip(trace.groups, trace.group_ranks, strict=True) if ranks)
    doubled = [g for g, name in enumerate(trace.groups) if names[name] > 1 and trace.group_ranks[g]]
    if not doubled:
        return []
    users = _believers(timeline, doubled)
    found: list[Mismatch] = []
    for g in doubled:
        for h in doubled:
            if trace.groups[g] != trace.groups[h] or g == h or not users[g] or not users[h]:
                continue
            both = set(trace.group_ranks[g]) & set(trace.group_ranks[h])
            if users[g] & users[h] or not users[h] <= both or not users[g] & both:
                continue
            if len(users[g]) > len(users[h]):
                found.append(_membership(timeline, g, h, users[h]))
            elif len(users[g]) == len(users[h]) and users[g] <= both and g < h:
                found.append(_tied_membership(timeline, g, h, users))
    return found


def _believers(timeline: Timeline, groups: list[int]) -> dict[int, set[int]]:
    """Who takes a group for the one of its name: all who ever took part in it.

    But a rank may come to believe other members. So where nobody has ever left an operation of one of them, and what is called on it has
    the number that others wait in, only who waits counts. (A new group that was given an old name counts by itself.)
    """
    trace, coll = timeline.trace, timeline.matches.collectives
    group, rank, is_open = coll.group[coll.instance], trace.rank[coll.member], trace.is_open[coll.member]
    ever = {g: set(rank[group == g].tolist()) for g in groups}
    waiting = {g: set(rank[(group == g) & is_open].tolist()) for g in groups}
    number = {g: set(coll.seq[coll.instance[(group == g) & is_open]].tolist()) for g in groups}
    never_left = [g for g in groups if ever[g] and not (~is_open[group == g]).any()]
    changed = {
        trace.groups[h]
        for h in never_left
        for g in groups
        if g != h and trace.groups[g] == trace.groups[h] and number[h] & number[g]
    }
    return {g: waiting[g] if trace.groups[g] in changed else ever[g] for g in groups}


def _tied_membership(timeline: Timeline, one: int, other: int, users: dict[int, set[int]]) -> Mismatch:
    """As many believe the one as the other: nobody can tell who is wrong."""
    told = _membership(timeline, one, other, users[other])
    lists = {g: f"ranks {numbers(timeline.trace.group_ranks[g])}" for g in (one, other)}
    believed = {r: lists[g] for g in (one, other) for r in sorted(users[g])}
    sentence = (
        f"{rank_list(sorted(users[one]))} took part in group {told.group} as one of {lists[one]}, "
        f"{rank_list(sorted(users[other]))} as one of {lists[other]}; nobody can tell who is wrong."
    )
    return replace(told, odd_ranks=(), candidates=tuple(sorted(believed)), odd=believed, confidence=0.5, sentence=capital(sentence))


def _membership(timeline: Timeline, usual: int, other: int, odd: set[int]) -> Mismatch:
    trace, coll = timeline.trace, timeline.matches.collectives
    seq = int(coll.seq[np.flatnonzero(coll.group == other)].min())
    lists = f"ranks {numbers(trace.group_ranks[usual])}", f"ranks {numbers(trace.group_ranks[other])}"
    ranks = tuple(sorted(odd))
    sentence = f"{rank_list(ranks)} took part in group {trace.groups[usual]} as one of {lists[1]}, the others as one of {lists[0]}."
    return Mismatch(
        "membership", trace.groups[usual], trace.group_ranks[usual], seq, _step_at(timeline, other, seq), ranks, (), lists[0],
        dict.fromkeys(ranks, lists[1]), 1, 0, None, (), 0.9, capital(sentence),
    )  # fmt: skip
