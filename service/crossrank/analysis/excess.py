"""How much longer than expected each rank worked in each phase of each step.

A phase is a (kind, name): all forwards of a step are one phase. Its own time in a cell (rank, step) is the time that the rank
worked in it, without waits and without communication inside (lane_work). Two readings of a cell with m spans of own time w:

    total    mean(w) * m_usual      sees one long span among many (a pause)
    typical  median(w) * m_usual    sees what is slow in most of its spans, and no single hold-up by the machine

m_usual, the usual number of spans, instead of the number seen: a lost event must not look like a fast step. What is expected:

    three peers and more    the median over the other ranks of the same role (pipeline stage) in the same step, so that a rank
                            which is slow in all steps is seen, and a stage that has more to do is not called slow
    one or two              the rank's own median over steps, times what the step took everybody else (at least 1)

    excess = own - expected
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.analysis.replay import ReplayGraph
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.kinds import COLLECTIVE, IDLE, KINDS, MARK, METRIC, RECV, SEND, SYNC
from crossrank.model.timeline import NO_STEP, Timeline

_NOT_WORK = (COLLECTIVE, SEND, RECV, SYNC, IDLE, METRIC, MARK)
_LEAST_PEERS = 3
_SMALL_TABLE, _LEAST_FILLED = 1_000_000, 20  # a larger table with less than one cell in this many filled cannot be judged
_MOST_PHASES = 256  # those with most own time
_LEAST_SHARE = 0.001  # phases that never take this share of a usual step in any cell are left out: they cannot matter


@dataclass(frozen=True, slots=True)
class PhaseCells:
    """One phase on rows that may be compared: r rows, s steps. NaN where a row did not run the phase in the step."""

    kind: str
    name: str
    rows: Int64Array  # [r] what the rows stand for: ranks here, links and groups elsewhere
    steps: Int64Array  # [s] ascending
    is_typical: bool  # which reading
    usual_spans: int
    own_ns: Float64Array  # [r, s]
    excess_ns: Float64Array  # [r, s]
    spans: Int64Array  # [k] all spans of the phase in these rows
    span_row: Int64Array  # [k] row number of each
    has_peers: bool  # compared with peers of the same step, not with its own history


def work_cells(
    graph: ReplayGraph, timeline: Timeline, stage_of: dict[int, int], steps: Int64Array, row_of: Int64Array | None = None
) -> list[PhaseCells]:
    """Cells of every phase, per role. `stage_of`: role of each row; `steps`: ascending step numbers to look at.

    row_of: what each rank belongs to, -1 for nothing, when not ranks are compared but hosts, say.
    """
    trace = timeline.trace
    spans = np.flatnonzero(~np.isin(trace.kind, _NOT_WORK) & (timeline.step_of != NO_STEP) & ~trace.is_open)
    spans = spans[np.isin(timeline.step_of[spans], steps)]
    row = trace.rank if row_of is None else row_of[trace.rank]
    spans = spans[row[spans] >= 0]
    if len(spans) == 0 or len(steps) < 2:
        return []
    width = len(trace.names) + 1
    phase = trace.kind[spans].astype(np.int64) * width + trace.name[spans]
    order = np.argsort(phase, kind="stable")
    spans, phase = spans[order], phase[order]
    codes, first = np.unique(phase, return_index=True)
    # A phase can only matter if some rank spends the least time on it in a step; with all its spans in one cell it would be this.
    longest = np.add.reduceat(graph.own_ns[spans], first)
    found: list[PhaseCells] = []
    least_ns = _LEAST_SHARE * usual_step_ns(timeline, steps)
    ends = np.append(first[1:], len(spans))
    heaviest = np.argsort(-longest, kind="stable")[:_MOST_PHASES]
    for i in np.sort(heaviest[longest[heaviest] >= max(least_ns, 1)]).tolist():
        kind, name = KINDS[int(codes[i]) // width], trace.names[int(codes[i]) % width]
        mine = spans[first[i] : ends[i]]
        found += cells_of(kind, name, mine, graph.own_ns, row[mine], timeline.step_of[mine], stage_of, steps, least_ns)
    return found


def usual_step_ns(timeline: Timeline, steps: Int64Array) -> float:
    """Median over steps of the time from the first start to the last end in it."""
    first, last = _bounds_of_steps(steps, timeline.step_of, timeline.start_ns, timeline.end_ns)
    seen = last >= first
    return float(np.median((last - first)[seen])) if seen.any() else 0.0


@njit(cache=True, nogil=True)
def _bounds_of_steps(
    steps: Int64Array, step_of: Int64Array, start_ns: Int64Array, end_ns: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """First start and last end of each of some ascending steps."""
    first = np.full(len(steps), np.iinfo(np.int64).max)
    last = np.full(len(steps), np.iinfo(np.int64).min)
    place = 0
    for i in range(len(step_of)):
        if place == len(steps) or steps[place] != step_of[i]:  # spans of a lane mostly follow each other in steps
            place = np.searchsorted(steps, step_of[i])
        if place < len(steps) and steps[place] == step_of[i]:
            first[place], last[place] = min(first[place], start_ns[i]), max(last[place], end_ns[i])
    return first, last


def cells_of(
    kind: str, name: str, spans: Int64Array, value_ns: Int64Array, row: np.ndarray, step: Int64Array,
    stage_of: dict[int, int], steps: Int64Array, least_ns: float, *, lonely_together: bool = True,
) -> list[PhaseCells]:  # fmt: skip
    """Cells of one phase: `row` [k] what is compared (ranks here, links elsewhere), in the roles of `stage_of`."""
    rows = np.unique(row)
    place = np.searchsorted(rows, row) * len(steps) + np.searchsorted(steps, step)
    if (place[1:] < place[:-1]).any():  # spans come by rank and time, which is mostly the order wanted
        order = np.argsort(place, kind="stable")
        spans, row, place = spans[order], row[order], place[order]
    first = np.flatnonzero(np.diff(place, prepend=-1))
    cell, count = place[first], np.diff(first, append=len(place))
    mean, median = _mean_and_median(value_ns[spans], first, count)
    shape = (len(rows), len(steps))
    if shape[0] * shape[1] > _SMALL_TABLE + _LEAST_FILLED * len(cell):
        return []
    readings = [_dense(mean, cell, shape), _dense(median, cell, shape)]
    usual = _nanmedian(_dense(count.astype(np.float64), cell, shape), axis=1)
    out: list[PhaseCells] = []
    for members, has_peers in _roles(rows, stage_of, lonely_together=lonely_together):
        m = max(int(np.median(usual[members])), 1)
        for is_typical in (True, False) if m >= 3 else (False,):
            own = readings[1 if is_typical else 0][members] * m
            if np.nanmax(own, initial=0.0) < least_ns:
                continue
            excess = own - (_peers_median(own) if has_peers else _own_history(own))
            kept = np.isin(row, rows[members])
            out.append(PhaseCells(kind, name, rows[members], steps, is_typical, m, own, excess, spans[kept],
                    np.searchsorted(rows[members], row[kept]), has_peers))  # fmt: skip
    return out


@njit(cache=True, nogil=True)
def _mean_and_median(value: Int64Array, first: Int64Array, count: Int64Array) -> tuple[Float64Array, Float64Array]:
    """Of each stretch of values."""
    mean, median = np.empty(len(first)), np.empty(len(first))
    for c in range(len(first)):
        mine = np.sort(value[first[c] : first[c] + count[c]])
        mean[c] = mine.sum() / count[c]
        median[c] = (mine[(count[c] - 1) // 2] + mine[count[c] // 2]) / 2
    return mean, median


def _dense(value: Float64Array, cell: Int64Array, shape: tuple[int, int]) -> Float64Array:
    out = np.full(shape[0] * shape[1], np.nan)
    out[cell] = value
    return out.reshape(shape)


def _roles(rows: np.ndarray, stage_of: dict[int, int], *, lonely_together: bool) -> list[tuple[Int64Array, bool]]:
    """Rows that are compared with each other: one set per role with enough peers.

    The few rows of a small role go together with those of other small roles, or else with their own kind only, if there are two.
    """
    stage = np.array([stage_of.get(int(r), -1) for r in rows])
    found: list[tuple[Int64Array, bool]] = []
    lonely: list[int] = []
    for s in np.unique(stage).tolist():
        members = np.flatnonzero(stage == s)
        if s >= 0 and len(members) >= _LEAST_PEERS:
            found.append((members, True))
        elif lonely_together:
            lonely += members.tolist()
        elif len(members) == 2:
            found.append((members, False))
    if lonely:
        found.append((np.array(sorted(lonely)), False))
    return found


def _peers_median(own: Float64Array) -> Float64Array:
    """[r, s] median over the other rows of the same column, from one sort per column."""
    order = np.argsort(own, axis=0, kind="stable")  # NaN last
    ranked = np.take_along_axis(own, order, axis=0)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(len(own))[:, None] * np.ones_like(order), axis=0)
    others = (~np.isnan(own)).sum(axis=0)[None, :] - ~np.isnan(own)
    low, high = np.maximum((others - 1) // 2, 0), np.maximum(others // 2, 0)
    low, high = low + (low >= place), high + (high >= place)
    last = len(own) - 1
    pick = (
        np.take_along_axis(ranked, np.minimum(low, last), axis=0) + np.take_along_axis(ranked, np.minimum(high, last), axis=0)
    ) / 2
    return np.where(others >= _LEAST_PEERS - 1, pick, np.nan)


def _own_history(own: Float64Array) -> Float64Array:
    """[r, s] own median over steps, times what the step took the other rows relative to theirs (at least 1)."""
    history = _nanmedian(own, axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(history > 0, own / history, np.nan)
    shared = _peers_median(relative) if len(own) >= _LEAST_PEERS else relative[::-1] if len(own) == 2 else np.ones_like(own)
    return history * np.maximum(np.nan_to_num(shared, nan=1.0), 1.0)


def _nanmedian(values: Float64Array, axis: int) -> Float64Array:
    """As np.nanmedian, silent where all are NaN."""
    ranked = np.sort(values, axis=axis)
    count = (~np.isnan(values)).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ranked, np.maximum((count - 1) // 2, 0), axis=axis)
    high = np.take_along_axis(ranked, np.maximum(count // 2, 0), axis=axis)
    return ((low + high) / 2).squeeze(axis)


def noise_ns(excess_ns: Float64Array) -> float:
    """Robust spread (scaled median absolute deviation) of the excess over all cells."""
    values = excess_ns[~np.isnan(excess_ns)]
    return float(1.4826 * np.median(np.abs(values - np.median(values)))) if len(values) else 0.0
