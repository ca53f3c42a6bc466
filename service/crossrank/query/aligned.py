"""Adds to event rows what reconstruction knows of them: aligned times, their bound, the inferred step, the Lamport clock.

Rows that the last derivation has seen get its repaired times; newer rows get the clock map alone and no Lamport number.
The raw stamps stay beside them, byte for byte as sent.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import Int64Array
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.query.derive import Derived

How = Literal["raw", "fit", "repaired"]
ALIGNED_COLUMNS: Final[tuple[tuple[str, pa.DataType, str, str], ...]] = (
    ("aligned_start_ns", pa.int64(), "ns since epoch", "Start on the common timeline."),
    ("aligned_end_ns", pa.int64(), "ns since epoch", "End on the common timeline; null while open."),
    (
        "bound_ns",
        pa.int64(),
        "ns",
        "The aligned times are right within this against the reference clock; null when nothing connects the clocks.",
    ),
    ("step_inferred", pa.int64(), "", "Step the span belongs to: the one sent, else that of the step span around it."),
    ("lamport", pa.int64(), "", "Lamport clock of the start: smaller than that of everything it happened before."),
)


def aligned_times(timeline: Timeline, how: How) -> tuple[Int64Array, Int64Array]:
    """[spans] start and end by one alignment, ns since the epoch; the end of an open span is its start."""
    trace = timeline.trace
    if how == "repaired":
        return timeline.start_ns, timeline.end_ns
    if how == "raw":
        return trace.start_ns, trace.end_ns
    start = timeline.clocks.to_reference(trace.domain, trace.start_ns)
    return start, np.where(trace.is_open, start, timeline.clocks.to_reference(trace.domain, trace.end_ns))


def with_alignment(events: pa.Table, derived: Derived, how: How = "repaired") -> pa.Table:
    """Events (all identity and time columns of EVENT_SCHEMA present) with ALIGNED_COLUMNS appended; row order kept.

    how: aligned times by the clock fit and the repair, by the fit alone, or raw times as they are.
    """
    timeline = derived.timeline
    rank = events["rank"].to_numpy().astype(np.int32)
    span, found = derived.index.find(rank, event_ids(events))
    start, start_known = _ints(events, "start_ns")
    end, end_known = _ints(events, "end_ns")
    domain, domain_known = _domains(events, timeline.trace.domains)
    if len(timeline.trace):  # a dump's entries were moved to the clock of their rank, which they do not name
        domain, domain_known = np.where(found, timeline.trace.domain[span], domain), domain_known | found
    mapped_start = np.where(domain_known, timeline.clocks.to_reference(domain, start), start)
    mapped_end = np.where(domain_known, timeline.clocks.to_reference(domain, end), end)
    if how == "raw":
        mapped_start, mapped_end = start, end
    if len(timeline.trace) and how == "repaired":
        # A row may have changed since (open -> closed): only stamps that are the same take the derivation's times.
        same_start = found & start_known & (timeline.trace.start_ns[span] == start)
        same_end = same_start & end_known & ~timeline.trace.is_open[span] & (timeline.trace.end_ns[span] == end)
        mapped_start = np.where(same_start, timeline.start_ns[span], mapped_start)
        mapped_end = np.where(same_end, timeline.end_ns[span], mapped_end)
    if len(timeline.trace):
        step, lamport = timeline.step_of[span], timeline.order.lamport[2 * span]
    else:
        step = lamport = np.zeros(len(rank), dtype=np.int64)
    bound, bound_known = _bounds(derived, domain)
    columns = (
        _nullable(mapped_start, start_known),
        _nullable(mapped_end, end_known),
        _nullable(bound, domain_known & bound_known),
        _nullable(step, found & (step != NO_STEP)),
        _nullable(lamport, found),
    )
    for (name, kind, unit, meaning), column in zip(ALIGNED_COLUMNS, columns, strict=True):
        events = events.append_column(pa.field(name, kind, metadata={"unit": unit, "meaning": meaning}), column)
    return events


def event_ids(events: pa.Table) -> Int64Array:
    """[n] span ids as the trace numbers them: 8 bytes, big-endian, signed."""
    ids = events["span_id"].combine_chunks()
    if not len(ids):
        return np.empty(0, dtype=np.int64)
    raw = np.frombuffer(ids.buffers()[1], dtype=">i8")[ids.offset : ids.offset + len(ids)]
    return raw.astype(np.int64)


def _ints(events: pa.Table, name: str) -> tuple[Int64Array, np.ndarray]:
    column = events[name]
    return column.fill_null(0).to_numpy().astype(np.int64), pc.is_valid(column).to_numpy()


def _domains(events: pa.Table, domains: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    words = events["clock"].cast(pa.string())
    code = pc.index_in(words, value_set=pa.array(domains, pa.string()))
    return code.fill_null(0).to_numpy().astype(np.int32), pc.is_valid(code).to_numpy()


def _bounds(derived: Derived, domain: np.ndarray) -> tuple[Int64Array, np.ndarray]:
    """Half-width against the reference of the event's own component; unknown for a clock that is connected to nothing."""
    clocks = derived.timeline.clocks
    if not len(clocks.component):
        return np.zeros(len(domain), dtype=np.int64), np.zeros(len(domain), dtype=bool)
    bound = np.maximum(np.abs(clocks.bound_lo_ns), np.abs(clocks.bound_hi_ns))
    alone = np.bincount(clocks.component)[clocks.component] == 1
    known = ~alone | (len(clocks.component) == 1)
    return bound[domain], known[domain]


def _nullable(values: Int64Array, known: np.ndarray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~known)
