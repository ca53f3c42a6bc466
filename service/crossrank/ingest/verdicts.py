"""Which rows are refused and why, collected over whole columns; the first reason found for a row stands."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from crossrank.ingest.words import Words
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.post import Rejection


class Verdicts:
    """The verdict on each of n rows. `kept` is true where nothing is wrong."""

    def __init__(self, rows: int) -> None:
        self.kept: BoolArray = np.ones(rows, dtype=np.bool_)
        self._found: list[tuple[BoolArray, str, str]] = []

    def mark(self, mask: BoolArray, reason: str, detail: str = "") -> None:
        """Refuses the rows of the mask that are still kept."""
        fresh = mask & self.kept
        if fresh.any():
            self.kept &= ~fresh
            self._found.append((fresh, reason, detail))

    def rejections(self, index: Int64Array, job: Words, rows: pa.Table) -> list[Rejection]:
        """One rejection a refused row, with its place in the request, its job and its rank where it has them."""
        out: list[Rejection] = []
        rank = rows.column("rank")
        for mask, reason, detail in self._found:
            for row in np.flatnonzero(mask).tolist():
                code = int(job.codes[row])
                out.append(
                    Rejection(
                        index=int(index[row]),
                        reason=reason,
                        job=job.words[code] if code >= 0 else None,
                        rank=rank[row].as_py(),
                        detail=detail,
                    )
                )
        return out
