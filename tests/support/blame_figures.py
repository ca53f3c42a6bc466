"""From the rows of a campaign to its figures: recall, precision, costs, what-if and calibration, each with its demand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from crossrank.analysis.calibration import MOST, Calibration
from crossrank.model.arrays import Float64Array
from tests.support.blame_campaign import Accused, Injected, Told, Trial

BINS = (0.5, 0.7, 0.8, 0.85, 0.95, 0.99, 1.0)
STATED = (0.85, 0.95)  # findings that state a confidence of about 0.9


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and what is demanded of it, if anything."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the demand is met."""
        return (self.at_least is None or self.value >= self.at_least) and (self.at_most is None or self.value <= self.at_most)


def figures(trials: Sequence[Trial]) -> list[Figure]:
    """All figures that the trials allow."""
    of = {f: [t for t in trials if t.family == f] for f in ("one", "several", "healthy", "weak")}
    out = [Figure("jobs", len(trials), "jobs"), Figure("largest job", max(t.ranks for t in trials), "ranks")]
    for name, low, high, demand in (("2 % of a step and more", 0.02, 9.0, 0.99), ("1 to 2 % of a step", 0.0, 0.02, 0.95)):
        out += _found(name, [t for t in of["one"] if low <= t.faults[0].share < high], demand)
    out += _costs(of["one"])
    if of["healthy"]:
        accused = sum(bool(t.told) for t in of["healthy"])
        out += [Figure("healthy jobs with recorded noise", len(of["healthy"]), "jobs")]
        out += [Figure("of these with an accusation", accused, "jobs", at_most=0)]
    out += _several(of["several"])
    return out + calibration(of["weak"])


def pairs(trials: Sequence[Trial]) -> list[tuple[Injected, Told | None]]:
    """Every fault and what was told of it."""
    return [(f, next((s for s in t.told if s.of == i), None)) for t in trials for i, f in enumerate(t.faults)]


def _found(name: str, trials: list[Trial], demand: float) -> list[Figure]:
    if not trials:
        return []
    of = pairs(trials)
    right = sum(t is not None and t.steps_right for _, t in of) / len(of)
    hits, wrong = sum(t is not None for _, t in of), sum(s.of is None for t in trials for s in t.told)
    return [
        Figure(f"faults costing {name}", len(of), "faults"),
        Figure(f"recall, right rank, phase and steps, {name}", right, "", at_least=demand),
        Figure(f"precision, {name}", hits / max(hits + wrong, 1), "", at_least=demand),
    ]


def _costs(trials: list[Trial]) -> list[Figure]:
    of = [(f, t) for f, t in pairs(trials) if t is not None]
    if not of:
        return []
    off = np.array([abs(t.cost_ns - f.true_ns) for f, t in of])
    true = np.array([f.true_ns for f, _ in of], dtype=np.float64)
    error = np.array([t.cost_error_ns for _, t in of], dtype=np.float64)
    fixed = np.array([t.fixed_off for t in trials if t.fixed_off is not None])
    return [
        Figure("cost, median error", float(np.median(off / true)), "of the true cost", at_most=0.05),
        Figure("cost within its error bar (two standard errors)", float((off <= 2 * error).mean()), "", at_least=0.95),
        Figure("error bar, median width", float(np.median(2 * error / true)), "of the true cost"),
        Figure("what-if: fault repaired, median error", float(np.median(fixed)), "of a step"),
        Figure("what-if within 1 % of a step", float((fixed <= 0.01).mean()), "of the jobs", at_least=0.99),
    ]


def _several(trials: list[Trial]) -> list[Figure]:
    if not trials:
        return []
    of = pairs(trials)
    named = [(f, t) for f, t in of if t is not None]
    near = sum(abs(t.cost_ns - f.true_ns) <= max(0.1 * f.true_ns, 0) for f, t in named)
    return [
        Figure("jobs with two or three faults of different kinds", len(trials), "jobs"),
        Figure("of their faults named", len(named) / len(of), "", at_least=1.0),
        Figure("of these with a cost within 10 %", near / max(len(named), 1), "", at_least=1.0),
        Figure("accusations of others in these jobs", sum(s.of is None for t in trials for s in t.told), "", at_most=0),
    ]


def calibration(trials: Sequence[Trial]) -> list[Figure]:
    """How often findings were right, by the confidence they state; the demand is on those that state about 0.9."""
    told = np.array([(s.confidence, s.of is not None) for t in trials for s in t.told]).reshape(-1, 2)
    out: list[Figure] = []
    for low, high in itertools.pairwise(BINS):
        inside = told[(told[:, 0] >= low) & (told[:, 0] < high + (high == 1.0))]
        if len(inside):
            out.append(Figure(f"weak: findings stating {low:g} to {high:g}", len(inside), "findings"))
            right = float(inside[:, 1].mean())
            is_demanded = (low, high) == STATED
            out.append(Figure(f"weak: right, stating {low:g} to {high:g}", right, "", at_least=0.85 if is_demanded else None))
            if is_demanded:
                out.append(Figure(f"weak: right, at most, stating {low:g} to {high:g}", right, "", at_most=0.95))
    return out


def fitted(trials: Sequence[Trial], of: Accused, stated_by: Calibration) -> tuple[float, float]:
    """(rate_even, slope) that make the confidences which a curve stated of some findings most likely."""
    told = [(s.confidence, s.of is not None) for t in trials for s in t.told if 0 < s.confidence < MOST and s.accused == of]
    stated, right = np.array([c for c, _ in told]), np.array([r for _, r in told], dtype=np.float64)
    log_rate = np.log(stated_by.rate_even) - np.log(stated / (1 - stated)) / stated_by.slope

    def minus_log_likelihood(x: Float64Array) -> float:
        logit = x[1] * (x[0] - log_rate)
        return float((np.logaddexp(0, logit) - right * logit).sum())

    found = minimize(minus_log_likelihood, np.array([np.log(stated_by.rate_even), stated_by.slope]), method="Nelder-Mead").x
    return float(np.exp(found[0])), float(found[1])
