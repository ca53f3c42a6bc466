"""Own time of a span by painting: every nanosecond of it that no nested span covers. The judge of `analysis.exclusive`."""

from __future__ import annotations

from crossrank.model.timeline import Timeline


def own_time(timeline: Timeline) -> list[int]:
    """For small traces with small times only."""
    trace = timeline.trace
    spans = list(zip(trace.lane.tolist(), timeline.start_ns.tolist(), timeline.end_ns.tolist(), strict=True))
    own = []
    for i, (lane, start, end) in enumerate(spans):
        covered: set[int] = set()
        for j, (other_lane, other_start, other_end) in enumerate(spans):
            inside = start <= other_start and other_end <= end
            equal = (start, end) == (other_start, other_end)
            if lane == other_lane and i != j and inside and not (equal and j < i):
                covered |= set(range(other_start, other_end))
        own.append(end - start - len(covered))
    return own
