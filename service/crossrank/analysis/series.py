"""Posted metrics as series: the values of one metric of one rank, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.kinds import METRIC
from crossrank.model.timeline import NO_STEP, Timeline


@dataclass(frozen=True, slots=True)
class Series:
    """k points. step: NO_STEP where unknown."""

    name: str
    rank: int
    span: Int64Array  # [k]
    at_ns: Int64Array  # [k] aligned
    step: Int64Array  # [k]
    value: Float64Array  # [k] NaN where none or not a number was sent


def metric_series(timeline: Timeline) -> list[Series]:
    """All series, by (name, rank). O(metrics log metrics)."""
    trace = timeline.trace
    spans = np.flatnonzero(trace.kind == METRIC)
    spans = spans[np.lexsort((spans, timeline.start_ns[spans], trace.rank[spans], trace.name[spans]))]
    key = trace.name[spans].astype(np.int64) * 2**32 + trace.rank[spans]
    starts = np.flatnonzero(np.diff(key, prepend=-1)) if len(key) else np.empty(0, dtype=np.int64)
    found = []
    for first, last in zip(starts.tolist(), np.append(starts[1:], len(spans)).tolist()[: len(starts)], strict=True):
        mine = spans[first:last]
        name = trace.names[trace.name[mine[0]]]
        found.append(
            Series(name, int(trace.rank[mine[0]]), mine, timeline.start_ns[mine], timeline.step_of[mine], trace.value[mine])
        )
    return found


def by_step(series: list[Series], most: int) -> tuple[list[str], Int64Array, Float64Array]:
    """(names, steps [t], values [series, t]) of the steps that all of the chosen series have, at most `most` series.

    A metric that several ranks post becomes one series, the mean over the ranks of each step, beside none of its own. Series that
    never change say nothing; those with most steps are chosen.
    """
    pooled: dict[str, dict[int, list[float]]] = {}
    for s in series:
        of = pooled.setdefault(s.name, {})
        for step, value in zip(s.step.tolist(), s.value.tolist(), strict=True):
            if step != NO_STEP and np.isfinite(value):
                of.setdefault(step, []).append(value)
    varied = {name: of for name, of in pooled.items() if len({v for values in of.values() for v in values}) > 1}
    names = sorted(sorted(varied, key=lambda n: (-len(varied[n]), n))[:most])
    shared = sorted(set.intersection(*(set(varied[n]) for n in names))) if names else []
    values = np.array([[float(np.mean(varied[n][step])) for step in shared] for n in names]).reshape(len(names), len(shared))
    return names, np.array(shared, dtype=np.int64), values
