"""When each optimizer step began and ended over all ranks, whether it is complete, and who finished last.

A rank's step lasts as its `step` span does; without one, or while it is open, from the first to the last of the rank's spans of
that step.
The job's step goes from the first rank's start to the last rank's end. Who finished last is only said when that is beyond doubt
(analysis.certainty).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.certainty import leader_is_certain, repair_shift_ns
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.kinds import MARK, METRIC, STEP
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.model.topology import Topology


@dataclass(frozen=True, slots=True)
class StepTable:
    """k steps ascending, and in compressed form the r (step, rank) rows they consist of: rows ptr[i]:ptr[i+1], by rank."""

    step: Int64Array  # [k]
    start_ns: Int64Array  # [k] first rank's start
    end_ns: Int64Array  # [k] last rank's end; of what is recorded so far when not complete
    ranks: Int64Array  # [k] ranks seen in the step
    complete: BoolArray  # [k] every rank of the world has closed it
    closed: BoolArray  # [k] every rank seen in it has closed it
    last_rank: Int32Array  # [k] the finisher, if `decided`
    decided: BoolArray  # [k] the finisher is known beyond the clock bounds
    ptr: Int64Array  # [k + 1]
    rank: Int32Array  # [r]
    rank_start_ns: Int64Array  # [r]
    rank_end_ns: Int64Array  # [r]
    rank_closed: BoolArray  # [r]
    last_span: Int64Array  # [r] the span that ends the rank's step

    def __len__(self) -> int:
        return len(self.step)

    def last_rank_of(self, row: int) -> int | None:
        """Who finished step number `row` last; None when that is within the clock bounds."""
        return int(self.last_rank[row]) if self.decided[row] else None

    def row_of(self, step: int) -> int | None:
        """Place of a step in the table."""
        i = int(np.searchsorted(self.step, step))
        return i if i < len(self.step) and self.step[i] == step else None


def find_steps(timeline: Timeline, topology: Topology) -> StepTable:
    """All steps of the timeline. O(spans)."""
    trace = timeline.trace
    spans = np.flatnonzero((timeline.step_of != NO_STEP) & (trace.kind != METRIC) & (trace.kind != MARK))
    cells, cell = _cells(timeline.step_of[spans], trace.rank[spans])
    kept = _says_how_long(trace.kind[spans] == STEP, trace.is_open[spans], cell, len(cells))
    spans, cell = spans[kept], cell[kept]
    r = len(cells)
    start = np.full(r, np.iinfo(np.int64).max)
    end = np.full(r, np.iinfo(np.int64).min)
    is_open = np.zeros(r, dtype=np.bool_)
    np.minimum.at(start, cell, timeline.start_ns[spans])
    np.maximum.at(end, cell, timeline.end_ns[spans])
    np.logical_or.at(is_open, cell, trace.is_open[spans])
    last_span = np.full(r, len(trace), dtype=np.int64)
    ends_it = timeline.end_ns[spans] == end[cell]
    np.minimum.at(last_span, cell[ends_it], spans[ends_it])
    return _table(timeline, topology, cells, start, end, ~is_open, last_span)


def _cells(step: Int64Array, rank: Int32Array) -> tuple[Int64Array, Int64Array]:
    """Distinct (step, rank) pairs [r, 2], ascending, and the place of every span among them."""
    steps, step_place = _distinct(step)
    ranks, rank_place = _distinct(rank)
    key, place = _distinct(step_place * max(len(ranks), 1) + rank_place)
    return np.stack((steps[key // max(len(ranks), 1)], ranks[key % max(len(ranks), 1)]), axis=1), place


def _distinct(values: np.ndarray) -> tuple[Int64Array, Int64Array]:
    """np.unique with inverse, without a sort when the values span a narrow range."""
    if len(values) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values):
        found, place = np.unique(values, return_inverse=True)
        return found.astype(np.int64), place.astype(np.int64)
    offset = values.astype(np.int64) - low
    present = np.zeros(high - low + 1, dtype=np.bool_)
    present[offset] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[offset]


def _says_how_long(is_step: BoolArray, is_open: BoolArray, cell: Int64Array, cells: int) -> BoolArray:
    """The spans that say how long a rank's step lasted: its step spans; all of its spans where it has none or one is open."""
    by_step = np.zeros(cells, dtype=np.bool_)
    by_step[cell[is_step]] = True
    by_step[cell[is_step & is_open]] = False
    kept: BoolArray = is_step | ~by_step[cell]
    return kept


def _table(
    timeline: Timeline,
    topology: Topology,
    cells: Int64Array,
    start: Int64Array,
    end: Int64Array,
    closed: BoolArray,
    last_span: Int64Array,
) -> StepTable:
    step, rank = cells[:, 0], cells[:, 1]
    first = np.flatnonzero(np.diff(step, prepend=NO_STEP)) if len(step) else np.empty(0, dtype=np.int64)
    ptr = np.append(first, len(step)).astype(np.int64)
    ranks = np.diff(ptr)
    of_step = np.repeat(np.arange(len(first)), ranks)
    step_end = np.maximum.reduceat(end, first) if len(first) else end
    finisher = _first_row_of_max(end, step_end, of_step, len(first))
    shift = repair_shift_ns(timeline, last_span, ends=True)
    certain = leader_is_certain(timeline, last_span, end, shift, of_step, finisher)
    all_closed = np.bincount(of_step[~closed], minlength=len(first)) == 0
    return StepTable(
        step=step[first],
        start_ns=np.minimum.reduceat(start, first) if len(first) else start,
        end_ns=step_end,
        ranks=ranks,
        complete=all_closed & (ranks >= topology.world_size),
        closed=all_closed,
        last_rank=rank[finisher].astype(np.int32),
        decided=certain & all_closed,
        ptr=ptr,
        rank=rank.astype(np.int32),
        rank_start_ns=start,
        rank_end_ns=end,
        rank_closed=closed,
        last_span=last_span,
    )


def _first_row_of_max(values: Int64Array, highest: Int64Array, of_step: Int64Array, steps: int) -> Int64Array:
    rows = np.flatnonzero(values == highest[of_step])
    found = np.full(steps, len(values), dtype=np.int64)
    np.minimum.at(found, of_step[rows], rows)
    return found
