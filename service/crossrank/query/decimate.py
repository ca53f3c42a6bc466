"""Spans of many lanes reduced to what a screen can show: one compiled pass, so that no answer grows with the job.

A span at least `pixel_ns` long is kept as it is. Shorter ones that begin in the same pixel, on the same lane and level of nesting,
become one bar: from the first start to the last end, with the kind that takes most of the time in it, how many they were, and the
longest of them to stand for it. Pixels are multiples of `pixel_ns` on the job's own time, not of the window, so bars do not
change while the window moves.

    level of a span   the lowest that is free when it starts: nesting for spans inside each other, lines for overlapping ones
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.model.arrays import BoolArray, Int8Array, Int64Array

LEVELS = 16  # spans over each other on one lane that are told apart; deeper ones share the last level
_KINDS = 16  # room for every kind


@dataclass(frozen=True, slots=True)
class Bars:
    """b bars; `span` is the place of the longest span of each in the lane order, `hits` how many of its spans were searched for."""

    row: Int64Array
    depth: Int64Array
    start: Int64Array
    end: Int64Array
    kind: Int64Array
    count: Int64Array
    span: Int64Array
    hits: Int64Array
    pixel_ns: int


@njit(cache=True, nogil=True)
def levels_of(lane_ptr: Int64Array, start: Int64Array, end: Int64Array, depth: Int8Array, reach: Int64Array) -> None:
    """Fills `depth` [n] and `reach` [n], the latest end so far on the lane. Spans: lane after lane, by (start, longer first)."""
    free_at = np.empty(LEVELS, dtype=np.int64)
    for lane in range(len(lane_ptr) - 1):
        free_at[:] = np.iinfo(np.int64).min
        latest = np.iinfo(np.int64).min
        for i in range(lane_ptr[lane], lane_ptr[lane + 1]):
            level = 0
            while level < LEVELS - 1 and free_at[level] > start[i]:
                level += 1
            depth[i] = level
            free_at[level] = max(free_at[level], end[i])
            latest = max(latest, end[i])
            reach[i] = latest


@njit(cache=True, nogil=True)
def _first_at_least(values: Int64Array, lo: int, hi: int, wanted: int) -> int:
    while lo < hi:
        middle = (lo + hi) >> 1
        if values[middle] >= wanted:
            hi = middle
        else:
            lo = middle + 1
    return lo


@njit(cache=True, nogil=True)
def _put(bar: Int64Array, by_kind: Int64Array, d: int, out: Int64Array, n: int) -> int:
    """Ends the bar of level `d`: writes it as number `n` if there is room; the next number."""
    bar[d, 4] = np.argmax(by_kind[d])
    if n < out.shape[1]:
        out[:, n] = bar[d]
    bar[d, 5] = 0
    return n + 1


@njit(cache=True, nogil=True)
def _bars(
    lanes: Int64Array, lane_ptr: Int64Array, start: Int64Array, end: Int64Array, reach: Int64Array, depth: Int8Array,
    kind: Int8Array, wanted: BoolArray, hit: BoolArray, lo: int, hi: int, pixel: int, out: Int64Array,
) -> int:  # fmt: skip
    """Writes bars into the columns of `out` [8, room] as far as there is room; returns how many there are."""
    n = 0
    bar = np.zeros((LEVELS, 8), dtype=np.int64)  # as in `out`; count 0: none is being built
    at = np.zeros(LEVELS, dtype=np.int64)
    longest = np.zeros(LEVELS, dtype=np.int64)
    by_kind = np.zeros((LEVELS, _KINDS), dtype=np.int64)
    for r in range(len(lanes)):
        a, b = lane_ptr[lanes[r]], lane_ptr[lanes[r] + 1]
        first, last = _first_at_least(reach, a, b, lo), _first_at_least(start, a, b, hi)
        for i in range(first, last):
            if end[i] < lo or not wanted[kind[i]]:
                continue
            d, length, pixel_of = depth[i], end[i] - start[i], start[i] // pixel
            if bar[d, 5] > 0 and (length >= pixel or at[d] != pixel_of):
                n = _put(bar, by_kind, d, out, n)
            if bar[d, 5] == 0:
                bar[d, 0], bar[d, 1], bar[d, 2], bar[d, 3], bar[d, 6], bar[d, 7] = r, d, start[i], end[i], i, 0
                at[d], longest[d] = pixel_of, length
                by_kind[d] = 0
            bar[d, 3] = max(bar[d, 3], end[i])
            bar[d, 5] += 1
            by_kind[d, kind[i]] += length + 1
            if len(hit) and hit[i]:
                bar[d, 7] += 1
            if length > longest[d]:
                longest[d], bar[d, 6] = length, i
            if length >= pixel:
                at[d] = np.iinfo(np.int64).min  # nothing joins it
        for d in range(LEVELS):
            if bar[d, 5] > 0:
                n = _put(bar, by_kind, d, out, n)
    return n


def bars_of(
    lanes: Int64Array, lane_ptr: Int64Array, start: Int64Array, end: Int64Array, reach: Int64Array, depth: Int8Array,
    kind: Int8Array, wanted: BoolArray, hit: BoolArray, *, lo: int, hi: int, pixel_ns: int, most: int,
) -> Bars:  # fmt: skip
    """Bars of the spans on `lanes` that overlap [lo, hi), with pixels widened until there are no more than `most`.

    wanted: [kinds]; hit: [n] or empty. `most` must be at least LEVELS times the number of lanes for the widening to end early.
    """
    out = np.empty((8, most), dtype=np.int64)
    pixel = max(pixel_ns, 1)
    while True:
        n = _bars(lanes, lane_ptr, start, end, reach, depth, kind, wanted, hit, lo, hi, pixel, out)
        if n <= most or pixel > hi - lo:
            break
        pixel = max(2 * pixel, round(pixel * n / most))
    row, level, begin, stop, of_kind, count, span, hits = out[:, : min(n, most)].copy()
    return Bars(row, level, begin, stop, of_kind, count, span, hits, pixel)
