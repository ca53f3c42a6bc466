"""Lays the rows of a lane on tracks so that on each track slices either lie apart or one inside the other.

Trace viewers keep a stack a track: a slice that begins inside another one must end inside it, or it is drawn wrong. Spans of one
lane may overlap in any way (asynchronous operations, threads of one name), so a row goes to the first track of its lane where
the innermost slice that is still running ends no earlier than the row does; else to a new track. Rows come by (start, longer
first), so a lane of proper nesting takes one track.

At equal times a track sees first what ends, then what begins: `stamps` is that order, 2 * row for a begin and 2 * row + 1 for an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from crossrank.exporters.picture import COUNTER, OPEN, SLICE, Sheet
from crossrank.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array

TRACKS_A_LANE: Final = 256  # a lane with more spans running at once has its further ones left out: no viewer shows them
_FOREVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the n rows of a sheet go."""

    track: Int64Array  # [n] from `first` on; -1 where the row is left out
    stamps: Int64Array  # begins and ends (2 * row, 2 * row + 1) in the order of each track, track by track or interleaved
    owner: Int32Array  # [tracks] process
    names: tuple[str, ...]  # [tracks]
    is_counter: BoolArray  # [tracks]

    @property
    def left_out(self) -> int:
        """Rows that found no track."""
        return int((self.track < 0).sum())


def lay_out(sheet: Sheet, first: int) -> Layout:
    """Gives every row a track, numbered from `first` on. O(rows x tracks of a lane)."""
    words = max(len(sheet.lane.words), len(sheet.name.words)) + 1
    is_counter = sheet.shape == COUNTER
    place = np.where(is_counter, sheet.name.code, sheet.lane.code).astype(np.int64)
    lane = (sheet.process.astype(np.int64) * 2 + is_counter) * words + place
    keys, of_lane = np.unique(lane, return_inverse=True)
    order = np.argsort(of_lane, kind="stable").astype(np.int64)
    end = np.where(sheet.shape == OPEN, _FOREVER, sheet.end_ns)
    sub, stamps, count = _place(order, of_lane.astype(np.int64), sheet.start_ns, end, sheet.shape, TRACKS_A_LANE)
    used, track = np.unique(of_lane * (TRACKS_A_LANE + 1) + sub + 1, return_inverse=True)
    lost = used % (TRACKS_A_LANE + 1) == 0
    number = np.where(lost, -1, first + np.cumsum(~lost) - 1)
    kept = used[~lost]
    key, extra = keys[kept // (TRACKS_A_LANE + 1)], kept % (TRACKS_A_LANE + 1) - 1
    counters = (key // words) % 2 == 1
    names = tuple(
        _name((sheet.name if is_count else sheet.lane).words[code], number)
        for code, number, is_count in zip((key % words).tolist(), extra.tolist(), counters.tolist(), strict=True)
    )
    return Layout(number[track], stamps[:count], (key // words // 2).astype(np.int32), names, counters)


def _name(lane: str, extra: int) -> str:
    return lane if extra == 0 else f"{lane} +{extra}"


@njit(cache=True, nogil=True)
def _place(
    order: Int64Array, lane: Int64Array, start: Int64Array, end: Int64Array, shape: Int8Array, most: int
) -> tuple[Int64Array, Int64Array, int]:
    """Track within the lane of every row (-1: none), and the stamps with their number."""
    n = len(order)
    sub = np.full(n, -1, np.int64)
    stamps = np.empty(2 * n, np.int64)
    below = np.full(n, -1, np.int64)
    top = np.full(most, -1, np.int64)
    used, count = 0, 0
    for i in range(n):
        row = order[i]
        if i > 0 and lane[row] != lane[order[i - 1]]:
            for q in range(used):
                count = _close(q, 0x7FFFFFFFFFFFFFFF, top, below, end, stamps, count)
            used = 0
        if shape[row] == COUNTER:
            sub[row] = 0
            stamps[count] = 2 * row
            count += 1
            continue
        for q in range(most):
            if q == used:
                top[q] = -1
                used += 1
            count = _close(q, start[row], top, below, end, stamps, count)
            if top[q] < 0 or end[top[q]] >= end[row]:
                sub[row] = q
                stamps[count] = 2 * row
                count += 1
                if shape[row] == SLICE or shape[row] == OPEN:
                    below[row] = top[q]
                    top[q] = row
                break
    for q in range(used):
        count = _close(q, 0x7FFFFFFFFFFFFFFF, top, below, end, stamps, count)
    return sub, stamps, count


@njit(cache=True, nogil=True)
def _close(q: int, now: int, top: Int64Array, below: Int64Array, end: Int64Array, stamps: Int64Array, count: int) -> int:
    """Ends what is over at `now` on a track; open slices have no end to write."""
    while top[q] >= 0 and end[top[q]] <= now:
        if end[top[q]] != 0x7FFFFFFFFFFFFFFF:
            stamps[count] = 2 * top[q] + 1
            count += 1
        top[q] = below[top[q]]
    return count
