"""A job as a picture for trace viewers: chosen ranks and steps, aligned, with arrows between ranks and the critical path.

The rows are the stored events, as `/events` gives them; what the last derivation knows of them (steps, arrows, path) is joined by
rank and span id. Ranks are read a few at a time, so that memory holds some 200,000 events whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.exporters.picture import Picture, Process, Sheet
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.model.timeline import NO_STEP
from crossrank.query.aligned import How, aligned_times, event_ids, with_alignment
from crossrank.query.answers.steps import chosen_steps
from crossrank.query.arrows import SpanArrows, arrows_of
from crossrank.query.informative import Chosen, most_informative, named
from crossrank.query.jobview import JobView, carried
from crossrank.query.path_sheet import PathSheet, path_sheet
from crossrank.query.row_sheet import row_sheet
from crossrank.store.filter import EventFilter

EVENTS_AT_ONCE: Final = 200_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What to draw. ranks: ranges [first, last], None for the `top` most informative. first, last: steps."""

    ranks: list[tuple[int, int]] | None
    top: int
    first: int | None
    last: int | None
    aligned: How
    spans_most: int


@dataclass(frozen=True, slots=True)
class _Plan:
    chosen: tuple[Chosen, ...]  # by rank
    counts: Int64Array  # spans of each
    before_ns: int | None  # spans that start from here on are left out
    arrows: SpanArrows
    path: PathSheet | None
    base_ns: int


def drawing(view: JobView, asked: Asked) -> Picture:
    """The picture. Raises NotFound for ranks without events."""
    plan = _plan(view, asked)
    lost: dict[str, int] = {}
    return Picture(
        title=f"crossrank {view.snapshot.job}",
        processes=(_PATH_PROCESS, *(_process(view, c) for c in plan.chosen)),
        base_ns=plan.base_ns,
        sheets=_sheets(view, asked, plan, lost),
        notes=lambda: _notes(view, asked, plan, lost),
        truncated=plan.before_ns is not None or view.derived.truncated,
    )


_PATH_PROCESS: Final = Process(
    "critical path", (), "What made each step as long as it was: one chain of work and transfers across all ranks."
)


def _plan(view: JobView, asked: Asked) -> _Plan:
    derived, trace = view.derived, view.derived.timeline.trace
    steps = chosen_steps(view, asked.first, asked.last)
    chosen = most_informative(view, asked.top, steps) if asked.ranks is None else named(view, asked.ranks)
    chosen = tuple(sorted(chosen, key=lambda c: c.rank))
    start, end = aligned_times(view.derived.timeline, asked.aligned)
    ranks = np.array([c.rank for c in chosen], dtype=np.int32)
    shown = np.isin(trace.rank, ranks) & _in_steps(derived.timeline.step_of, derived.timeline.step_of != NO_STEP, asked)
    before_ns = None
    if int(shown.sum()) > asked.spans_most:
        before_ns = int(np.partition(start[shown], asked.spans_most)[asked.spans_most])
        shown &= start < before_ns
    path = path_sheet(view, steps, before_ns) if asked.aligned == "repaired" and len(steps) else None
    first = start[shown].min(initial=np.iinfo(np.int64).max)
    base = min(int(first), path.sheet.start_ns.min(initial=first) if path else int(first))
    counts = np.bincount(np.searchsorted(ranks, trace.rank[shown]), minlength=len(ranks)).astype(np.int64)
    return _Plan(chosen, counts, before_ns, arrows_of(derived, shown, start, end), path, base if shown.any() else 0)


def _in_steps(step: Int64Array, known: BoolArray, asked: Asked) -> BoolArray:
    keep = known if asked.first is not None or asked.last is not None else np.ones(len(step), dtype=bool)
    if asked.first is not None:
        keep = keep & (step >= asked.first)
    return keep & (step <= asked.last) if asked.last is not None else keep


def _process(view: JobView, chosen: Chosen) -> Process:
    trace, clocks = view.derived.timeline.trace, view.derived.timeline.clocks
    domain = int(trace.domain[trace.rows_of(chosen.rank)[0]])
    bound = max(abs(int(clocks.bound_lo_ns[domain])), abs(int(clocks.bound_hi_ns[domain])))
    sure = f"right within {bound} ns" if bound < UNALIGNED_NS else "nothing relates it to other clocks"
    host = trace.hosts.get(chosen.rank)
    labels = (*((host,) if host else ()), chosen.why)
    return Process(f"rank {chosen.rank}", labels, f"Clock {trace.domains[domain]}: {sure}.")


def _sheets(view: JobView, asked: Asked, plan: _Plan, lost: dict[str, int]) -> Iterator[Sheet]:
    if plan.path is not None:
        yield plan.path.sheet
    ranks = [c.rank for c in plan.chosen]
    group = np.cumsum(plan.counts) // EVENTS_AT_ONCE
    room = asked.spans_most  # events that have come since the derivation are bounded by it too
    for number in np.unique(group).tolist():
        places = np.flatnonzero(group == number)
        rows = _read(view, asked, [ranks[p] for p in places.tolist()], plan.before_ns)
        if len(rows) > room:
            lost["newer_events"] = lost.get("newer_events", 0) + len(rows) - room
            rows = rows.slice(0, room)
        room -= len(rows)
        if not len(rows):
            continue
        sheet, order, unplaced = row_sheet(rows, np.array(ranks, dtype=np.int32), first_process=1)
        lost["before_1970"] = lost.get("before_1970", 0) + unplaced
        span, found = view.derived.index.find(rows["rank"].to_numpy().astype(np.int32), event_ids(rows))
        span = np.where(found, span, -1)[order]
        yield replace(sheet, begins=plan.arrows.begins(span), ends=plan.arrows.ends(span))


def _read(view: JobView, asked: Asked, ranks: list[int], before_ns: int | None) -> pa.Table:
    attempt = view.derived.timeline.trace.attempt
    parts = []
    for stored in view.snapshot.batches(where=EventFilter(attempt=attempt, ranks=ranks)):
        rows = with_alignment(stored, view.derived, asked.aligned)
        keep = np.zeros(len(rows), dtype=bool)
        for column in (rows["step_inferred"], rows["step"]):
            keep |= _in_steps(column.fill_null(0).to_numpy(), pc.is_valid(column).to_numpy(), asked)
        if before_ns is not None:
            keep &= pc.coalesce(rows["aligned_start_ns"], rows["aligned_end_ns"]).to_numpy() < before_ns
        if keep.any():
            parts.append(rows.filter(pa.array(keep)))
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks() if parts else pa.table({})


def _notes(view: JobView, asked: Asked, plan: _Plan, lost: dict[str, int]) -> dict[str, Any]:
    answer = carried(view, truncated=plan.before_ns is not None or bool(lost.get("newer_events")))
    no_path = "not drawn: it is in repaired times" if asked.aligned != "repaired" else "no steps"
    return {
        "job": view.snapshot.job,
        "attempt": view.derived.timeline.trace.attempt,
        "times": asked.aligned,
        "clock_reference": answer["alignment"]["reference"] or "",
        "clock_bound_ns": answer["alignment"]["bound_ns"],
        "alignment": answer["alignment"],
        "complete_to_ns": str(answer["complete_to_ns"]),
        "dropped": answer["dropped"],
        "truncated": answer["truncated"],
        "left_out_from_ns": None if plan.before_ns is None else str(plan.before_ns),
        "left_out": {reason: count for reason, count in lost.items() if count},
        "ranks": [{"rank": c.rank, "why": c.why, "spans": n} for c, n in zip(plan.chosen, plan.counts.tolist(), strict=True)],
        "ranks_in_job": len(view.derived.timeline.trace.ranks),
        "arrows": len(plan.arrows.cause),
        "arrows_not_drawn": plan.arrows.missing,
        "critical_path": no_path if plan.path is None else {"steps": plan.path.steps, "steps_left_out": plan.path.left_out},
    }
