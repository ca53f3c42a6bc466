"""The breakdown by looking at every nanosecond of every row. The judge of `analysis.breakdown`."""

from __future__ import annotations

from collections import Counter

from crossrank.analysis.lane_work import lane_work, stamp_times
from crossrank.analysis.steps import StepTable
from crossrank.model.gates import gates_of
from crossrank.model.kinds import KINDS
from crossrank.model.timeline import Timeline

_WORK = ("compute", "data", "checkpoint", "copy")


def paint(timeline: Timeline, steps: StepTable) -> list[Counter[str]]:
    """Time per category of each row, for small traces with small times only."""
    return [_paint_row(timeline, steps, row) for row in range(len(steps.rank))]


def _paint_row(timeline: Timeline, steps: StepTable, row: int) -> Counter[str]:
    rank, begin, end = int(steps.rank[row]), int(steps.rank_start_ns[row]), int(steps.rank_end_ns[row])
    active: dict[int, set[str]] = {t: set() for t in range(begin, end)}
    trace, work, times = timeline.trace, lane_work(timeline), stamp_times(timeline)
    gates = gates_of(timeline.matches, len(trace))

    def mark(start: int, stop: int, what: str) -> None:
        for t in range(max(start, begin), min(stop, end)):
            active[t].add(what)

    for stamp in trace.lane_stamps.tolist():
        owner, before = int(work.owner[stamp]), int(work.pred[stamp])
        if trace.rank[stamp // 2] != rank or not work.is_program[stamp] or before < 0 or owner < 0:
            continue
        kind = KINDS[trace.kind[owner]]
        if kind in ("collective", "send", "recv") and not trace.is_async[owner]:
            continue
        if kind != "step":
            mark(int(times[before]), int(times[stamp]), kind if kind in (*_WORK, "sync", "idle") else "other")
    for i in range(len(trace)):
        if trace.rank[i] != rank or KINDS[trace.kind[i]] not in ("collective", "send", "recv") or trace.is_async[i]:
            continue
        how = "blocked" if work.is_blocking[i] else "flying"
        start, stop = int(timeline.start_ns[i]), int(timeline.end_ns[i])
        turn = start
        if trace.is_open[i]:
            turn = stop = 10**6
        elif gates.waits[i] >= 0:
            members = [j for j in range(len(trace)) if gates.arrives[j] == gates.waits[i]]
            turn = min(max([start, *(int(timeline.start_ns[j]) for j in members)]), stop)
        mark(start, turn, f"{how} wait")
        mark(turn, stop, f"{how} transfer")
    return Counter(_state(what) for what in active.values())


def _state(what: set[str]) -> str:
    order = (*_WORK, "other", "blocked transfer", "blocked wait", "flying transfer", "flying wait", "sync", "idle")
    return next((state.split()[-1] for state in order if state in what), "unknown")
