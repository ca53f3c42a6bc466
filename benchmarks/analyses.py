"""What all analyses of a large job cost, and how fast a service answers about a step of one and about a thousand steps.

    python benchmarks/analyses.py [--steps 117] [--only analyses|rest]

analyses: a simulated job of 1,024 ranks and 117 steps (ten million spans) with wrong clocks and one slow rank is aligned in one process
and handed to another as a file, which then runs every analysis of a derivation, the breakdown and the bandwidths: CPU seconds of that
process, and its peak memory above the job itself. Kernels are loaded before, on a small job.

rest: a real service. The critical path of one step after another of 1,024 ranks (86,000 spans a step), the first question apart;
findings of a job of 1,000 steps, all of them and a part, which is analysed anew.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from _big_job import open_big
from _measure import percentile
from _results import Results
from _service import service

from crossrank.align.fit import fit_clocks
from crossrank.align.repair import repair
from crossrank.analysis.bandwidth import speeds
from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.breakdown import breakdown
from crossrank.analysis.critical_path import path_index
from crossrank.analysis.delay_map import delay_map
from crossrank.analysis.excess import work_cells
from crossrank.analysis.lane_work import lane_work
from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.replay import build_replay
from crossrank.analysis.standstill import find_standstill
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers, role_of
from crossrank.analysis.waits import collective_times
from crossrank.model.post import Admitted, Post
from crossrank.model.progress import Progress
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology
from crossrank.model.trace import trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.topology import infer_topology
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate

SLICE = 250_000
FAULTS = (SlowCompute(2, "forward", steps=(2, 8), extra_ns=30_000_000),)


def large(steps: int) -> JobConfig:
    """1,024 ranks, 84 spans a rank and step."""
    return JobConfig(job="large", dp=16, tp=8, pp=8, steps=steps, microbatches=8)


def prepare(config: JobConfig, file: Path) -> None:
    """Aligns a simulated job and writes it down with its topology."""
    trace = trace_from_arrow(simulate(config, FAULTS, seed=1).events, job=config.job, attempt=0)
    matches = match(trace)
    clocks = fit_clocks(trace, matches)
    start = clocks.to_reference(trace.domain, trace.start_ns)
    end = np.where(trace.is_open, start, clocks.to_reference(trace.domain, trace.end_ns))
    order = replay(trace, matches)
    start, end = repair(trace, matches, order, start, end)
    timeline = Timeline(trace, matches, order, clocks, start, end, assign_steps(trace))
    with file.open("wb") as out:
        pickle.dump((timeline, infer_topology(trace, matches, None)), out, protocol=5)


class Meter:
    """CPU seconds of named stages, and the most memory the process had meanwhile."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
        self.before_mb, self.cpu_s = _status_mb("VmRSS"), dict[str, float]()

    def stage(self, name: str, task: Callable[[], Any]) -> Any:
        """Runs a task as a stage."""
        began = time.process_time()
        found = task()
        self.cpu_s[name] = time.process_time() - began
        return found

    @property
    def peak_mb(self) -> float:
        """Peak since the start."""
        return _status_mb("VmHWM")


def _status_mb(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def analyse(timeline: Timeline, shape: Topology, meter: Meter) -> bool:
    """Every analysis, in the order of a derivation; whether the slow rank comes first."""
    stage = meter.stage
    steps = stage("steps", lambda: find_steps(timeline, shape))
    times = stage("waits", lambda: collective_times(timeline))
    work = stage("lane work", lambda: lane_work(timeline))
    graph = stage("replay graph", lambda: build_replay(timeline, work))
    mismatches = stage("mismatches", lambda: find_mismatches(timeline))
    cells = stage("cells", lambda: work_cells(graph, graph.timeline, role_of(shape), steps.step))
    late = stage("stragglers", lambda: find_stragglers(timeline, shape, steps, graph=graph, cells=cells))
    stage("delay map", lambda: delay_map(steps, cells))
    found = stage("bottlenecks", lambda: find_bottlenecks(timeline, shape, steps, late, graph=graph, mismatches=mismatches))
    stage("paths", lambda: path_index(timeline, work))
    nothing = Progress((), np.empty(0, dtype=np.int64), ())
    stage("standstill", lambda: find_standstill(timeline, shape, nothing, mismatches))
    stage("breakdown", lambda: breakdown(timeline, steps, work))
    stage("bandwidth", lambda: speeds(timeline, times))
    return bool(found) and found[0].ranks == (2,)


def measure(small: Path, file: Path, answer: Path) -> None:
    """In a process of its own: warms up on the small job, then measures the large one."""
    with small.open("rb") as stored:
        analyse(*pickle.load(stored), Meter())
    with file.open("rb") as stored:
        timeline, shape = pickle.load(stored)
    meter = Meter()
    right = analyse(timeline, shape, meter)
    answer.write_bytes(pickle.dumps((len(timeline.trace), meter.cpu_s, meter.before_mb, meter.peak_mb, right)))


def analyses(results: Results, steps: int) -> None:
    """CPU and memory of all analyses."""
    with tempfile.TemporaryDirectory(prefix="crossrank-benchmark-") as folder:
        small, file, answer = (Path(folder) / name for name in ("small", "large", "answer"))
        for part, count in ((small, 2), (file, steps)):
            subprocess.run([sys.executable, __file__, "--prepare", str(part), "--steps", str(count)], check=True)
        subprocess.run([sys.executable, __file__, "--measure", str(small), str(file), str(answer)], check=True)
        spans, cpu_s, before_mb, peak_mb, right = pickle.loads(answer.read_bytes())
    results.add("1,024 ranks: spans", spans, "spans")
    for name, seconds in cpu_s.items():
        results.add(f"analyses: {name}", seconds, "CPU s")
    results.add("analyses: all", sum(cpu_s.values()), "CPU s", at_most=15)
    results.add("analyses: the job itself in memory", before_mb, "MB")
    results.add("analyses: peak above it", peak_mb - before_mb, "MB", at_most=3000)
    results.add("analyses: slow rank named first", float(right), "0 or 1", at_least=1)


def fill(data: Path, config: JobConfig) -> None:
    """A data folder with one simulated job."""
    data.mkdir(parents=True)
    store, events = open_big(data), simulate(config, FAULTS, seed=1).events
    for first in range(0, len(events), SLICE):
        part = events.slice(first, SLICE)
        store.append(Post("events", "", "", config.job, config.start_ns, b""), Admitted(part)).result()
        store.seal()
    store.close()


def ask(client: httpx.Client, path: str, **params: object) -> float:
    """Milliseconds until the answer is there."""
    began = time.perf_counter()
    client.get(path, params=params).raise_for_status()  # type: ignore[arg-type]
    return (time.perf_counter() - began) * 1e3


def rest(results: Results) -> None:
    """Questions over loopback HTTP."""
    config = large(12)
    with service(partial(fill, config=config)) as server, httpx.Client(base_url=server.url, timeout=600) as client:
        client.post(f"/v1/jobs/{config.job}/derive?wait=true").raise_for_status()
        times = [ask(client, f"/v1/jobs/{config.job}/steps/{step}/critical-path") for step in [*range(config.steps)] * 3]
        results.add("critical path of a step of 1,024 ranks: first question", times[0], "ms")
        results.add("critical path of a step of 1,024 ranks: p50", percentile(times[1:], 0.5), "ms", at_most=100)
        results.add("critical path of a step of 1,024 ranks: p95", percentile(times[1:], 0.95), "ms", at_most=100)
    config = JobConfig(job="long", dp=8, tp=1, pp=1, steps=1000)
    with service(partial(fill, config=config)) as server, httpx.Client(base_url=server.url, timeout=600) as client:
        client.post(f"/v1/jobs/{config.job}/derive?wait=true").raise_for_status()
        path = f"/v1/jobs/{config.job}/bottlenecks"
        whole = [ask(client, path) for _ in range(10)]
        part = [ask(client, path, **{"from": 1, "to": 998 - n}) for n in range(5)]
        results.add("bottlenecks of 1,000 steps: p95", percentile(whole, 0.95), "ms", at_most=1000)
        results.add("bottlenecks of a part of 1,000 steps: p95", percentile(part, 0.95), "ms", at_most=1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=117)
    parser.add_argument("--only", choices=("analyses", "rest"))
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(large(options.steps), options.prepare)
    elif options.measure is not None:
        measure(*options.measure)
    else:
        results = Results("analyses")
        if options.only != "rest":
            analyses(results, options.steps)
        if options.only != "analyses":
            rest(results)
        results.finish()


if __name__ == "__main__":
    main()
