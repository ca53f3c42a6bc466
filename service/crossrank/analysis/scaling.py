"""How a job scales: its efficiency at several world sizes, the part that more ranks do not divide, and what eats the rest.

Each job gives, in the mean over its closed steps and ranks, the time t of a step and its parts, which add up to t exactly
(analysis.breakdown). With t0 of the smallest job, of n0 ranks:

    strong scaling    the same work, divided by more ranks     ideal t0 n0 / n     efficiency t0 n0 / (t n)
    weak scaling      the same work for each rank              ideal t0            efficiency t0 / t

Which of the two it is shows in the ranks' own work w(n): with alpha the slope of log w over log n, near -1 it was divided, near 0 each
rank kept its own; between the two nothing is said unless the caller states it.

Amdahl's law (1967) with total work W(n), 1 for strong and n for weak scaling (as Gustafson 1988 reads it), fitted by least squares
without negative parts:

    t(n) = W(n) (serial + parallel / n)        serial fraction = serial / (serial + parallel)

What is lost at n against the ideal is split by the same parts, each against its own ideal, so the parts add up to the loss:

    work            own work (compute, data, copies, checkpoints) that did not shrink as it should
    imbalance       how much more own work the busiest rank has than the mean, over all its steps; the others wait for it
    wait            the rest of the waits: late ranks of single steps, the pipeline's bubble, chance
    communication   exposed transfers
    rest            sync, idle, unknown

The loss has a 95 % band from the spread of the steps; inside it nothing is told of its parts, for they would be noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from crossrank.analysis.breakdown import CATEGORIES, Breakdown
from crossrank.analysis.spread import mean_and_band
from crossrank.analysis.steps import StepTable
from crossrank.model.arrays import Float64Array

Mode = Literal["strong", "weak"]
PARTS: Final = ("work", "imbalance", "wait", "communication", "rest")
_WORK: Final = ("compute", "data", "checkpoint", "copy", "other")
_DIVIDED: Final = 0.25  # how far alpha may be from -1 or 0 to be told apart


@dataclass(frozen=True, slots=True)
class Measured:
    """One job: mean time of a step of a rank and its parts (PARTS, in that order), and the 95 % band of the former."""

    job: str
    ranks: int
    steps: int
    step_ns: float
    band_ns: float  # infinite for fewer than three steps
    parts_ns: tuple[float, ...]

    @property
    def work_ns(self) -> float:
        """Own work of a rank."""
        return self.parts_ns[0]


@dataclass(frozen=True, slots=True)
class Point:
    """One job against the ideal. parts: share of the loss by PARTS; None where the loss is within its band."""

    measured: Measured
    ideal_ns: float
    speedup: float  # throughput against the smallest job
    efficiency: float
    loss_ns: float
    loss_band_ns: float
    shares: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class Amdahl:
    """serial_ns, parallel_ns: of the smallest job's total work on one rank. residual: largest distance, relative; None with two sizes."""

    serial_fraction: float
    serial_ns: float
    parallel_ns: float
    residual: float | None


@dataclass(frozen=True, slots=True)
class Scaling:
    """mode None: the ranks' own work says neither strong nor weak. alpha: slope of log own work over log ranks."""

    mode: Mode | None
    alpha: float | None
    points: tuple[Point, ...]
    amdahl: Amdahl | None


def measure(job: str, world_size: int, steps: StepTable, parts: Breakdown) -> Measured | None:
    """A job in the mean of its closed steps; None without any. `parts`: breakdown of the same table."""
    chosen = np.repeat(steps.closed, np.diff(steps.ptr))
    if not chosen.any():
        return None
    rank, time_ns = steps.rank[chosen], parts.time_ns[chosen].astype(np.float64)
    number = np.repeat(np.arange(len(steps)), np.diff(steps.ptr))[chosen]
    total = np.bincount(number, weights=time_ns.sum(axis=1), minlength=len(steps)) / np.maximum(
        np.bincount(number, minlength=len(steps)), 1
    )
    _, band = mean_and_band(total[steps.closed])
    own = time_ns[:, [CATEGORIES.index(name) for name in _WORK]].sum(axis=1)
    ranks, place = np.unique(rank, return_inverse=True)
    of_rank = np.bincount(place, weights=own, minlength=len(ranks)) / np.bincount(place, minlength=len(ranks))
    step_ns, work = float(time_ns.sum(axis=1).mean()), float(own.mean())
    wait, transfer = (float(time_ns[:, CATEGORIES.index(name)].mean()) for name in ("wait", "transfer"))
    imbalance = min(max(float(of_rank.max()) - work, 0.0), wait)
    split = (work, imbalance, wait - imbalance, transfer, step_ns - work - wait - transfer)
    return Measured(job, world_size, int(steps.closed.sum()), step_ns, float(band), split)


def scaling(jobs: Sequence[Measured], mode: Mode | None = None) -> Scaling:
    """Jobs of at least two world sizes, smallest first in the answer. mode: when the caller knows it."""
    ordered = sorted(jobs, key=lambda m: (m.ranks, m.job))
    ranks = np.array([m.ranks for m in ordered], dtype=np.float64)
    alpha = _slope(ranks, np.array([m.work_ns for m in ordered]))
    if mode is None and alpha is not None:
        mode = "strong" if abs(alpha + 1) <= _DIVIDED else "weak" if abs(alpha) <= _DIVIDED else None
    if mode is None:
        return Scaling(None, alpha, tuple(_point(m, ordered[0], None) for m in ordered), None)
    return Scaling(mode, alpha, tuple(_point(m, ordered[0], mode) for m in ordered), _amdahl(ordered, mode))


def _slope(ranks: Float64Array, work_ns: Float64Array) -> float | None:
    if (work_ns <= 0).any() or len(np.unique(ranks)) < 2:
        return None
    return float(np.polyfit(np.log(ranks), np.log(work_ns), 1)[0])


def _point(m: Measured, base: Measured, mode: Mode | None) -> Point:
    """Without a mode there is no ideal: it stands for the job itself."""
    scale = 1.0 if mode == "weak" else base.ranks / m.ranks
    ideal = base.step_ns * scale if mode is not None else m.step_ns
    loss = m.step_ns - ideal
    band = float(np.hypot(m.band_ns, base.band_ns * scale))
    efficiency = ideal / m.step_ns
    parts = {name: own - first * scale for name, own, first in zip(PARTS, m.parts_ns, base.parts_ns, strict=True)}
    told = mode is not None and m is not base and loss > band
    return Point(m, ideal, efficiency * m.ranks / base.ranks, efficiency, loss, band,
        {name: ns / loss for name, ns in parts.items()} if told else None)  # fmt: skip


def _amdahl(jobs: Sequence[Measured], mode: Mode) -> Amdahl | None:
    """Least squares of t = W (serial + parallel / n), relative to t so that small and large jobs count alike."""
    n = np.array([m.ranks for m in jobs], dtype=np.float64)
    if len(np.unique(n)) < 2:
        return None
    t = np.array([m.step_ns for m in jobs])
    work = np.ones(len(n)) if mode == "strong" else n
    columns = np.column_stack((work, work / n)) / t[:, None]
    fits = [np.linalg.lstsq(columns, np.ones(len(n)), rcond=None)[0]]
    for only in (0, 1):  # the best fit with one part is at the border where the free one is negative
        alone = np.zeros(2)
        alone[only] = columns[:, only].sum() / (columns[:, only] ** 2).sum()
        fits.append(alone)
    usable = [f for f in fits if (f >= 0).all()]
    serial, parallel = min(usable, key=lambda f: float(((columns @ f - 1) ** 2).sum())).tolist()
    off = float(np.abs(columns @ np.array([serial, parallel]) - 1).max())
    return Amdahl(serial / (serial + parallel), serial, parallel, off if len(np.unique(n)) > 2 else None)
