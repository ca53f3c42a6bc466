"""How far each rank has got in each process group, from its operations and from the counters of dumps.

Operations of one group are called, and complete, in the order of their numbers. So a rank that has reported number 7 has called
number 5, whether or not number 5 was reported; and one that has left number 7 has left number 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.kinds import COLLECTIVE, RECV, SEND, STEP
from crossrank.model.progress import Progress
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.reconstruct.keys import first_of_runs, pack_keys

_NOWHERE = np.iinfo(np.int64).min
_STEPS_LOOKED_AT = 16  # for what is lost


@dataclass(frozen=True, slots=True)
class Reach:
    """Furthest number by (group, rank) of the groups asked about.

    behind: (group, rank) whose counters say that operations are outstanding which others completed.
    """

    entered: dict[tuple[int, int], int]
    completed: dict[tuple[int, int], int]
    behind: frozenset[tuple[int, int]]

    def has_entered(self, group: int, rank: int, seq: int) -> bool:
        """Whether the rank has called that number or a later one."""
        return self.entered.get((group, rank), _NOWHERE) >= seq

    def has_left(self, group: int, rank: int, seq: int) -> bool:
        """Whether the rank's operation of that number is over."""
        return self.completed.get((group, rank), _NOWHERE) >= seq


def reach(timeline: Timeline, progress: Progress, groups: set[int], is_open: BoolArray) -> Reach:
    """Reach in some groups. is_open: [n] spans that are taken as not over."""
    trace, coll = timeline.trace, timeline.matches.collectives
    rows = np.flatnonzero(np.isin(coll.group[coll.instance], sorted(groups))) if groups else np.empty(0, dtype=np.int64)
    instance = coll.instance[rows]
    span, group, seq = coll.member[rows], coll.group[instance], coll.seq[instance]
    entered = _furthest(group, trace.rank[span], seq)
    over = ~is_open[span]
    completed = _furthest(group[over], trace.rank[span][over], seq[over])
    messages = set(np.unique(trace.group[np.isin(trace.kind, (SEND, RECV))]).tolist())
    told = [s for s in progress.status if s.group not in messages]
    best: dict[int, int] = {}
    for s in told:
        key = s.group, s.rank
        for known, value in ((entered, s.enqueued), (completed, s.completed)):
            if value is not None:
                known[key] = max(value, known.get(key, value))
        if s.completed is not None:
            best[s.group] = max(s.completed, best.get(s.group, s.completed))
    behind = {
        (s.group, s.rank)
        for s in told
        if s.completed is not None and s.enqueued is not None and s.completed < best[s.group] and s.enqueued > s.completed
    }
    return Reach(entered, completed, frozenset(behind))


def _furthest(group: np.ndarray, rank: np.ndarray, seq: Int64Array) -> dict[tuple[int, int], int]:
    if len(seq) == 0:
        return {}
    key = (group.astype(np.int64) << 32) | rank
    keys, place = np.unique(key, return_inverse=True)
    top = np.full(len(keys), _NOWHERE)
    np.maximum.at(top, place, seq)
    return {(k >> 32, k & 0xFFFFFFFF): s for k, s in zip(keys.tolist(), top.tolist(), strict=True)}


@dataclass(frozen=True, slots=True)
class Lost:
    """events: known to be missing. share: at least this share of all is (two standard deviations below what was counted)."""

    events: float
    share: float


def events_lost(timeline: Timeline, recorded: BoolArray) -> Lost:
    """Numbered events that must be missing, with events that could not be used.

    Numbers are those of operations within a group, of messages within a channel and of a rank's step spans; missing is what lies
    between the first and the last that a rank has in the last steps. recorded: [n] spans from dumps, whose windows may have gaps. The higher, the
    less the absence of an event proves.
    """
    trace = timeline.trace
    comm = np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & trace.has_seq & (trace.group >= 0)
    is_step = (trace.kind == STEP) & trace.has_step
    last = int(timeline.step_of.max()) if len(trace) else NO_STEP
    recent = timeline.step_of > max(last - _STEPS_LOOKED_AT, NO_STEP) if last != NO_STEP else True
    spans = np.flatnonzero((comm | is_step) & ~trace.is_async & ~recorded & recent)
    unusable = sum(trace.excluded.values())
    if len(spans) == 0:
        return Lost(float(unusable), float(unusable > 0))
    of_comm = comm[spans]
    peer = np.where(of_comm & (trace.kind[spans] != COLLECTIVE), trace.peer[spans], -1)
    key = pack_keys(trace.rank[spans], trace.kind[spans], np.where(of_comm, trace.group[spans], -1), peer)
    number = np.where(of_comm, trace.seq[spans], trace.step[spans])
    order = np.lexsort((number, key))
    key, number = key[order], number[order].astype(np.float64)  # a hostile range overflows int64
    new = ~first_of_runs(key) & (number != np.concatenate((number[:1], number[:-1])))
    gaps = np.where(new, number - np.concatenate((number[:1], number[:-1])) - 1, 0.0)
    missing = unusable + float(gaps.sum())
    return Lost(missing, max(0.0, missing - 2.0 * float(np.sqrt(missing))) / (missing + len(spans)))
