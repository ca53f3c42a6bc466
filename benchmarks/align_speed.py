"""What alignment and logical time cost: CPU seconds of one thread, on simulated jobs of a million to ten million spans.

    python benchmarks/align_speed.py [--full] [--rounds N]

Without --full: 1,024 ranks on 128 hosts with a million spans. With it also ten million spans of as many ranks, and of 8,192 ranks on
1,024 hosts, one after the other; each needs some 10 GB while the job is made up. Kernels are compiled before anything is measured.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from _measure import take_turns
from _results import Results

from crossrank.align.fit import fit_clocks
from crossrank.align.repair import repair
from crossrank.model.clockmap import ClockMap
from crossrank.model.matches import Matches
from crossrank.model.order import Order
from crossrank.model.trace import JobTrace, trace_from_arrow
from crossrank.reconstruct.causality import CausalIndex, causal_index, cone, relation
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.job import simulate

CLOCKS = ClockConfig(drift_ppm=50.0)
PAIRS = 10_000
APEXES = 100


@dataclass(frozen=True, slots=True)
class Size:
    """A job and what may be asked of it, in CPU seconds."""

    config: JobConfig
    fit_s: float
    order_s: float | None = None
    replay_s: float | None = None
    index_mb: float | None = None


def sizes(*, full: bool) -> Iterator[Size]:
    wide = JobConfig(dp=16, tp=8, pp=8, steps=12, microbatches=8, clocks=CLOCKS)
    yield Size(wide, fit_s=3.0, replay_s=0.1, index_mb=64.0)
    if full:
        yield Size(JobConfig(dp=16, tp=8, pp=8, steps=117, microbatches=8, clocks=CLOCKS), fit_s=15.0, order_s=2.0)
        yield Size(JobConfig(dp=128, tp=8, pp=8, steps=15, microbatches=8, clocks=CLOCKS), fit_s=60.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also ten million spans")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results = Results("align_speed")
    for size in sizes(full=options.full):
        measure(size, options.rounds if len(results.figures) == 0 else 1, results)
    return 0 if results.finish() else 1


def measure(size: Size, rounds: int, results: Results) -> None:
    trace, matches = prepared(size.config)
    before_mb = peak_mb()
    clocks, order = fit_clocks(trace, matches), replay(trace, matches)
    name = f"{size.config.world_size:,} ranks, {len(trace) / 1e6:.1f} million spans"
    took = take_turns(
        {
            "fit": lambda: fit_clocks(trace, matches),
            "replay": lambda: replay(trace, matches),
            "order and repair": lambda: ordered(trace, matches, clocks),
        },
        rounds=rounds,
    )
    results.add(f"{name}: fit of all clocks", took["fit"].cpu_s, "CPU s", at_most=size.fit_s)
    results.add(f"{name}: order and Lamport times", took["replay"].cpu_s, "CPU s", at_most=size.replay_s)
    results.add(f"{name}: order, mapped times and repair", took["order and repair"].cpu_s, "CPU s", at_most=size.order_s)
    results.add(f"{name}: memory beyond that of the made-up job", peak_mb() - before_mb, "MB", at_most=3000.0)
    if size.index_mb is not None:
        causality(trace, matches, order, name, size.index_mb, results)


def prepared(config: JobConfig) -> tuple[JobTrace, Matches]:
    events = simulate(config, seed=906).events
    trace = trace_from_arrow(events, job=config.job, attempt=0)
    del events
    gc.collect()
    return trace, match(trace)


def ordered(trace: JobTrace, matches: Matches, clocks: ClockMap) -> Order:
    order = replay(trace, matches)
    start = clocks.to_reference(trace.domain, trace.start_ns)
    end = np.where(trace.is_open, start, clocks.to_reference(trace.domain, trace.end_ns))
    repair(trace, matches, order, start, end)
    return order


def causality(trace: JobTrace, matches: Matches, order: Order, name: str, index_mb: float, results: Results) -> None:
    index = causal_index(trace, matches, order)
    results.add(f"{name}: causal index, per million spans", index.nbytes / len(trace), "MB", at_most=index_mb)
    rng = np.random.default_rng(907)
    relation(index, 0, len(trace) - 1)
    latency, wrong = [], 0
    for a in rng.integers(0, len(trace), APEXES).tolist():
        reached = cone(index, a).entry
        for b in rng.integers(0, len(trace), PAIRS // APEXES).tolist():
            begin = time.thread_time()
            found = relation(index, a, b)
            latency.append(time.thread_time() - begin)
            wrong += (found.relation == "before") != inside(index, reached, b)
    results.add(f"{name}: happened before, p50", float(np.quantile(latency, 0.5)) * 1e6, "us of CPU", at_most=50.0)
    results.add(f"{name}: happened before, p99", float(np.quantile(latency, 0.99)) * 1e6, "us of CPU", at_most=5000.0)
    results.add(f"{name}: answers unlike the cone, of {PAIRS:,}", wrong, "pairs", at_most=0)


def inside(index: CausalIndex, reached: np.ndarray, b: int) -> bool:
    """Whether the start of span b lies in a cone."""
    entry = reached[index.lane_of[b]]
    return bool(entry >= 0 and index.place[2 * b] >= index.place[entry])


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


if __name__ == "__main__":
    raise SystemExit(main())
