"""Timing that a loaded machine does not fool: competitors take turns, and the median of their rounds counts.

CPU seconds (of all threads of this process) are what a machine has to pay whatever else runs on it; wall seconds are what a caller
waits. A garbage collection is done before each round so that nobody pays for another's rubbish.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over rounds, seconds."""

    cpu_s: float
    wall_s: float


class Stopwatch:
    """CPU and wall seconds of named stages, one entry a round."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times the block as one round of a stage."""
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.rounds.setdefault(name, []).append((time.process_time() - cpu, time.perf_counter() - wall))

    def median(self, name: str) -> Timing:
        """The stage's medians."""
        cpu, wall = zip(*self.rounds[name], strict=True)
        return Timing(median(cpu), median(wall))


def take_turns(tasks: dict[str, Callable[[], object]], *, rounds: int) -> dict[str, Timing]:
    """Runs each task once unmeasured (compilation, caches), then `rounds` times in turn."""
    for task in tasks.values():
        task()
    watch = Stopwatch()
    for _ in range(rounds):
        for name, task in tasks.items():
            with watch.stage(name):
                task()
    return {name: watch.median(name) for name in tasks}


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
