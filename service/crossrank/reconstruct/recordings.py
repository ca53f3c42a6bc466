"""One operation that two recordings of a rank describe becomes one: the flight recorder's entry and the span of a trace.

A dump knows what an operation is (group, seq, type) and when the host enqueued it; a trace knows when it ran. Imported together they
would stand for two operations, be matched twice and waited for twice. The join keeps the span as the operation, gives it what only
the entry says, and makes the entry a mark: still there, no operation any more.

    number   where the span has its seq in the group of the entry, the two that are equal in it and alike are one
    alike    same rank, kind, operation, peer and size (where both say it), and the same group where the span names one
    windows  a trace is whole between its first and last span: its operations of one sort follow each other in the dump, too
    order    so a window fits at one place of the dump: the latest at which every entry was enqueued before its operation began,
             and was found completed after it ended. An earlier place must be impossible by the completions, or, where the host's
             own time of the call is known, be in other steps, or at least twice as far away

    joined          entries that became one with a span         join_unsure     windows that fit at several places: kept apart
    join_order      spans whose entry could be one of two groups'        join_unfitting  windows that fit nowhere: kept apart
    join_unrecorded spans older than the dump                   seq_disputed    joined spans that members number differently
    join_contradicts equal numbers of operations that are not alike: kept apart

Numbers of dumps reach the spans of ranks without one: where members matched by order agree on a seq, all get it, which also settles
windows that fit at several places; where they differ, the order stands and nobody does. The entries are stamped by the machine of the rank, so they move to its clock domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.kinds import COLLECTIVE, MARK, RECV, SEND, canonical_op
from crossrank.model.progress import RECORDER_LANE
from crossrank.model.trace import JobTrace
from crossrank.model.words import NO_CODE
from crossrank.reconstruct.clock_home import at_home
from crossrank.reconstruct.keys import first_of_runs, pack_keys
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.unnumbered import BINDING, UNEVEN_OPS, number_operations

CLOCKS_READ_NS: Final = 200_000  # the two recordings read one clock in two ways; they agree within this
WINDOW_GAP_NS: Final = 1_000_000  # longer without any span, and a window of the trace is over
_RIVAL: Final = 2  # an earlier place must be so many times as far away


@dataclass(frozen=True, slots=True)
class Joined:
    """The trace with its recordings joined, and how many were and were not, by reason; {} where there was nothing to join."""

    trace: JobTrace
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Overlay:
    """Entries and spans laid over each other. longest_ns: from an entry to its call."""

    entry: Int64Array
    span: Int64Array
    longest_ns: int


def join_recordings(trace: JobTrace) -> Joined:
    """Joins flight recorder entries with the spans of other recordings. O(n log n); nothing but a look where no dump is."""
    recorded = np.isin(trace.lane, [i for i, name in enumerate(trace.lanes) if name == RECORDER_LANE])
    if not recorded.any() or recorded.all():
        return Joined(trace, dict(trace.nodes))
    trace = at_home(trace, recorded)
    comm = np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async
    entries, spans = np.flatnonzero(comm & recorded), np.flatnonzero(comm & ~recorded)
    both = np.intersect1d(trace.rank[entries], trace.rank[spans])
    entries, spans = (rows[np.isin(trace.rank[rows], both)] for rows in (entries, spans))
    if len(entries) == 0:
        return Joined(trace, dict(trace.nodes))
    counts: Counter[str] = Counter(trace.nodes)
    numbered = trace.has_seq[spans] & np.isin(trace.group[spans], trace.group[entries][trace.has_seq[entries]])
    entry, span, unlike = _by_number(trace, entries, spans[numbered], trace.seq)
    counts["join_contradicts"] = unlike
    left = entries[~np.isin(entries, entry)]
    step = assign_steps(trace)
    pairs = [_place(trace, step, *window, counts) for window in _windows(trace, left, spans[~numbered], ~recorded)]
    entry = np.concatenate([entry, *(p[0] for p in pairs)])
    span = np.concatenate([span, *(p[1] for p in pairs)])
    homed = _completed(trace, entry, span, ("group", "peer"))
    trace, numbered_now = _numbered(homed, entry, span, counts)
    left = entries[~np.isin(entries, entry)]
    settled, their, unlike = _by_number(trace, left, np.setdiff1d(numbered_now, span), trace.seq)
    counts["join_contradicts"] += unlike
    counts["join_unsure"] -= min(len(settled), counts["join_unsure"])
    counts["joined"] = len(entry) + len(settled)
    entry, span = np.concatenate((entry, settled)), np.concatenate((span, their))
    told = trace.has_seq[span]  # sizes and types of spans matched by order stay as all members have them
    trace = _completed(trace, entry[told], span[told], ("dtype", "size_bytes"))
    return Joined(_as_marks(trace, entry), {reason: n for reason, n in sorted(counts.items()) if n})


def _by_number(trace: JobTrace, entries: Int64Array, spans: Int64Array, seq: Int64Array) -> tuple[Int64Array, Int64Array, int]:
    """(entry, span) pairs of one rank, group, peer and seq, and how many of those are not one operation after all."""
    entries = entries[trace.has_seq[entries]]
    rows = np.concatenate((entries, spans))
    is_span = np.arange(len(rows)) >= len(entries)
    key = pack_keys(trace.rank[rows], trace.kind[rows], trace.group[rows], trace.peer[rows], seq[rows])
    order = np.lexsort((trace.start_ns[rows], is_span, key))
    rows, is_span, key = rows[order], is_span[order], key[order]
    first = first_of_runs(key * 2 + is_span)
    rows, is_span, key = rows[first], is_span[first], key[first]
    pair = np.flatnonzero((key[1:] == key[:-1]) & ~is_span[:-1] & is_span[1:])
    entry, span = rows[pair], rows[pair + 1]
    words = np.array([*np.unique([canonical_op(op) for op in trace.ops], return_inverse=True)[1].tolist(), NO_CODE])
    alike = words[trace.op[entry]] == words[trace.op[span]]
    alike &= trace.start_ns[entry] <= host_ns(trace, span) + CLOCKS_READ_NS
    return entry[alike], span[alike], int((~alike).sum())


def _windows(
    trace: JobTrace, entries: Int64Array, spans: Int64Array, of_trace: BoolArray
) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """(entries, spans, host times of the spans) of each sort of operation and window of a trace, in order of time."""
    rows = np.concatenate((entries, spans))
    is_span = np.arange(len(rows)) >= len(entries)
    time = np.concatenate((trace.start_ns[entries], host_ns(trace, spans)))
    sort = _sorts(trace, rows, is_span)
    window = np.zeros(len(rows), dtype=np.int64)
    window[is_span] = _window_of(trace, spans, of_trace)
    order = np.lexsort((rows, time, window, is_span, sort))
    rows, is_span, sort, window = rows[order], is_span[order], sort[order], window[order]
    time = time[order]
    edge = np.append(np.flatnonzero(first_of_runs(sort)), len(rows))
    for low, high in zip(edge[:-1].tolist(), edge[1:].tolist(), strict=True):
        middle = low + int(np.searchsorted(is_span[low:high], True))
        if low < middle < high:
            cuts = np.flatnonzero(np.diff(window[middle:high])) + 1
            for part in np.split(np.arange(middle, high), cuts):
                yield rows[low:middle], rows[part], time[part]


def host_ns(trace: JobTrace, spans: Int64Array) -> Int64Array:
    """When the host called each operation: the start of the call it links to, else its own start."""
    time = trace.start_ns[spans].copy()
    place = np.minimum(np.searchsorted(trace.link_effect, spans), max(len(trace.link_effect) - 1, 0))
    if len(trace.link_effect):
        linked = trace.link_effect[place] == spans
        cause = trace.link_cause[place[linked]]
        time[linked] = np.where(trace.rank[cause] == trace.rank[spans[linked]], trace.start_ns[cause], time[linked])
    return time


def _sorts(trace: JobTrace, rows: Int64Array, is_span: BoolArray) -> Int64Array:
    """[rows] code of what an entry and a span must have in common."""
    words = [canonical_op(op) for op in trace.ops]
    code = {word: i for i, word in enumerate(sorted(set(words)))}
    op = np.array([*(code[w] for w in words), NO_CODE])[trace.op[rows]]
    base = np.unique(pack_keys(trace.rank[rows], trace.kind[rows], op, trace.peer[rows]), return_inverse=True)[1]
    uneven = np.array([*(w in UNEVEN_OPS for w in words), True])[trace.op[rows]]
    unsaid = np.bincount(base, weights=trace.size_bytes[rows] == 0)[base] > 0
    size = np.where(uneven | unsaid, 0, trace.size_bytes[rows])
    homeless = np.bincount(base, weights=is_span & (trace.group[rows] < 0))[base] > 0
    group = np.where(homeless, NO_CODE, _same_groups(trace, rows, is_span)[trace.group[rows]])
    return pack_keys(base, size, group)


def _same_groups(trace: JobTrace, rows: Int64Array, is_span: BoolArray) -> Int32Array:
    """[groups + 1] one code for the names that entries and spans give one membership, where each has exactly one name for it."""
    code = np.arange(len(trace.groups) + 1, dtype=np.int32)
    code[-1] = NO_CODE
    named: dict[tuple[int, ...], tuple[set[int], set[int]]] = {}
    for of_span in (False, True):
        for g in np.unique(trace.group[rows][is_span == of_span]).tolist():
            if g >= 0 and trace.group_ranks[g]:
                named.setdefault(trace.group_ranks[g], (set(), set()))[of_span].add(g)
    for by_entry, by_span in named.values():
        if len(by_entry) == len(by_span) == 1:
            code[list(by_span)] = code[list(by_entry)]
    return code


def _window_of(trace: JobTrace, spans: Int64Array, of_trace: BoolArray) -> Int64Array:
    """[spans] number of the stretch of the rank's trace without a gap that each begins in."""
    rows = np.flatnonzero(of_trace & np.isin(trace.rank, np.unique(trace.rank[spans])))
    rows = rows[np.lexsort((trace.start_ns[rows], trace.rank[rows]))]
    first = first_of_runs(trace.rank[rows])
    begins = first.copy()
    edge = np.append(np.flatnonzero(first), len(rows))
    for low, high in zip(edge[:-1].tolist(), edge[1:].tolist(), strict=True):
        reached = np.maximum.accumulate(trace.end_ns[rows[low:high]])
        begins[low + 1 : high] |= trace.start_ns[rows[low + 1 : high]] - reached[:-1] > WINDOW_GAP_NS
    number = np.zeros(len(trace), dtype=np.int64)
    number[rows] = np.cumsum(begins)
    return number[spans]


def _place(
    trace: JobTrace, step: Int64Array, entries: Int64Array, spans: Int64Array, called_ns: Int64Array, counts: Counter[str]
) -> tuple[Int64Array, Int64Array]:
    """(entry, span) pairs of one window, none where they cannot be told."""
    none = np.empty(0, dtype=np.int64)
    created = trace.start_ns[entries]
    latest = np.searchsorted(created, called_ns + CLOCKS_READ_NS, side="right") - 1  # the last entry each span can be
    known = np.flatnonzero(latest >= 0)
    counts["join_unrecorded"] += len(spans) - len(known)
    if len(known) == 0:
        return none, none
    shift = int((latest[known] - known).min())
    here, earlier = (_at(trace, entries, spans, called_ns, s) for s in (shift, shift - 1))
    if here is None:
        counts["join_unfitting"] += len(known)
        return none, none
    if earlier is not None and not (_on_host(trace, spans, called_ns) and _is_nearer(step, here, earlier)):
        counts["join_unsure"] += len(known)
        return none, none
    entry, span = here.entry, here.span
    counts["join_unrecorded"] += len(known) - len(span)
    mixed = _mixed_groups(trace, entries, spans, latest, shift)[len(spans) - len(span) :]
    counts["join_order"] += int(mixed.sum())
    return entry[~mixed], span[~mixed]


def _on_host(trace: JobTrace, spans: Int64Array, called_ns: Int64Array) -> bool:
    """Whether the host's time is known of every span: it ran there, or links to its call."""
    device = np.array([name.startswith("cuda") for name in trace.lanes])
    return bool((~device[trace.lane[spans]] | (trace.start_ns[spans] != called_ns)).all())


def _is_nearer(step: Int64Array, here: _Overlay, earlier: _Overlay) -> bool:
    """Whether one place of a window leaves no doubt about the place before it."""
    steps_agree = [bool((step[place.entry] == step[place.span]).all()) for place in (here, earlier)]
    return steps_agree == [True, False] or _RIVAL * here.longest_ns <= earlier.longest_ns


def _at(trace: JobTrace, entries: Int64Array, spans: Int64Array, called_ns: Int64Array, shift: int) -> _Overlay | None:
    """A window at one place of the dump; None where it cannot be there."""
    first = max(0, -shift)
    entry, span = entries[first + shift : len(spans) + shift], spans[first:]
    if len(entry) == 0 or len(entry) != len(span):
        return None
    completed = ~trace.is_open[entry] & (trace.end_ns[entry] < trace.end_ns[span] - CLOCKS_READ_NS)
    if (completed & ~trace.is_open[span]).any():
        return None
    return _Overlay(entry, span, int(np.maximum(called_ns[first:] - trace.start_ns[entry], 0).max()))


def _mixed_groups(trace: JobTrace, entries: Int64Array, spans: Int64Array, latest: Int64Array, shift: int) -> BoolArray:
    """[spans] that do not name their group and began when entries of two groups were waiting."""
    mixed = np.zeros(len(spans), dtype=np.bool_)
    if (trace.group[spans] >= 0).all():
        return mixed
    group = trace.group[entries]
    change = np.append(np.flatnonzero(group[1:] != group[:-1]), len(group) - 1)
    for i in range(max(0, -shift), len(spans)):
        last_alike = int(change[np.searchsorted(change, i + shift)])
        if latest[i] > last_alike:
            mixed[i] = True
            mixed[last_alike + 1 - shift : int(latest[i]) + 1 - shift] = True
    return mixed


def _completed(trace: JobTrace, entry: Int64Array, span: Int64Array, names: tuple[str, ...]) -> JobTrace:
    """The trace with what only the entries say on their spans."""
    filled = {}
    for name in names:
        column = getattr(trace, name).copy()
        missing = 0 if name == "size_bytes" else NO_CODE
        column[span] = np.where(column[span] == missing, column[entry], column[span])
        filled[name] = column
    return replace(trace, **filled)


def _as_marks(trace: JobTrace, entry: Int64Array) -> JobTrace:
    kind = trace.kind.copy()
    kind[entry] = MARK
    return replace(trace, kind=kind)


def _numbered(trace: JobTrace, entry: Int64Array, span: Int64Array, counts: Counter[str]) -> tuple[JobTrace, Int64Array]:
    """The trace with the numbers of entries on their spans and on those of other ranks that are the same by order; which spans."""
    new = ~trace.has_seq[span] & trace.has_seq[entry]
    span, number = span[new], trace.seq[entry[new]]
    comm = (trace.kind == COLLECTIVE) & ~trace.is_async & ~trace.has_seq & (trace.group >= 0)
    comm[entry] = False
    without = np.setdiff1d(np.flatnonzero(comm & np.isin(trace.group, np.unique(trace.group[span]))), span)
    if len(without) and len(span):
        number, span = _agreed(trace, span, number, without, counts)
    seq, has_seq = trace.seq.copy(), trace.has_seq.copy()
    seq[span], has_seq[span] = number, True
    return replace(trace, seq=seq, has_seq=has_seq), span


def _agreed(
    trace: JobTrace, span: Int64Array, seq: Int64Array, without: Int64Array, counts: Counter[str]
) -> tuple[Int64Array, Int64Array]:
    """(seq, spans) of all collectives on whose number those that have one agree; `without` are those that have none."""
    rows = np.concatenate((span, without))
    collective = trace.kind[rows] == COLLECTIVE
    number, sort, confidence = number_operations(trace, rows)
    of = np.unique(pack_keys(trace.group[rows], sort, number), return_inverse=True)[1]
    known = np.arange(len(rows)) < len(span)
    voting = known & collective
    voted = seq[np.flatnonzero(voting)]
    instances = int(of.max()) + 1
    least, most = np.full(instances, np.iinfo(np.int64).max), np.full(instances, np.iinfo(np.int64).min)
    np.minimum.at(least, of[voting], voted)
    np.maximum.at(most, of[voting], voted)
    sure = np.ones(instances, dtype=np.bool_)
    np.logical_and.at(sure, of, confidence >= BINDING)
    unlike = ((least < most) & sure)[of] & voting
    counts["seq_disputed"] += int(unlike.sum())
    told = np.where(known, ~unlike, ((least == most) & sure)[of])
    found = np.where(known, np.append(seq, np.zeros(len(without), dtype=np.int64)), least[of])
    return found[told], rows[told]
