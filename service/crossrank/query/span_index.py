"""Finds the span of a trace that an event row is: identity within a job attempt is (rank, span_id).

Span ids are 64-bit, so (rank, span_id) does not fit one integer; spans are already grouped by rank, so ids are sorted within
each rank and looked up by binary search, rank by rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.model.trace import JobTrace


@dataclass(frozen=True, slots=True)
class SpanIndex:
    """Spans of a trace by (rank, span_id)."""

    ranks: Int32Array  # [r] distinct, ascending
    ptr: Int64Array  # [r + 1]
    ids: Int64Array  # [n] ascending within a rank
    span: Int64Array  # [n] span number of each id

    @classmethod
    def of(cls, trace: JobTrace) -> SpanIndex:
        """Builds the index; O(n log n)."""
        order = np.lexsort((trace.span_id, trace.rank)).astype(np.int64)
        ranks, first = np.unique(trace.rank[order], return_index=True)
        return cls(ranks, np.append(first, len(order)).astype(np.int64), trace.span_id[order], order)

    def find(self, rank: Int32Array, span_id: Int64Array) -> tuple[Int64Array, np.ndarray]:
        """Span numbers of (rank, span_id) pairs and a mask of those found; the number is 0 where not found."""
        span = np.zeros(len(rank), dtype=np.int64)
        found = np.zeros(len(rank), dtype=bool)
        by_rank = np.argsort(rank, kind="stable")
        ranks, first = np.unique(rank[by_rank], return_index=True)
        for r, rows in zip(ranks.tolist(), np.split(by_rank, first)[1:], strict=True):
            place = int(np.searchsorted(self.ranks, r))
            if place == len(self.ranks) or self.ranks[place] != r:
                continue
            lo, hi = int(self.ptr[place]), int(self.ptr[place + 1])
            at = lo + np.searchsorted(self.ids[lo:hi], span_id[rows])
            hit = (at < hi) & (self.ids[np.minimum(at, hi - 1)] == span_id[rows])
            span[rows[hit]] = self.span[at[hit]]
            found[rows[hit]] = True
        return span, found
