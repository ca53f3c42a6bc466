"""How a job's events reach the service: batches of each rank over time, some of them twice, in order or not.

A rank flushes what has ended every `every_ns` (each rank at a moment of its own) and sends at most `batch_events` at once. Open
spans are sent with the rank's last flush, as a process does that is asked for its state. Which batch is sent twice and how
batches and rows are shuffled depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossrank.simulate.job import Simulated
from crossrank.simulate.noise import Purpose, stream


@dataclass(frozen=True, slots=True)
class Delivery:
    """How events are sent. `duplicate_fraction` of the batches are sent once more at some later time."""

    every_ns: int = 1_000_000_000
    batch_events: int = 512
    duplicate_fraction: float = 0.0
    shuffled: bool = False  # batches, and rows within a batch, in any order


@dataclass(frozen=True, slots=True)
class Batch:
    """One request of one rank. `available_ns`: true time since the start of the job when the rank sends it."""

    rank: int
    available_ns: int
    events: pa.Table


def deliver(simulated: Simulated, delivery: Delivery | None = None, *, seed: int = 0) -> list[Batch]:
    """All batches of a job in the order they are sent: by time, or any order when shuffled."""
    delivery = delivery or Delivery()
    rng = stream(seed, Purpose.DELIVERY)
    batches = list(_flushes(simulated, delivery, rng))
    again = np.flatnonzero(rng.random(len(batches)) < delivery.duplicate_fraction)
    later = rng.integers(1, 10 * delivery.every_ns, len(again), endpoint=True)
    batches += [
        Batch(batches[i].rank, batches[i].available_ns + late, batches[i].events)
        for i, late in zip(again.tolist(), later.tolist(), strict=True)
    ]
    if not delivery.shuffled:
        return sorted(batches, key=lambda b: b.available_ns)  # stable: batches of one flush keep their order
    mixed = (batches[i] for i in rng.permutation(len(batches)).tolist())
    return [Batch(b.rank, b.available_ns, b.events.take(pa.array(rng.permutation(b.events.num_rows)))) for b in mixed]


def _flushes(simulated: Simulated, delivery: Delivery, rng: np.random.Generator) -> Iterator[Batch]:
    """Batches by rank and time."""
    if simulated.events.num_rows == 0:
        return
    rank = simulated.events.column("rank").to_numpy()
    is_open = simulated.true_end_ns == 0
    last = max(simulated.true_start_ns.max(), simulated.true_end_ns.max()) - simulated.config.start_ns
    ended = np.where(is_open, last, simulated.true_end_ns - simulated.config.start_ns)
    moment = rng.integers(0, delivery.every_ns, simulated.config.world_size)[rank]
    flush = (ended - moment) // delivery.every_ns + 1
    order = np.lexsort((ended, flush, rank))
    events = simulated.events.take(pa.array(order))
    rank, available = rank[order], (flush * delivery.every_ns + moment)[order]
    new = np.flatnonzero(np.diff(rank, prepend=-1) | np.diff(available, prepend=-1))
    for first, end in zip(new.tolist(), [*new[1:].tolist(), len(rank)], strict=True):
        for at in range(first, end, delivery.batch_events):
            part = events.slice(at, min(delivery.batch_events, end - at))
            yield Batch(int(rank[first]), int(available[first]), part)
