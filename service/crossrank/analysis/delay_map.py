"""How much too long every rank worked in every step: the lateness that blame is about, before anybody waited for it.

    delay(rank, step) = sum over phases of max(excess, 0)

`excess` as in analysis.excess: own working time above that of the peers in the same step, of the two readings of a phase the larger.
Waiting is not work, so a rank that only waits for a late one stays cold. NaN where the rank was not seen in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.excess import PhaseCells
from crossrank.analysis.steps import StepTable
from crossrank.model.arrays import Int64Array

_MOST_CELLS: Final = 32_000_000  # 128 MB; of a longer job the last steps are kept


@dataclass(frozen=True, slots=True)
class DelayMap:
    """Delays of r ranks in s steps."""

    ranks: Int64Array  # [r] ascending
    steps: Int64Array  # [s] ascending
    delay_ns: np.ndarray  # [r, s] float32


def delay_map(table: StepTable, cells: Sequence[PhaseCells]) -> DelayMap:
    """The map of a job. cells: `work_cells` of all its steps."""
    ranks = np.unique(table.rank).astype(np.int64)
    first = max(0, len(table) - _MOST_CELLS // max(len(ranks), 1))
    steps = table.step[first:]
    delay = np.full((len(ranks), len(steps)), np.nan, dtype=np.float32)
    column = np.repeat(np.arange(len(table)), np.diff(table.ptr)) - first
    delay[np.searchsorted(ranks, table.rank[column >= 0]), column[column >= 0]] = 0.0
    best: dict[tuple[str, str, bytes], tuple[Int64Array, np.ndarray]] = {}
    for phase in cells:
        key = (phase.kind, phase.name, phase.rows.tobytes())
        excess = np.maximum(np.nan_to_num(phase.excess_ns[:, first:]), 0.0).astype(np.float32)
        held = best.get(key)
        best[key] = (phase.rows, excess if held is None else np.maximum(held[1], excess))
    for rows, excess in best.values():
        delay[np.searchsorted(ranks, rows)] += excess
    return DelayMap(ranks, steps, delay)
