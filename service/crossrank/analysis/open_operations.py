"""The communications that have begun and not ended, as operations: who is in them, who has not come, who should have left.

A collective that one member has left has been entered by all, so it holds nobody up any more; a member that is still in it has
stopped on its device (or its end was not reported: only a rank that did nothing since counts as stopped). Rooted operations wait
for their root only. A receive waits for its send, a send that does not return for its receive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crossrank.analysis.mismatches import disagreeing
from crossrank.analysis.reach import Reach, reach
from crossrank.model.arrays import BoolArray
from crossrank.model.kinds import ALL_TO_ROOT_OPS, COLLECTIVE, RECV, ROOT_TO_ALL_OPS, SEND, canonical_op
from crossrank.model.progress import Progress
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.model.topology import Topology
from crossrank.model.verdicts import Mismatch, Pending

_LOOKED_AT = 4096  # operations; more than that only garbage has


@dataclass(frozen=True, slots=True)
class OpenOperations:
    """Open operations, the earliest first.

    pending: others have not come. inside: all have. desynced: members disagree there or before.
    stopped: rank -> where it stopped on its device.
    """

    pending: tuple[Pending, ...]
    inside: tuple[Pending, ...]
    desynced: tuple[tuple[Pending, Mismatch], ...]
    stopped: dict[int, Pending]
    reach: Reach


def open_operations(
    timeline: Timeline, topology: Topology, progress: Progress, mismatches: tuple[Mismatch, ...]
) -> OpenOperations | None:
    """All open operations, the earliest first; None where no communication is open."""
    trace = timeline.trace
    is_open = trace.is_open.copy()
    is_open[progress.over] = False
    is_open &= np.isin(trace.kind, (COLLECTIVE, SEND, RECV)) & ~trace.is_async
    if not is_open.any():
        return None
    finder = _Finder(timeline, topology, progress, mismatches, is_open)
    finder.collectives()
    finder.messages()
    return OpenOperations(
        tuple(sorted(finder.pending, key=_by_time)),
        tuple(sorted(finder.inside, key=_by_time)),
        tuple(sorted(finder.desynced, key=lambda found: _by_time(found[0]))),
        finder.stopped,
        finder.reach,
    )


def _by_time(p: Pending) -> tuple[int, int, int, tuple[int, ...]]:
    return p.since_ns, p.group, -1 if p.seq is None else p.seq, p.waiting


class _Finder:
    """Sorts open spans into operations."""

    def __init__(
        self,
        timeline: Timeline,
        topology: Topology,
        progress: Progress,
        mismatches: tuple[Mismatch, ...],
        is_open: BoolArray,
    ) -> None:
        self.timeline, self.is_open = timeline, is_open
        coll = timeline.matches.collectives
        rows = np.flatnonzero(is_open[coll.member])
        self.instances = np.unique(coll.instance[rows])[:_LOOKED_AT]
        self.reach = reach(timeline, progress, set(coll.group[self.instances].tolist()), is_open)
        self.members_by_name = {group.name: group.ranks for group in topology.groups}
        self.mismatch_of = {(m.group, m.members): m for m in reversed(mismatches) if m.class_ != "membership"}
        self.beliefs = {m.group: m for m in reversed(mismatches) if m.class_ == "membership"}
        self.pending: list[Pending] = []
        self.inside: list[Pending] = []
        self.desynced: list[tuple[Pending, Mismatch]] = []
        self.stopped: dict[int, Pending] = {}

    def members(self, group: int) -> tuple[int, ...]:
        trace = self.timeline.trace
        known = trace.group_ranks[group] or self.members_by_name.get(trace.groups[group], ())
        return known or tuple(sorted(r for g, r in self.reach.entered if g == group))

    def collectives(self) -> None:
        trace, coll = self.timeline.trace, self.timeline.matches.collectives
        for k in self.instances.tolist():
            group, seq = int(coll.group[k]), int(coll.seq[k])
            spans = coll.member[coll.ptr[k] : coll.ptr[k + 1]]
            spans = spans[self.is_open[spans]]
            spans = spans[[not self.reach.has_left(group, r, seq) for r in trace.rank[spans].tolist()]]
            if len(spans) == 0:
                continue
            members = self.members(group)
            op = canonical_op(trace.ops[coll.op[k]]) if coll.op[k] >= 0 else "collective"
            absent = self._absent(group, seq, op, members, spans)
            found = self._operation(COLLECTIVE, group, -1, seq, op, spans, absent)
            wrong = self.mismatch_of.get((trace.groups[group], trace.group_ranks[group] or members)) or self._belief(group, members)
            if wrong is not None and wrong.seq <= seq and not self._got_over(wrong, group, seq):
                self.desynced.append((found, wrong))
            elif op not in ALL_TO_ROOT_OPS | ROOT_TO_ALL_OPS and any(self.reach.has_left(group, m, seq) for m in members):
                self._stopped(found, spans)
            else:
                (self.pending if absent else self.inside).append(found)

    def _belief(self, group: int, members: tuple[int, ...]) -> Mismatch | None:
        """A disagreement about who is in the group, if any of those who disagree is in this one."""
        wrong = self.beliefs.get(self.timeline.trace.groups[group])
        return wrong if wrong is not None and {*wrong.odd_ranks, *wrong.candidates} & set(members) else None

    def _got_over(self, wrong: Mismatch, group: int, seq: int) -> bool:
        """Whether the group went on after a disagreement: all of it has left a later operation on which it agrees."""
        coll = self.timeline.matches.collectives
        lo, hi = (int(np.searchsorted(coll.group, np.int32(group), side=s)) for s in ("left", "right"))
        between = lo + np.flatnonzero((coll.seq[lo:hi] > wrong.seq) & (coll.seq[lo:hi] < seq))
        between = between[~self.disagreeing[between] & coll.complete[between] & (np.diff(coll.ptr)[between] > 1)]
        return any(not self.is_open[coll.member[coll.ptr[k] : coll.ptr[k + 1]]].any() for k in between[::-1].tolist())

    @cached_property
    def disagreeing(self) -> BoolArray:
        """[k] collectives whose members do not call the same."""
        return disagreeing(self.timeline)

    def _absent(self, group: int, seq: int, op: str, members: tuple[int, ...], spans: np.ndarray) -> tuple[int, ...]:
        """Members that those inside wait for."""
        roots = np.unique(self.timeline.trace.peer[spans])
        if op in ROOT_TO_ALL_OPS and len(roots) == 1 and roots[0] in members:
            members = (int(roots[0]),)
        return tuple(m for m in members if not self.reach.has_entered(group, m, seq))

    def _operation(
        self, kind: int, group: int, peer: int, seq: int | None, op: str, spans: np.ndarray, absent: tuple[int, ...]
    ) -> Pending:
        step = int(self.timeline.step_of[spans].max())
        return Pending(
            kind, group, peer, seq, op, None if step == NO_STEP else step,
            tuple(self.timeline.trace.rank[spans].tolist()), absent, int(self.timeline.start_ns[spans].min()),
        )  # fmt: skip

    def _stopped(self, found: Pending, spans: np.ndarray) -> None:
        """Ranks still inside what others have left: by the counters of their dumps, or because they did nothing since."""
        trace = self.timeline.trace
        for rank, span in zip(trace.rank[spans].tolist(), spans.tolist(), strict=True):
            lo, hi = trace.rows_of(rank)
            later = (
                (trace.start_ns[lo:hi] > trace.start_ns[span]) & ~self.is_open[lo:hi] & (trace.domain[lo:hi] == trace.domain[span])
            )
            if (found.group, rank) in self.reach.behind or not later.any():
                self.stopped.setdefault(rank, found)

    def messages(self) -> None:
        """Open receives without their send, and open sends without their receive."""
        trace = self.timeline.trace
        matched = self.timeline.matches.messages
        spans = np.flatnonzero(self.is_open & ((trace.kind == SEND) | (trace.kind == RECV)) & (trace.peer >= 0))[:_LOOKED_AT]
        if len(spans) == 0:
            return
        paired = np.isin(spans, matched.send) | np.isin(spans, matched.recv)
        counts = _Counts(self.timeline)
        for span, is_paired in zip(spans.tolist(), paired.tolist(), strict=True):
            kind, rank, peer, group = (int(a[span]) for a in (trace.kind, trace.rank, trace.peer, trace.group))
            seq = int(trace.seq[span]) if trace.has_seq[span] else None
            source, target = (rank, peer) if kind == SEND else (peer, rank)
            if counts.is_over(kind, group, source, target, seq):
                continue
            there = is_paired or counts.other_side_came(kind, group, source, target, seq)
            one = np.array([span])
            found = self._operation(kind, group, peer, seq, "send" if kind == SEND else "recv", one, () if there else (peer,))
            (self.inside if there else self.pending).append(found)


class _Counts:
    """How many messages, and up to which number, each side of a channel has begun and ended."""

    def __init__(self, timeline: Timeline) -> None:
        self._trace = timeline.trace
        self._spans = np.flatnonzero(((self._trace.kind == SEND) | (self._trace.kind == RECV)) & ~self._trace.is_async)

    def _of(self, kind: int, group: int, source: int, target: int) -> np.ndarray:
        trace = self._trace
        rank, peer = (source, target) if kind == SEND else (target, source)
        mine = self._spans[(trace.kind[self._spans] == kind) & (trace.rank[self._spans] == rank)]
        return mine[(trace.peer[mine] == peer) & (trace.group[mine] == group)]

    def is_over(self, kind: int, group: int, source: int, target: int, seq: int | None) -> bool:
        """A later message of the same side has ended, so this one has too."""
        if seq is None:
            return False
        mine = self._of(kind, group, source, target)
        return bool((~self._trace.is_open[mine] & (self._trace.seq[mine] > seq)).any())

    def other_side_came(self, kind: int, group: int, source: int, target: int, seq: int | None) -> bool:
        """The other side has begun this message or a later one; without numbers, as many as this side has."""
        mine = self._of(kind, group, source, target)
        others = self._of(SEND if kind == RECV else RECV, group, source, target)
        if seq is None:
            return len(others) >= len(mine)
        return bool((self._trace.seq[others] >= seq).any())
