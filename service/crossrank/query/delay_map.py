"""How much too long every rank worked in every step: the lateness that blame is about, before anybody waited for it.

    delay(rank, step) = sum over phases of max(excess, 0)

`excess` as in analysis.excess: own working time above that of the peers in the same step, of the two readings of a phase the larger.
Waiting is not work, so a rank that only waits for a late one stays cold. NaN where the rank was not seen in the step.
Kept for the derivations that were looked at last: the map of a large job takes a second to make and is asked for at every zoom.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np

from crossrank.analysis.excess import work_cells
from crossrank.analysis.stragglers import role_of
from crossrank.model.arrays import Int64Array
from crossrank.model.timeline import Timeline
from crossrank.query.derive import Derived
from crossrank.query.graphs import graph_of

_KEPT = 4
_lock = Lock()
_last: list[tuple[Timeline, DelayMap]] = []


@dataclass(frozen=True, slots=True)
class DelayMap:
    """Delays of r ranks in s steps."""

    ranks: Int64Array  # [r] ascending
    steps: Int64Array  # [s] ascending
    delay_ns: np.ndarray  # [r, s] float32


def delay_map(derived: Derived) -> DelayMap:
    """The map of a derivation; made unless it is among the last ones."""
    with _lock:
        for held in _last:
            if held[0] is derived.timeline:
                return held[1]
        made = _make(derived)
        _last.insert(0, (derived.timeline, made))
        del _last[_KEPT:]
        return made


def _make(derived: Derived) -> DelayMap:
    table = derived.steps
    ranks = np.unique(table.rank).astype(np.int64)
    delay = np.full((len(ranks), len(table)), np.nan, dtype=np.float32)
    column = np.repeat(np.arange(len(table)), np.diff(table.ptr))
    delay[np.searchsorted(ranks, table.rank), column] = 0.0
    graph = graph_of(derived.timeline)
    best: dict[tuple[str, str, bytes], tuple[Int64Array, np.ndarray]] = {}
    for cells in work_cells(graph, graph.timeline, role_of(derived.topology), table.step):
        key = (cells.kind, cells.name, cells.rows.tobytes())
        excess = np.maximum(np.nan_to_num(cells.excess_ns), 0.0).astype(np.float32)
        held = best.get(key)
        best[key] = (cells.rows, excess if held is None else np.maximum(held[1], excess))
    for rows, excess in best.values():
        delay[np.searchsorted(ranks, rows)] += excess
    return DelayMap(ranks, table.step, delay)
