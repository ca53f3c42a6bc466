"""How long a derivation takes, stage by stage: events -> trace -> matches -> clocks -> order -> repair -> answers.

Simulated healthy jobs with wrong clocks and one slow rank; stages run one after another as the service runs them, sizes take
turns, medians of CPU seconds. The first call of each stage, which compiles kernels or loads them from their cache, is not measured.

    python benchmarks/derive.py [--rounds N] [--small]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from _measure import Stopwatch
from _results import Results

from crossrank.align.fit import fit_clocks
from crossrank.align.repair import repair
from crossrank.align.violations import count_violations
from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.critical_path import critical_path
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.analysis.waits import collective_times
from crossrank.model.timeline import Timeline
from crossrank.model.trace import trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.topology import infer_topology
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import Simulated, simulate

SIZES = {
    "8 ranks x 50 steps": JobConfig(dp=2, tp=2, pp=2, steps=50),
    "64 ranks x 40 steps": JobConfig(steps=40),
    "256 ranks x 20 steps": JobConfig(dp=8, tp=8, pp=4, steps=20),
    "1024 ranks x 10 steps": JobConfig(dp=16, tp=8, pp=8, steps=10, microbatches=8),
}
STAGES = ("trace", "match", "fit", "order", "repair", "steps", "waits", "stragglers", "bottlenecks")


@dataclass(frozen=True, slots=True)
class Checked:
    """What a derivation gave, to see that the fast answer is the right one."""

    violations: int
    first_straggler: int | None


def derive_once(job: Simulated, watch: Stopwatch, size: str) -> Checked:
    """One derivation, each stage timed as `size: stage`."""
    with watch.stage(f"{size}: trace"):
        trace = trace_from_arrow(job.events, job=job.config.job, attempt=0)
    with watch.stage(f"{size}: match"):
        matches = match(trace)
    with watch.stage(f"{size}: fit"):
        clocks = fit_clocks(trace, matches)
        start = clocks.to_reference(trace.domain, trace.start_ns)
        end = np.where(trace.is_open, start, clocks.to_reference(trace.domain, trace.end_ns))
    with watch.stage(f"{size}: order"):
        order = replay(trace, matches)
    with watch.stage(f"{size}: repair"):
        start, end = repair(trace, matches, order, start, end)
    with watch.stage(f"{size}: steps"):
        shape = infer_topology(trace, matches, None)
        timeline = Timeline(trace, matches, order, clocks, start, end, assign_steps(trace))
        steps = find_steps(timeline, shape)
    with watch.stage(f"{size}: waits"):
        collective_times(timeline)
    with watch.stage(f"{size}: stragglers"):
        stragglers = find_stragglers(timeline, shape, steps)
    with watch.stage(f"{size}: bottlenecks"):
        find_bottlenecks(timeline, shape, steps, stragglers)
    with watch.stage(f"{size}: critical path of one step"):
        critical_path(timeline, steps, 5)
    return Checked(count_violations(matches, start, end, trace.is_open), stragglers[0].rank if stragglers else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="without the largest size")
    options = parser.parse_args()
    sizes = dict(list(SIZES.items())[: -1 if options.small else None])
    slow = SlowCompute(2, "forward", steps=(5, 8), extra_ns=30_000_000)
    jobs = {size: simulate(config, [slow], seed=1) for size, config in sizes.items()}
    watch, checked = Stopwatch(), {}
    for size, job in jobs.items():
        derive_once(job, Stopwatch(), size)
    for _ in range(options.rounds):
        for size, job in jobs.items():
            checked[size] = derive_once(job, watch, size)
    results = Results("derive")
    for size, job in jobs.items():
        results.add(f"{size}: spans", len(job.events), "spans")
        total = 0.0
        for stage in STAGES:
            cpu_s = watch.median(f"{size}: {stage}").cpu_s
            results.add(f"{size}: {stage}", cpu_s * 1e3, "CPU ms")
            total += cpu_s
        one_path = watch.median(f"{size}: critical path of one step").cpu_s
        results.add(f"{size}: critical path of one step, on demand", one_path * 1e3, "CPU ms")
        results.add(f"{size}: whole derivation", total, "CPU s")
        results.add(f"{size}: spans per CPU second", len(job.events) / total, "spans/s")
        results.add(f"{size}: violations after repair", checked[size].violations, "", at_most=0)
        results.add(f"{size}: slow rank named first", float(checked[size].first_straggler == 2), "0 or 1", at_least=1)
    results.finish()


if __name__ == "__main__":
    main()
