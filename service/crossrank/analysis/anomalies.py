"""Values of posted metrics that should not be: what is no number, loss spikes, gradients that explode or vanish.

    not_finite          NaN, infinite, or no value at all
    loss_spike          a metric with `loss` in its name, above the last WINDOW values by more than SIGMAS robust standard deviations
                        (1.4826 x the median distance from their median) and above all of them
    gradient_explosion  a metric with `grad` and `norm` in its name, above GRADIENT_MOST
    gradient_vanishing  the same, below GRADIENT_LEAST

A spike is measured against values before it only, and the spike itself does not raise the bar for the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crossrank.analysis.series import Series
from crossrank.model.arrays import Float64Array

WINDOW, LEAST, SIGMAS = 50, 10, 3.0
GRADIENT_MOST, GRADIENT_LEAST = 1e4, 1e-6
AnomalyClass = Literal["not_finite", "loss_spike", "gradient_explosion", "gradient_vanishing"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One value. usual, limit: what it was measured against; None where there is nothing to measure."""

    class_: AnomalyClass
    name: str
    rank: int
    step: int
    at_ns: int
    span: int
    value: float
    usual: float | None
    limit: float | None


def find_anomalies(
    series: list[Series], *, sigmas: float = SIGMAS, most: float = GRADIENT_MOST, least: float = GRADIENT_LEAST
) -> list[Anomaly]:
    """All anomalies, by time."""
    found = [a for s in series for a in _of_series(s, sigmas, most, least)]
    return sorted(found, key=lambda a: (a.at_ns, a.name, a.rank))


def _of_series(s: Series, sigmas: float, most: float, least: float) -> list[Anomaly]:
    name = s.name.lower()
    told: list[tuple[int, AnomalyClass, float | None, float | None]] = [
        (i, "not_finite", None, None) for i in np.flatnonzero(~np.isfinite(s.value)).tolist()
    ]
    if "grad" in name and "norm" in name:
        told += [(i, "gradient_explosion", None, most) for i in np.flatnonzero(np.isfinite(s.value) & (s.value > most)).tolist()]
        told += [(i, "gradient_vanishing", None, least) for i in np.flatnonzero(np.abs(s.value) < least).tolist()]
    elif "loss" in name:
        told += [(i, "loss_spike", usual, limit) for i, usual, limit in _spikes(s.value, sigmas)]
    return [
        Anomaly(c, s.name, s.rank, int(s.step[i]), int(s.at_ns[i]), int(s.span[i]), float(s.value[i]), u, m) for i, c, u, m in told
    ]


def _spikes(value: Float64Array, sigmas: float) -> list[tuple[int, float, float]]:
    found = []
    window: list[float] = []
    for i, v in enumerate(value.tolist()):
        if not np.isfinite(v):
            continue
        if len(window) >= LEAST:
            usual = float(np.median(window))
            spread = max(1.4826 * float(np.median(np.abs(np.array(window) - usual))), 1e-9 * abs(usual))
            limit = max(usual + sigmas * spread, *window)
            if v > limit:
                found.append((i, usual, limit))
                continue
        window = [*window[1 - WINDOW :], v]
    return found
