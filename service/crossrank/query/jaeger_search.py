"""Jaeger's questions put to a job: which steps have spans like these.

A step of a job is a trace: all its ranks together, aligned. Its id holds the job and the step, so nothing has to be kept:

    8 bytes of BLAKE2b(job, attempt) | the step as 8 bytes, signed; -1 stands for what lies outside all steps
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from crossrank.errors import BadParameter
from crossrank.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from crossrank.model.kinds import KINDS
from crossrank.query.aligned import event_ids
from crossrank.query.derive import Derived
from crossrank.query.jobview import JobView
from crossrank.store.filter import EventFilter


@dataclass(frozen=True, slots=True)
class TraceSearch:
    """What the spans sought are like; times aligned, ns. A step is found when one of its spans is like that."""

    operation: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    from_ns: int | None = None
    to_ns: int | None = None
    least_ns: int | None = None
    most_ns: int | None = None
    limit: int = 100


def trace_id_of(job: str, attempt: int, step: int) -> str:
    """The id of a step's trace, 32 hexadecimal digits."""
    return _prefix(job, attempt) + step.to_bytes(8, "big", signed=True).hex()


def step_of_trace_id(trace_id: str, job: str, attempt: int) -> int | None:
    """The step that an id names in this job; None when it is not of this job."""
    if trace_id[:16] != _prefix(job, attempt):
        return None
    return int.from_bytes(bytes.fromhex(trace_id[16:]), "big", signed=True)


def _prefix(job: str, attempt: int) -> str:
    return hashlib.blake2b(f"{attempt}/{job}".encode(), digest_size=8).hexdigest()


def operations(derived: Derived) -> list[str]:
    """Names of spans, sorted."""
    return sorted(set(derived.timeline.trace.names))


def matching_spans(view: JobView, search: TraceSearch) -> BoolArray:
    """[spans] those that are as sought."""
    timeline = view.derived.timeline
    trace = timeline.trace
    keep = np.ones(len(trace), dtype=bool)
    if search.operation is not None:
        keep &= _is_word(trace.names, trace.name, search.operation)
    if search.from_ns is not None:
        keep &= (timeline.end_ns >= search.from_ns) | trace.is_open
    if search.to_ns is not None:
        keep &= timeline.start_ns <= search.to_ns
    length = timeline.end_ns - timeline.start_ns
    if search.least_ns is not None:
        keep &= length >= search.least_ns
    if search.most_ns is not None:
        keep &= (length <= search.most_ns) & ~trace.is_open
    sent = []
    for key, value in search.tags:
        mask = _of_column(view.derived, key.removeprefix("crossrank."), value)
        if mask is None:
            sent.append((key, value))
        else:
            keep &= mask
    return keep & _with_attributes(view, sent) if sent and keep.any() else keep


def newest_steps(derived: Derived, keep: BoolArray, limit: int) -> list[int]:
    """The steps that hold such spans, the latest first."""
    timeline = derived.timeline
    steps, place = np.unique(timeline.step_of[keep], return_inverse=True)
    start = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(start, place, timeline.start_ns[keep])
    newest: list[int] = steps[np.lexsort((steps, -start))][:limit].tolist()
    return newest


def _is_word(words: tuple[str, ...], code: Int8Array | Int32Array, wanted: str) -> BoolArray:
    same: BoolArray = np.array([*(word == wanted for word in words), False])[code]
    return same


def _of_column(derived: Derived, key: str, value: str) -> BoolArray | None:
    """Spans whose field of that name has that value; None when no field of spans is called so."""
    timeline = derived.timeline
    trace = timeline.trace
    numbers: dict[str, tuple[Int32Array | Int64Array, Any]] = {
        "rank": (trace.rank, True),
        "step": (timeline.step_of, timeline.step_of >= 0),
        "seq": (trace.seq, trace.has_seq),
        "peer": (trace.peer, trace.peer >= 0),
        "bytes": (trace.size_bytes, True),
    }
    words: dict[str, tuple[tuple[str, ...], Int8Array | Int32Array]] = {
        "kind": (KINDS, trace.kind),
        "lane": (trace.lanes, trace.lane),
        "host": (trace.domain_host, trace.domain),
        "clock": (trace.domains, trace.domain),
        "group": (trace.groups, trace.group),
        "op": (trace.ops, trace.op),
        "dtype": (trace.dtypes, trace.dtype),
    }
    if key in numbers:
        column, known = numbers[key]
        if not value.removeprefix("-").isdecimal() or len(value) > 19:
            return np.zeros(len(trace), dtype=bool)
        mask: BoolArray = (column == int(value)) & known
        return mask
    return _is_word(*words[key], value) if key in words else None


def _with_attributes(view: JobView, wanted: list[tuple[str, str]]) -> BoolArray:
    """Spans whose attributes have these values; `error` is the status of the span."""
    derived = view.derived
    found = np.zeros(len(derived.timeline.trace), dtype=bool)
    attempt = derived.timeline.trace.attempt
    for rows in view.snapshot.batches(["rank", "span_id", "attrs", "otel"], EventFilter(attempt=attempt)):
        likely = np.ones(len(rows), dtype=bool)
        for key, _ in wanted:
            column, part = ("otel", '"status"') if key == "error" else ("attrs", msgspec.json.encode(key).decode())
            likely &= pc.match_substring(rows[column], part).fill_null(False).to_numpy()
        read = rows.take(np.flatnonzero(likely))
        texts = zip(read["attrs"].to_pylist(), read["otel"].to_pylist(), strict=True)
        same = np.array([_has(attrs, otel, wanted) for attrs, otel in texts], dtype=bool)
        span, known = derived.index.find(read["rank"].to_numpy().astype(np.int32), event_ids(read))
        found[span[known & same]] = True
    return found


def _has(attrs: str | None, otel: str | None, wanted: list[tuple[str, str]]) -> bool:
    values = msgspec.json.decode(attrs) if attrs else {}
    for key, value in wanted:
        if key == "error":
            code = ((msgspec.json.decode(otel) if otel else {}).get("status") or {}).get("code")
            shown: Any = "true" if code == 2 else "false"
        else:
            shown = values.get(key)
        if shown is None or (shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()) != value:
            return False
    return True


def tags_of(text: str) -> tuple[tuple[str, str], ...]:
    """Jaeger's `tags`: a JSON object of strings. Raises BadParameter."""
    try:
        return tuple(sorted(msgspec.json.decode(text, type=dict[str, str]).items()))
    except (msgspec.DecodeError, RecursionError) as fault:
        raise BadParameter(f"malformed 'tags' parameter, cannot unmarshal JSON: {fault}", field="tags") from fault
