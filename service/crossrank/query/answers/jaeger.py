"""Steps of a job as Jaeger traces, within bounds: ranks that tell most come first, and what is left out is said in `warnings`."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from crossrank.exporters.jaeger import JaegerTrace, trace_document
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.timeline import NO_STEP
from crossrank.query.aligned import How, event_ids, with_alignment
from crossrank.query.answers.events import event_rows
from crossrank.query.arrows import arrows_of
from crossrank.query.informative import most_informative
from crossrank.query.jaeger_search import TraceSearch, matching_spans, newest_steps, trace_id_of
from crossrank.query.jobview import JobView, alignment
from crossrank.store.filter import EventFilter

_LEAST_SPANS: Final = 20  # of each trace found, however many there are


def search_traces(view: JobView, search: TraceSearch, spans_most: int) -> list[dict[str, Any]]:
    """The newest steps with a span like that, each with the spans sought first and as many others as fit."""
    keep = matching_spans(view, search)
    steps = newest_steps(view.derived, keep, search.limit)
    quota = max(_LEAST_SPANS, spans_most // max(len(steps), 1))
    start = view.derived.timeline.start_ns
    chosen = {}
    for step in steps:
        spans = np.flatnonzero(view.derived.timeline.step_of == step)
        chosen[step] = spans[np.lexsort((spans, start[spans], ~keep[spans]))][:quota]
    return _documents(view, chosen, "repaired")


def trace_of_step(view: JobView, step: int, spans_most: int, how: How) -> dict[str, Any] | None:
    """A step as one trace; None when nothing is in it."""
    timeline = view.derived.timeline
    spans = np.flatnonzero(timeline.step_of == step)
    if not len(spans):
        return None
    if len(spans) > spans_most:
        row = view.derived.steps.row_of(step)
        steps = np.array([] if row is None else [row], dtype=np.int64)
        ranks = np.array([c.rank for c in most_informative(view, len(timeline.trace.ranks), steps)], dtype=np.int32)
        by_rank = np.argsort(ranks)  # every rank is among them: its place there is its worth
        worth = by_rank[np.searchsorted(ranks[by_rank], timeline.trace.rank[spans])]
        spans = spans[np.lexsort((spans, worth))][:spans_most]
    return _documents(view, {step: spans}, how)[0]


def sent_trace(view: JobView, trace_id: bytes, spans_most: int, how: How) -> dict[str, Any] | None:
    """A trace under the id that its senders gave it; None when this job has none."""
    rows = with_alignment(view.snapshot.events(where=EventFilter(trace_id=trace_id)), view.derived, how)
    if not rows.num_rows:
        return None
    return trace_document(
        _document(view, trace_id.hex(), f"trace {trace_id.hex()[:8]}", rows.slice(0, spans_most), {}, rows.num_rows)
    )


def _documents(view: JobView, chosen: dict[int, Int64Array], how: How) -> list[dict[str, Any]]:
    """Traces of steps by their spans, read in one pass."""
    timeline = view.derived.timeline
    shown = np.zeros(len(timeline.trace), dtype=bool)
    for spans in chosen.values():
        shown[spans] = True
    if not shown.any():
        return []
    rows, span = _rows(view, shown, how)
    waited_for = _waited_for(view, shown)
    out = []
    for step in chosen:
        of_step = rows.filter(pa.array(timeline.step_of[span] == step))
        name = f"step {step}" if step != NO_STEP else "outside all steps"
        trace_id = trace_id_of(view.snapshot.job, timeline.trace.attempt, step)
        total = int((timeline.step_of == step).sum())
        if of_step.num_rows:
            out.append(trace_document(_document(view, trace_id, name, of_step, waited_for, total, step)))
    return out


def _rows(view: JobView, shown: BoolArray, how: How) -> tuple[pa.Table, Int64Array]:
    """The stored events of spans, and which span each is."""
    trace = view.derived.timeline.trace
    ranks = np.unique(trace.rank[shown]).tolist()
    first, last = int(trace.start_ns[shown].min()), int(trace.start_ns[shown].max())
    parts, numbers = [], []
    for stored in view.snapshot.batches(where=EventFilter(attempt=trace.attempt, ranks=ranks, from_ns=first, to_ns=last + 1)):
        span, known = view.derived.index.find(stored["rank"].to_numpy().astype(np.int32), event_ids(stored))
        keep = known & shown[span]
        if keep.any():
            parts.append(with_alignment(stored.filter(pa.array(keep)), view.derived, how))
            numbers.append(span[keep])
    if not parts:
        return pa.table({}), np.empty(0, dtype=np.int64)
    return pa.concat_tables(parts).unify_dictionaries(), np.concatenate(numbers)


def _waited_for(view: JobView, shown: BoolArray) -> dict[tuple[int, str], tuple[int, str]]:
    timeline = view.derived.timeline
    arrows = arrows_of(view.derived, shown, timeline.start_ns, timeline.end_ns)
    rank, ids = timeline.trace.rank, timeline.trace.span_id.view(np.uint64)
    pairs = [[(int(rank[s]), f"{ids[s]:016x}") for s in side.tolist()] for side in (arrows.effect, arrows.cause)]
    return dict(zip(*pairs, strict=True))


def _document(
    view: JobView,
    trace_id: str,
    name: str,
    rows: pa.Table,
    waited_for: dict[tuple[int, str], tuple[int, str]],
    total: int,
    step: int | None = None,
) -> JaegerTrace:
    values = [_decoded(row) for row in event_rows(rows)]
    values.sort(key=lambda r: (r["rank"], r.get("aligned_start_ns", 0), -(r.get("aligned_end_ns") or 2**63), r["span_id"]))
    place = None if step is None else view.derived.steps.row_of(step)
    table = view.derived.steps
    starts = [r["aligned_start_ns"] for r in values if "aligned_start_ns" in r]
    ends = [r.get("aligned_end_ns", r.get("aligned_start_ns", 0)) for r in values]
    start = min(starts, default=0) if place is None else min(int(table.start_ns[place]), *starts)
    end = max(ends) if place is None else max(int(table.end_ns[place]), *ends)
    clocks = alignment(view.derived)
    tags = {
        "attempt": view.derived.timeline.trace.attempt,
        "step": step,
        "ranks": None if place is None else int(table.ranks[place]),
        "complete": None if place is None else bool(table.complete[place]),
        "last_rank": None if place is None else table.last_rank_of(place),
        "clock_reference": clocks["reference"],
        "clock_bound_ns": clocks["bound_ns"],
    }
    left = total - len(values)
    warnings = (f"{left} of {total} spans are left out; ask for one rank, or export the step",) if left else ()
    return JaegerTrace(trace_id, view.snapshot.job, name, start, end, tags, values, waited_for, warnings)


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    """An event whose JSON columns are values."""
    return {k: msgspec.json.decode(v) if isinstance(v, msgspec.Raw) else v for k, v in row.items()}
