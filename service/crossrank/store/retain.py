"""Retention: which segments of a job have been kept long enough, or are more than the job may have.

By age: a segment goes when all its rows were received longer ago than `age_ns`. Time of receipt is the service's own clock, so a
sender with a wrong clock neither keeps events for ever nor loses them at once; and "now" advances with the monotonic clock from
the moment the store was opened, so a wall clock that jumps in the meantime removes nothing.

By size: the oldest go until the rest of the job's segments is within `bytes_max`. Whole segments only; the newest one always stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossrank.store.source import SegmentFile


def run_to_expire(
    segments: Sequence[SegmentFile], *, now_ns: int, age_ns: int | None, bytes_max: int | None
) -> tuple[SegmentFile, ...]:
    """The oldest segments of a job that have to go; empty when all may stay. segments: in the order of receipt."""
    old = _older(segments, now_ns - age_ns) if age_ns is not None else 0
    much = _beyond(segments, bytes_max) if bytes_max is not None else 0
    return tuple(segments[: max(old, much)])


def _older(segments: Sequence[SegmentFile], before_ns: int) -> int:
    """How many of the first segments hold nothing received since."""
    for count, segment in enumerate(segments):
        newest = segment.info.received_max_ns
        if newest is None or newest >= before_ns:
            return count
    return len(segments)


def _beyond(segments: Sequence[SegmentFile], bytes_max: int) -> int:
    """How many of the first segments do not fit behind the others."""
    room = bytes_max
    for count in range(len(segments), 0, -1):
        room -= segments[count - 1].info.size_bytes
        if room < 0 and count < len(segments):
            return count
    return 0
