"""The reduction of a timeline to bars by plain words, one span at a time: what `query.decimate` is held against."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True)
class NaiveSpan:
    lane: int
    start: int
    end: int
    kind: int


def naive_levels(spans: list[NaiveSpan]) -> list[int]:
    """Lowest free level for each span of a lane in the order (start, longer first)."""
    busy: dict[int, list[int]] = defaultdict(list)
    levels = []
    for span in spans:
        until = busy[span.lane]
        level = next((i for i, end in enumerate(until) if end <= span.start), len(until))
        until[level:level + 1] = [span.end]  # fmt: skip
        levels.append(level)
    return levels


def naive_bars(spans: list[NaiveSpan], levels: list[int], lo: int, hi: int, pixel: int) -> set[tuple[int, int, int, int, int, int]]:
    """(lane, level, start, end, kind, count) of every bar in the window."""
    whole, pieces = set(), defaultdict(list)
    for span, level in zip(spans, levels, strict=True):
        if span.start >= hi or span.end < lo:
            continue
        if span.end - span.start >= pixel:
            whole.add((span.lane, level, span.start, span.end, span.kind, 1))
        else:
            pieces[span.lane, level, span.start // pixel].append(span)
    for (lane, level, _), members in pieces.items():
        by_kind: dict[int, int] = defaultdict(int)
        for span in members:
            by_kind[span.kind] += span.end - span.start + 1
        kind = min(by_kind, key=lambda k: (-by_kind[k], k))
        whole.add((lane, level, min(s.start for s in members), max(s.end for s in members), kind, len(members)))
    return whole
