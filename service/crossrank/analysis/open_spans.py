"""What has begun and not ended: for a job that hangs, the operations its ranks are stuck in; while it runs, what goes on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.kinds import KINDS
from crossrank.model.timeline import NO_STEP, Timeline


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span without an end. `since_ns` is its aligned start; None stands for what the sender did not say."""

    span: int
    rank: int
    lane: str
    kind: str
    name: str
    op: str | None
    group: str | None
    seq: int | None
    peer: int | None
    step: int | None
    since_ns: int


def open_spans(timeline: Timeline, limit: int | None = None) -> tuple[OpenSpan, ...]:
    """Open spans, the longest open first; ties by rank and start order. At most `limit`."""
    spans = np.flatnonzero(timeline.trace.is_open)
    spans = spans[np.lexsort((spans, timeline.start_ns[spans]))]
    return tuple(_open_span(timeline, i) for i in spans[:limit].tolist())


def _open_span(timeline: Timeline, i: int) -> OpenSpan:
    trace = timeline.trace
    step = int(timeline.step_of[i])
    return OpenSpan(
        span=i,
        rank=int(trace.rank[i]),
        lane=trace.lanes[trace.lane[i]],
        kind=KINDS[trace.kind[i]],
        name=trace.names[trace.name[i]],
        op=trace.ops[trace.op[i]] if trace.op[i] >= 0 else None,
        group=trace.groups[trace.group[i]] if trace.group[i] >= 0 else None,
        seq=int(trace.seq[i]) if trace.has_seq[i] else None,
        peer=int(trace.peer[i]) if trace.peer[i] >= 0 else None,
        step=None if step == NO_STEP else step,
        since_ns=int(timeline.start_ns[i]),
    )
