"""Why a rank is named: the proof in words."""

from __future__ import annotations

import numpy as np

from crossrank.analysis.wording import duration, rank_list
from crossrank.model.kinds import COLLECTIVE, KINDS
from crossrank.model.progress import Progress
from crossrank.model.timeline import Timeline
from crossrank.model.verdicts import Mismatch, Pending, Reason


def operation_name(timeline: Timeline, p: Pending) -> str:
    """`all_reduce number 7 of group dp0`, `the message number 3 from rank 1 to rank 2`."""
    group = timeline.trace.groups[p.group] if p.group >= 0 else None
    number = f" number {p.seq}" if p.seq is not None else ""
    of = f" of group {group}" if group is not None else ""
    if p.kind == COLLECTIVE:
        return f"{p.op}{number}{of}"
    towards = "to" if p.op == "send" else "from"
    return f"the {p.op}{number} {towards} rank {p.peer}{of}"


def last_known(timeline: Timeline, rank: int) -> str:
    """What a rank was last known to do."""
    trace = timeline.trace
    lo, hi = trace.rows_of(rank)
    if lo == hi:
        return "nothing is known of it"
    at = lo + int(np.lexsort((np.arange(hi - lo), timeline.start_ns[lo:hi]))[-1])
    state = "in" if trace.is_open[at] else "after"
    return f"it was last seen {state} {trace.names[trace.name[at]]} ({KINDS[trace.kind[at]]}), {_ago(timeline, at)}"


def _ago(timeline: Timeline, span: int) -> str:
    latest = int(max(timeline.start_ns.max(), timeline.end_ns.max()))
    return f"{duration(latest - int(max(timeline.start_ns[span], timeline.end_ns[span])))} before the last event of the job"


def proof_of(timeline: Timeline, progress: Progress, rank: int, reason: Reason, p: Pending) -> str:
    """One sentence. p: the operation in which the others wait for the rank, or in which it stopped."""
    name = operation_name(timeline, p)
    told = {s.group: s for s in progress.status if s.rank == rank}.get(p.group)
    counters = f" (enqueued up to {told.enqueued}, completed up to {told.completed})" if told is not None else ""
    match reason:
        case "device_stopped":
            return f"Rank {rank} has not completed {name}, which others of the group have{counters}: its device side stopped."
        case "host_stopped":
            return f"Rank {rank} has not called {name} and has nothing outstanding{counters}: its host side stopped."
        case "desynchronised":
            return (
                f"{rank_list(p.waiting).capitalize()} wait in {name}, which rank {rank} left out: it is further on in its program."
            )
        case "deadlock":
            return f"Rank {rank} waits in {name} for {rank_list(p.absent)}, which wait{'s' if len(p.absent) == 1 else ''} in turn."
        case _:
            waiting = rank_list(p.waiting).capitalize()
            verb = "waits" if len(p.waiting) == 1 else "wait"
            return f"{waiting} {verb} in {name}, rank {rank} has not entered it and waits for nobody; {last_known(timeline, rank)}."


def skipped_mismatch(timeline: Timeline, rank: int, p: Pending) -> Mismatch:
    """A rank that left out an operation in which the others still wait."""
    trace = timeline.trace
    members = trace.group_ranks[p.group] if p.group >= 0 else ()
    sentence = (
        f"Rank {rank} left out {operation_name(timeline, p)}"
        + (f" in step {p.step}" if p.step is not None else "")
        + f": {rank_list(p.waiting)} wait in it, while rank {rank} is further on in its program."
    )
    return Mismatch(
        class_="skipped", group=trace.groups[p.group] if p.group >= 0 else "", members=members or tuple(sorted((*p.waiting, *p.absent))),
        seq=p.seq if p.seq is not None else 0, step=p.step, odd_ranks=(rank,), candidates=(), majority=p.op, odd={rank: "not called"},
        count=1, followers=0, window=None, unseen=(), confidence=0.97, sentence=sentence,
    )  # fmt: skip
