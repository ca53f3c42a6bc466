"""Taking a rank's excess away, piece by piece: the change whose replay gives a cost.

Where in a span the time goes matters: 8 ms lost before the first tensor-parallel all-reduce of a forward delay everybody in it,
8 ms spread over the forward delay them twice by half. So the excess of a cell (rank, phase, step) is taken from the pieces of
work (between communications) that are longer than the same piece usually is, in proportion to how much longer.
"""

from __future__ import annotations

import numpy as np

from crossrank.analysis.lane_work import NO_OWNER
from crossrank.analysis.lateness import Lateness
from crossrank.analysis.replay import ReplayGraph
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.timeline import Timeline


def removed_ns(graph: ReplayGraph, timeline: Timeline, late: Lateness, columns: Int64Array) -> Int64Array:
    """[2n] own work to take away before each stamp so that the given columns of a late row lose their shift.

    No piece loses more than it has over the usual one, so a cell with lost events may lose less than its shift.
    """
    cells = late.cells
    pieces, ordinal = _pieces(graph, cells.spans)
    over = np.maximum(graph.weight_ns[pieces] - _usual_piece_ns(graph.weight_ns[pieces], ordinal), 0.0)
    span = graph.owner[pieces]
    place = np.searchsorted(cells.steps, timeline.step_of[span])
    row_of = np.full(len(timeline.trace), -1, dtype=np.int64)
    row_of[cells.spans] = cells.span_row
    mine = (row_of[span] == late.row) & np.isin(place, columns)
    pieces, over, place = pieces[mine], over[mine], place[mine]
    shift = np.zeros(len(cells.steps))
    shift[late.columns] = late.shift_ns
    total = np.bincount(place, over, minlength=len(cells.steps))
    scale = np.minimum(shift / np.maximum(total, 1.0), 1.0)
    out = np.zeros(len(graph.weight_ns), dtype=np.int64)
    out[pieces] = np.rint(over * scale[place]).astype(np.int64)
    return out


def _pieces(graph: ReplayGraph, spans: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Stamps whose lane edge is work of one of the spans, by (span, time), and the number of each piece within its span."""
    wanted = np.zeros(len(graph.own_ns) + 1, dtype=np.bool_)  # one more, so that NO_OWNER = -1 finds False
    wanted[spans] = True
    pieces = np.flatnonzero(wanted[graph.owner] & (graph.owner != NO_OWNER))
    pieces = pieces[np.lexsort((graph.recorded_ns[pieces], graph.owner[pieces]))]
    owner = graph.owner[pieces]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    return pieces, np.arange(len(pieces)) - np.repeat(first, np.diff(first, append=len(pieces)))


def _usual_piece_ns(weight_ns: Int64Array, ordinal: Int64Array) -> Float64Array:
    """[pieces] median length of all pieces with the same number."""
    order = np.lexsort((weight_ns, ordinal))
    count = np.bincount(ordinal)
    first = np.concatenate(([0], np.cumsum(count)[:-1]))
    ranked = weight_ns[order].astype(np.float64)
    low, high = first + np.maximum(count - 1, 0) // 2, first + count // 2
    last = len(ranked) - 1
    return ((ranked[np.minimum(low, last)] + ranked[np.minimum(high, last)]) / 2)[ordinal]
