"""Whom a job that stands still waits for: follows the waiting from operation to operation to its end.

Everyone in an open operation waits for the members that have not come. A member that has not come
- has no data at all: it may be anywhere (`unseen`);
- is in, or in the step of, an operation that by its own order comes later: it left this one out (`skipped`);
- stopped on its device inside an operation that others have left: `device_stopped`;
- waits itself in another open operation: a victim, the waiting goes on from there;
- else waits for nobody: the end of the chain, and the cause.

If every chain leads back into itself the ranks wait for each other: a deadlock.

Where events are known to be lost, a rank without an open operation may be in one that was not reported. Then it is only named if
it is the only one missing somewhere and its own order of operations (analysis.program_order) says that nothing else could hold
it; else, or where more than one event in seventy is lost, the ranks it may be are given as suspects. So they are where those who
wait are not at one place of the program: one of them may have left a call out, so that all are in an operation nobody leaves and
only the report of the one that seems to be missing is lost. And so they are where several seem to be the end of a chain.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from crossrank.analysis.open_operations import OpenOperations, open_operations
from crossrank.analysis.program_order import Channel, Operation, ProgramOrder
from crossrank.analysis.proofs import proof_of, skipped_mismatch
from crossrank.analysis.reach import Lost, Reach, events_lost, reach
from crossrank.analysis.waiting_places import WaitingPlaces
from crossrank.model.kinds import COLLECTIVE, RECV, SEND, STEP
from crossrank.model.progress import RECORDER_LANE, Progress
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology
from crossrank.model.verdicts import Culprit, Mismatch, Pending, Reason, Standstill

_LOST_MOST = 0.015  # where more is lost, one missing event proves nothing
NOTHING_OPEN = Standstill((), (), (), (), (), (), (), dumped=False)


def find_standstill(timeline: Timeline, topology: Topology, progress: Progress, mismatches: tuple[Mismatch, ...]) -> Standstill:
    """The standstill of a timeline as far as it goes; the same whatever time it is. mismatches: of the same timeline."""
    found = open_operations(timeline, topology, progress, mismatches)
    if found is None:
        return NOTHING_OPEN
    return _Chains(timeline, progress, found).verdict()


class _Chains:
    """Sorts those who have not come."""

    def __init__(self, timeline: Timeline, progress: Progress, found: OpenOperations) -> None:
        self.timeline, self.progress, self.found = timeline, progress, found
        trace = timeline.trace
        self.seen = set(trace.ranks.tolist())
        self.order = ProgramOrder(timeline)
        self.recorded = np.isin(trace.lane, [i for i, name in enumerate(trace.lanes) if name == RECORDER_LANE])
        self.open_at: dict[int, list[Pending]] = defaultdict(list)
        for p in (*found.pending, *found.inside, *(p for p, _ in found.desynced), *found.stopped.values()):
            for rank in p.waiting:
                self.open_at[rank].append(p)
        self.unseen: set[int] = set()
        self.skips: dict[tuple[int, int], Pending] = {}
        self.candidates: dict[int, list[Pending]] = defaultdict(list)

    def verdict(self) -> Standstill:
        for p in self.found.pending:
            for rank in p.absent:
                self._sort(rank, p)
        for p, _ in self.found.desynced:
            self.unseen |= set(p.absent) - self.seen
        if not (self.candidates or self.skips or self.found.stopped or self.found.desynced):
            self._find_left_out()
        culprits = self._stopped() + self._desynchronised()
        named = {c.rank for c in culprits}
        ends, suspects = self._ends({r: ops for r, ops in self.candidates.items() if r not in named})
        culprits += ends
        if suspects and not culprits:
            self._find_left_out(on_one_lane=True)
            if self.skips:
                culprits, suspects = self._desynchronised(), set()
        for _, wrong in self.found.desynced:
            suspects |= set(wrong.candidates)
        cycle: tuple[int, ...] = ()
        if not (culprits or suspects):  # a circle holds whatever a rank without data does
            cycle = _cycle({r: ops for r, ops in self.open_at.items() if any(p.absent for p in ops)})
            culprits = [self._culprit(r, "deadlock", next(p for p in self.open_at[r] if p.absent)) for r in cycle]
        desynced = tuple(p for p, _ in self.found.desynced)
        skipped = tuple(skipped_mismatch(self.timeline, rank, p) for (rank, _), p in sorted(self.skips.items()))
        return Standstill(
            pending=self.found.pending,
            inside=(*self.found.inside, *desynced, *self._distinct_stops()),
            culprits=tuple(sorted(culprits, key=lambda c: c.rank)),
            suspects=tuple(sorted(suspects - {c.rank for c in culprits})),
            unseen=tuple(sorted(self.unseen)),
            cycle=cycle,
            skipped=skipped,
            dumped=bool(self.progress.dumped),
        )

    def _distinct_stops(self) -> tuple[Pending, ...]:
        return tuple({(p.group, p.seq): p for p in self._waited_for().values()}.values())

    def _sort(self, rank: int, p: Pending) -> None:
        if rank not in self.seen:
            self.unseen.add(rank)
        elif rank in self.found.stopped:
            return
        elif self._is_past(rank, p):
            self.skips.setdefault((rank, p.group), p)
        elif not self.open_at[rank]:
            self.candidates[rank].append(p)

    def _is_past(self, rank: int, p: Pending) -> bool:
        """Whether the rank is in a later step than `p`, so that it will never enter `p`."""
        step = self.order.step_of(rank)
        return step is not None and p.step is not None and step > p.step and self._proves(rank, p)

    def _proves(self, rank: int, p: Pending) -> bool:
        """Where events are lost, a missing call proves something if nobody else is missing: then it did not happen.

        Or if most are in the operation and nobody has left it: whoever is further on has not been in it.
        """
        absent = set(p.absent) & self.seen
        return not self.lost.events or absent == {rank} or (p.kind == COLLECTIVE and len(p.waiting) > len(absent))

    def _find_left_out(self, *, on_one_lane: bool = False) -> None:
        """Nobody is sure to be the end of a chain: looks for who waits in what it calls after what it is missing in.

        on_one_lane: only on one lane, where more than one reading is left.
        """
        for p in self.found.pending:
            for rank in p.absent:
                missed = _as_called_by(rank, p)
                step = self.order.step_of(rank)
                if missed is None or step is None or step != p.step or rank not in self.seen or not self._proves(rank, p):
                    continue
                now_in = [op for at in self.open_at[rank] if (op := _own(rank, at)) is not None]
                if any(self.order.comes_before(rank, missed, op, step, on_one_lane=on_one_lane) for op in now_in):
                    self.skips.setdefault((rank, p.group), p)

    @cached_property
    def lost(self) -> Lost:
        """Events known to be missing."""
        return events_lost(self.timeline, self.recorded)

    @cached_property
    def reach(self) -> Reach:
        """How far each rank got in every group."""
        trace = self.timeline.trace
        is_open = trace.is_open.copy()
        is_open[self.progress.over] = False
        return reach(self.timeline, self.progress, set(range(len(trace.groups))), is_open)

    def _stopped(self) -> list[Culprit]:
        """Ranks that stopped on their device, if others wait for them; else only the end of their operation was not reported."""
        return [self._culprit(r, "device_stopped", p) for r, p in sorted(self._waited_for().items())]

    def _waited_for(self) -> dict[int, Pending]:
        waited_for = {r for p in self.found.pending for r in p.absent}
        return {r: p for r, p in self.found.stopped.items() if r in waited_for}

    def _desynchronised(self) -> list[Culprit]:
        made: dict[int, Culprit] = {}
        for p, wrong in self.found.desynced:
            for r in wrong.odd_ranks:
                made.setdefault(r, Culprit(r, "desynchronised", wrong.group, wrong.seq, p.op, wrong.sentence))
        for (rank, _), p in sorted(self.skips.items()):
            made.setdefault(rank, self._culprit(rank, "desynchronised", p))
        return list(made.values())

    def _ends(self, candidates: dict[int, list[Pending]]) -> tuple[list[Culprit], set[int]]:
        """Who is sure to be the end of a chain, and who may be."""
        sure = set(candidates)
        if candidates and self.lost.events:
            sure = {r for r, ops in candidates.items() if self._nothing_else_holds(r, ops)}
        if len(sure) > 1:
            sure -= self._silent(sure)
        if len(sure) > 1 and self.lost.events:
            return [], set(candidates)  # one of them may be in an operation that the others are missing from
        ends = [self._culprit(r, self._side(r), min(candidates[r], key=_most_telling)) for r in sorted(sure)]
        explained = sure or self.skips or self.found.stopped or self.found.desynced
        return ends, set() if explained else set(candidates) | self._elsewhere(candidates)

    def _silent(self, ranks: set[int]) -> set[int]:
        """Ranks that do not say what they are in, where others do: they may be in an operation without having said so.

        An open step says less than what is open in it, and more than nothing.
        """
        trace = self.timeline.trace
        silent: set[int] = set()
        for told in (trace.is_open, trace.is_open & (trace.kind != STEP)):
            if (told & ~np.isin(trace.kind, (COLLECTIVE, SEND, RECV))).any():
                silent |= ranks - set(np.unique(trace.rank[told & ~self.recorded]).tolist()) - set(self.progress.dumped)
        return silent

    def _elsewhere(self, candidates: dict[int, list[Pending]]) -> set[int]:
        """Ranks that wait for a candidate in other work than most of those with them."""
        return {r for ops in candidates.values() for p in ops for r in self.places.strays(p)}

    @cached_property
    def places(self) -> WaitingPlaces:
        """In which work the waiting ranks are."""
        return WaitingPlaces(self.timeline.trace)

    def _nothing_else_holds(self, rank: int, ops: list[Pending]) -> bool:
        """The rank is the only one missing in an operation, and what it calls next by its own order waits for nobody else."""
        if self.lost.share > _LOST_MOST:
            return False
        alone = [p for p in ops if set(p.absent) - self.unseen == {rank}]
        if not alone or any(self.places.strays(p) for p in alone):
            return False
        following = self.order.next_of(rank, lambda op: self._is_passed(rank, op))
        return following is not None and not self._is_held(rank, following)

    def _is_passed(self, rank: int, op: Operation) -> bool:
        """A collective that somebody has left, all have been in; a send that nobody waits for blocks nobody."""
        if op.channel.kind == COLLECTIVE:
            return any(g == op.channel.group and seq >= op.seq for (g, _), seq in self.reach.completed.items())
        missed = (p for p in self.candidates[rank] if p.kind == RECV)
        return op.channel.kind == SEND and not any(_as_called_by(rank, p) == op for p in missed)

    def _is_held(self, rank: int, op: Operation) -> bool:
        if op.channel.kind == COLLECTIVE:
            members = self.timeline.trace.group_ranks[op.channel.group]
            others = set(members) - {rank} - self.unseen
            return any(not self.reach.has_entered(op.channel.group, m, op.seq) for m in others)
        if op.channel.kind == SEND:
            return False
        trace = self.timeline.trace
        sent = (trace.kind == SEND) & (trace.rank == op.channel.peer) & (trace.peer == rank) & (trace.group == op.channel.group)
        return not bool((trace.seq[sent] >= op.seq).any())

    def _side(self, rank: int) -> Reason:
        """A dump without anything outstanding says that the host stopped; else it only has not come."""
        return "host_stopped" if rank in self.progress.dumped else "not_entered"

    def _culprit(self, rank: int, reason: Reason, p: Pending) -> Culprit:
        trace = self.timeline.trace
        group = trace.groups[p.group] if p.group >= 0 else None
        proof = proof_of(self.timeline, self.progress, rank, reason, p)
        return Culprit(rank, reason, group, p.seq, p.op, proof)


def _most_telling(p: Pending) -> tuple[bool, int]:
    """Collectives before messages, then the earliest."""
    return p.kind != COLLECTIVE, p.since_ns


def _as_called_by(rank: int, p: Pending) -> Operation | None:
    """The operation as the rank that has not come would call it."""
    if p.seq is None:
        return None
    if p.kind == COLLECTIVE:
        return Operation(Channel(COLLECTIVE, p.group, -1), p.seq)
    return Operation(Channel(SEND if p.kind == RECV else RECV, p.group, p.waiting[0]), p.seq) if p.peer == rank else None


def _own(rank: int, p: Pending) -> Operation | None:
    """The operation as the rank that is in it calls it."""
    return Operation(Channel(p.kind, p.group, p.peer), p.seq) if p.seq is not None and rank in p.waiting else None


def _cycle(waits: dict[int, list[Pending]]) -> tuple[int, ...]:
    """Ranks that wait for each other in their first open operation, from the lowest on; () where there is no such cycle."""
    first = {r: min((p for p in ops if p.absent), key=lambda p: (p.since_ns, p.seq or 0)) for r, ops in waits.items()}
    done: set[int] = set()
    for start in sorted(first):
        path: list[int] = []
        node = start
        while node in first and node not in done and node not in path:
            path.append(node)
            node = next((a for a in first[node].absent if a in first and a not in done), -1)
        if node in path:
            ring = path[path.index(node) :]
            low = ring.index(min(ring))
            return tuple(ring[low:] + ring[:low])
        done.update(path)
    return ()
