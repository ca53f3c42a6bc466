"""What matching and the verdicts cost on a large job: 1,024 ranks, ten million spans, and one rank that hangs it.

Simulated; the trace is built once, then each stage runs in turn; medians of CPU seconds of one thread. The first call of each
stage is not measured.

    python benchmarks/match.py [--rounds N] [--small]
"""

from __future__ import annotations

import argparse

from _measure import take_turns
from _results import Results

from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.standstill import find_standstill
from crossrank.model.clockmap import identity_map
from crossrank.model.order import Order
from crossrank.model.progress import reported_progress
from crossrank.model.timeline import Timeline
from crossrank.model.trace import trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.topology import infer_topology
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import Hang
from crossrank.simulate.job import simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="64 ranks, for trying out")
    options = parser.parse_args()
    steps = 98
    config = JobConfig(dp=16, tp=8, pp=8, steps=steps, microbatches=8, layers=3)
    if options.small:
        config = JobConfig(dp=4, tp=4, pp=4, steps=steps)
    events = simulate(config, (Hang(5, steps - 1, "backward"),), seed=1).events
    trace = trace_from_arrow(events, job=config.job, attempt=0)
    none_dumped = reported_progress(events, trace)
    del events
    matches = match(trace)
    # Verdicts ask for the order of the ranks' own clocks only, so the raw stamps do.
    order = Order(trace.lane_stamps, trace.lane_stamps, ())
    clocks = identity_map(len(trace.domains))
    timeline = Timeline(trace, matches, order, clocks, trace.start_ns, trace.end_ns, assign_steps(trace))
    topology = infer_topology(trace, matches, None)
    mismatches = find_mismatches(timeline)
    took = take_turns(
        {
            "match": lambda: match(trace),
            "mismatches": lambda: find_mismatches(timeline),
            "standstill": lambda: find_standstill(timeline, topology, none_dumped, mismatches),
        },
        rounds=options.rounds,
    )
    found = find_standstill(timeline, topology, none_dumped, mismatches)
    results = Results("match")
    size = f"{config.world_size} ranks, {len(trace) / 1e6:.1f} million spans"
    results.add(f"{size}: matching", took["match"].cpu_s, "CPU s", at_most=5.0 if len(trace) >= 10_000_000 else None)
    results.add(f"{size}: mismatches", took["mismatches"].cpu_s, "CPU s")
    results.add(f"{size}: who holds a hang up", took["standstill"].cpu_s, "CPU s")
    results.add(f"{size}: ranks named rightly (of 1)", float([c.rank for c in found.culprits] == [5]), "", at_least=1.0)
    return 0 if results.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
