"""What each job is doing, as gauges for Prometheus: the step time, what holds it up, and how far the numbers can be trusted.

Read from the answers that are there: a scrape never derives anything. Only the jobs that last received something are told, up to a
bound, and never a rank: labels are what a Prometheus server pays for, and senders choose the names of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from crossrank.query.derive import Derived
from crossrank.query.deriver import Deriver
from crossrank.query.jobview import alignment
from crossrank.store.store import Store

JOB_METRICS: Final = {
    "step_seconds": "Time of a complete step over all ranks: the last one, and the median of the last 100.",
    "step": "Number of the last complete step.",
    "straggler_cost_seconds": "What the job would have been shorter by without its costliest straggler; 0 without one.",
    "stragglers": "Ranks that are late by themselves, beyond noise and clock bounds.",
    "exposed_communication_ratio": "Share of the time that communication takes and no computation hides; 0 below a tenth.",
    "clock_bound_seconds": "Guaranteed bound of the worst clock against the reference; absent where there is none.",
    "clock_components": "Groups of clocks that nothing connects; 1 is good.",
    "ranks": "Ranks by what is known of them: seen or missing.",
    "behind_seconds": "How far the least complete rank is behind the most complete one.",
    "silent_seconds": "Time since anything was received.",
}
_LABELS: Final = {"step_seconds": "stat", "ranks": "state"}
_RECENT_STEPS: Final = 100


class JobMetrics(Collector):
    """Gauges of the jobs that were active last."""

    def __init__(self, store: Store, deriver: Deriver, most: int, now_ns: int) -> None:
        self._store, self._deriver, self._most, self._now_ns = store, deriver, most, now_ns

    def collect(self) -> Iterator[Metric]:
        """One family a metric."""
        families = {
            name: GaugeMetricFamily(f"crossrank_job_{name}", f"[info] {meaning}", labels=_labels(name))
            for name, meaning in JOB_METRICS.items()
        }
        entries = sorted(self._store.jobs(), key=lambda e: (-e.last_received_ns, e.job))[: self._most]
        for entry in entries:
            families["silent_seconds"].add_metric([entry.job], max(self._now_ns - entry.last_received_ns, 0) / 1e9)
            derived = self._deriver.known(entry.job)
            if derived is not None:
                for name, label, value in _values(derived):
                    families[name].add_metric([entry.job, *label], value)
        yield from families.values()


def _labels(name: str) -> list[str]:
    return ["job", *([_LABELS[name]] if name in _LABELS else [])]


def _values(derived: Derived) -> Iterator[tuple[str, list[str], float]]:
    """(metric, values of further labels, value) of a job."""
    for part in _PARTS:
        yield from part(derived)


def _of_steps(derived: Derived) -> Iterator[tuple[str, list[str], float]]:
    steps = derived.steps
    whole = np.flatnonzero(steps.complete)[-_RECENT_STEPS:]
    if len(whole):
        lasted = (steps.end_ns[whole] - steps.start_ns[whole]) / 1e9
        yield "step_seconds", ["last"], float(lasted[-1])
        yield "step_seconds", ["median"], float(np.median(lasted))
        yield "step", [], int(steps.step[whole[-1]])


def _of_findings(derived: Derived) -> Iterator[tuple[str, list[str], float]]:
    yield "straggler_cost_seconds", [], max((s.cost_ns for s in derived.stragglers), default=0) / 1e9
    yield "stragglers", [], len({s.rank for s in derived.stragglers})
    exposed = [f.share for f in derived.findings if f.class_ == "exposed_communication"]
    yield "exposed_communication_ratio", [], max(exposed, default=0.0)


def _of_quality(derived: Derived) -> Iterator[tuple[str, list[str], float]]:
    clocks = alignment(derived)
    if clocks["bound_ns"] is not None:
        yield "clock_bound_seconds", [], clocks["bound_ns"] / 1e9
    yield "clock_components", [], clocks["components"]
    yield "ranks", ["seen"], len(derived.topology.seen)
    yield "ranks", ["missing"], derived.topology.missing_count
    if derived.complete_to_ns is not None:
        yield "behind_seconds", [], (int(derived.timeline.end_ns.max()) - derived.complete_to_ns) / 1e9


_PARTS: Final[tuple[Callable[[Derived], Iterator[tuple[str, list[str], float]]], ...]] = (_of_steps, _of_findings, _of_quality)
