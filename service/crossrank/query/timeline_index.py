"""What every look at one timeline needs, made once for a derivation: spans lane after lane with their level of nesting.

Kept for the few (timeline, alignment) pairs that were looked at last, because pan and zoom ask the same one many times a second.
Times are offsets from `base_ns`, the job's first aligned start, so that JavaScript's 53 bits hold them exactly. Metrics are left
out: they are values, not stretches of time. An open span reaches to the end of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from crossrank.analysis.waits import message_times
from crossrank.model.arrays import BoolArray, Int8Array, Int64Array
from crossrank.model.kinds import METRIC
from crossrank.model.timeline import Timeline
from crossrank.query.aligned import How, aligned_times
from crossrank.query.decimate import LEVELS, levels_of
from crossrank.query.derive import Derived

_KEPT = 6
_lock = Lock()
_last: list[tuple[Timeline, How, TimelineIndex]] = []


@dataclass(frozen=True, slots=True)
class TimelineIndex:
    """n shown spans of a timeline in lane order; `span` is the span number of each."""

    base_ns: int
    end: int  # offset of the last end
    lane_ptr: Int64Array  # [lanes + 1]
    span: Int64Array  # [n]
    start: Int64Array  # [n] ascending within a lane
    stop: Int64Array  # [n]
    reach: Int64Array  # [n] latest stop so far on the lane
    depth: Int8Array  # [n]
    levels: Int64Array  # [lanes]
    kind: Int8Array  # [n]
    span_start: Int64Array  # [spans] by span number
    span_stop: Int64Array  # [spans]
    collective_wait_ns: Int64Array  # [k] of all members of each collective
    message_wait_ns: Int64Array  # [messages]
    paths: dict[int, Any] = field(default_factory=dict)  # critical paths asked for so far, by step


def timeline_index(derived: Derived, how: How) -> TimelineIndex:
    """The index of a derivation; built unless it is among the last ones."""
    timeline = derived.timeline
    with _lock:
        for held in _last:
            if held[0] is timeline and held[1] == how:
                return held[2]
        index = _build(derived, how)
        _last.insert(0, (timeline, how, index))
        del _last[_KEPT:]
        return index


def _build(derived: Derived, how: How) -> TimelineIndex:
    timeline = derived.timeline
    trace = timeline.trace
    base = int(timeline.start_ns.min()) if len(trace) else 0
    start, stop = (t - base for t in aligned_times(timeline, how))
    end = int(stop.max()) if len(trace) else 0
    stop = np.where(trace.is_open, np.maximum(end, start), stop)
    span = np.flatnonzero(trace.kind != METRIC)
    lane = trace.lane[span]
    if not _in_order(lane, start[span]):  # a clock step can put a lane's stamps out of order
        span = span[np.lexsort((-stop[span], start[span], lane))]
        lane = trace.lane[span]
    ptr = np.searchsorted(lane, np.arange(len(trace.lanes) + 1)).astype(np.int64)
    depth, reach = np.zeros(len(span), dtype=np.int8), np.zeros(len(span), dtype=np.int64)
    levels_of(ptr, start[span], stop[span], depth, reach)
    levels = np.ones(len(trace.lanes), dtype=np.int64)
    np.maximum.at(levels, lane, np.minimum(depth.astype(np.int64) + 1, LEVELS))
    found = timeline.matches.collectives
    waits = np.zeros(len(found), dtype=np.int64)
    np.add.at(waits, found.instance, derived.collectives.wait_ns)
    return TimelineIndex(
        base, end, ptr, span, start[span], stop[span], reach, depth, levels, trace.kind[span], start, stop, waits,
        message_times(timeline).wait_ns,
    )  # fmt: skip


def _in_order(lane: np.ndarray, start: Int64Array) -> bool:
    return bool(((np.diff(start) >= 0) | (np.diff(lane) > 0)).all())


def matching(derived: Derived, text: str) -> BoolArray:
    """[spans] whose name, operation or group holds the text, whatever its case, or whose span id it is."""
    trace, wanted = derived.timeline.trace, text.casefold()
    hit = np.zeros(len(trace), dtype=bool)
    for words, code in ((trace.names, trace.name), (trace.ops, trace.op), (trace.groups, trace.group)):
        holds = np.array([wanted in word.casefold() for word in words] + [False])
        hit |= holds[code]
    if len(text) == 16 and not set(wanted) - set("0123456789abcdef"):
        hit |= trace.span_id == int.from_bytes(bytes.fromhex(text), "big", signed=True)
    return hit
