"""Which rows of cells are late by more than chance, in which steps, and by how much.

A run of steps (runs) says that a row is late; this module says where the lateness begins and ends, whether there is more of it,
and what is typical of it.

Within a run the excess is taken as one typical extra time per step (a trimmed mean), not as each step's own: what a step had
above it is as much noise as what another had below, and removing only the former would overstate the cost. A pause that comes now
and then has no typical step, so there each step's own excess counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossrank.analysis.calibration import OF_SCATTERED_WORK, OF_WORK, Calibration
from crossrank.analysis.excess import PhaseCells, noise_ns
from crossrank.analysis.runs import Null, Run, adjust, best_runs, hits, null_of
from crossrank.model.arrays import Float64Array, Int64Array

LEAST_CONFIDENCE = 0.9
MOST_LATE = 128  # rows looked at closely; a job with more late rows than this has another problem
_AS_READING = 0.1  # rate up to which a second reading of a phase that is late anyway counts
_MORE_RUNS = 4  # further runs looked for in a row that has one
_AGAIN_P = 0.01


@dataclass(frozen=True, slots=True)
class Lateness:
    """One row of cells that is late: the columns affected and how much too long each was."""

    cells: PhaseCells
    row: int
    columns: Int64Array  # ascending
    shift_ns: Float64Array  # [columns] excess to take away
    error_ns: float  # of the sum of `shift_ns`, one standard deviation
    is_sparse: bool
    confidence: float


def find_lateness(
    cells: list[PhaseCells], least_ns: float, least_confidence: float = LEAST_CONFIDENCE, curve: Calibration = OF_WORK
) -> list[Lateness]:
    """The rows that are late by more than chance (at most MOST_LATE of them), those with most excess first."""
    nulls = [null_of(c.excess_ns, least_ns) for c in cells]
    runs = [(t, run) for t, null in enumerate(nulls) for run in best_runs(cells[t].excess_ns, null)]
    looked_at = sum(len(c.rows) for c in cells)
    p_values = np.ones(max(looked_at, len(runs)))
    p_values[: len(runs)] = [run.p_value for _, run in runs]
    rate = adjust(p_values)[: len(runs)]
    confidence = curve.confidence(rate)
    if curve is OF_WORK:
        confidence = np.where([run.is_sparse for _, run in runs], OF_SCATTERED_WORK.confidence(rate), confidence)
    chosen = np.flatnonzero(confidence >= least_confidence)
    extent = np.array([_extent(cells[runs[i][0]], runs[i][1]) for i in chosen.tolist()])
    return [
        _lateness(cells[runs[i][0]], nulls[runs[i][0]], runs[i][1], float(confidence[i]))
        for i in chosen[np.argsort(-extent, kind="stable")][:MOST_LATE].tolist()
    ]


def _extent(cells: PhaseCells, run: Run) -> float:
    """Excess of all steps of the run that exceed its threshold."""
    return float(cells.excess_ns[run.row, hits(cells.excess_ns[run.row], run)].sum())


def _lateness(cells: PhaseCells, null: Null, run: Run, confidence: float) -> Lateness:
    excess = cells.excess_ns[run.row]
    columns, is_sparse = _affected(excess, run), run.is_sparse
    rest = cells.excess_ns.copy()
    for _ in range(_MORE_RUNS):
        rest[run.row, columns] = np.nan
        more = best_runs(rest, null, np.array([run.row]))
        if not more or more[0].p_value > _AGAIN_P:
            break
        columns = np.union1d(columns, _affected(rest[run.row], more[0]))
    is_sparse = is_sparse or _scattered(columns)
    noise = noise_ns(cells.excess_ns)
    seen = excess[columns]
    if is_sparse:
        return Lateness(cells, run.row, columns, np.maximum(seen, 0.0), noise * len(columns) ** 0.5, True, confidence)
    shift = _trimmed_mean(seen)
    error = len(columns) * max(noise, 1.4826 * float(np.median(np.abs(seen - shift)))) * (1.1 / len(columns) ** 0.5)
    return Lateness(cells, run.row, columns, np.full(len(columns), shift), error, False, confidence)


def _affected(excess: Float64Array, run: Run) -> Int64Array:
    """The steps of a run that are late by at least half of what is typical in it, the run grown or shrunk to fit."""
    half = float(np.median(excess[hits(excess, run)])) / 2
    late = np.nan_to_num(excess, nan=-np.inf) >= half
    first, last = run.first, run.last
    while not run.is_sparse and first > 0 and late[first - 1]:
        first -= 1
    while not run.is_sparse and last + 1 < len(late) and late[last + 1]:
        last += 1
    return first + np.flatnonzero(late[first : last + 1])


def _scattered(columns: Int64Array) -> bool:
    """Single steps and pairs here and there, most of the steps between them unaffected."""
    breaks = np.flatnonzero(np.diff(columns) > 1)
    longest = int(np.diff(np.concatenate(([-1], breaks, [len(columns) - 1]))).max())
    return longest < 3 and len(columns) < (columns[-1] - columns[0] + 1) / 2


def _trimmed_mean(values: Float64Array) -> float:
    cut = len(values) // 5
    return float(np.sort(values)[cut : len(values) - cut].mean())


def late_phases(
    cells: list[PhaseCells], least_ns: float, least_confidence: float = LEAST_CONFIDENCE, curve: Calibration = OF_WORK
) -> list[Lateness]:
    """One verdict a rank and phase that is late by more than chance, those with most excess first."""
    as_reading = float(curve.confidence(np.array([_AS_READING]))[0])
    readings = find_lateness(cells, least_ns, min(least_confidence, as_reading), curve)
    return [late for late in one_a_phase(readings) if late.confidence >= least_confidence]


def one_a_phase(found: list[Lateness]) -> list[Lateness]:
    """One verdict a rank and phase: the typical reading where it is late too, for it tells a slow phase from pauses."""
    best: dict[tuple[int, str, str], Lateness] = {}
    for late in found:
        key = (int(late.cells.rows[late.row]), late.cells.kind, late.cells.name)
        held = best.get(key)
        if held is None:
            best[key] = late
        elif late.cells.is_typical != held.cells.is_typical:
            typical, total = (late, held) if late.cells.is_typical else (held, late)
            surer = max(typical.confidence, total.confidence)
            best[key] = replace(typical, confidence=surer) if typical.shift_ns.sum() > total.shift_ns.sum() / 2 else total
    return list(best.values())


def is_jitter(late: Lateness) -> bool:
    """Rare long stops rather than a slow phase: few of the steps, or one span among many of a step."""
    if late.is_sparse:
        return True
    return late.cells.usual_spans >= 3 and not late.cells.is_typical
