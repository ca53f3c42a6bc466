"""What the client costs a training process, and the agent a machine. Writes results/client.json.

- A span, alone: the same loop with and without, each pass timed by itself; the pass without (the loop and the two readings of
  the timer) is taken off, round by round. The thread is at work meanwhile, posting to a real service.
- A step: four ranks that compute and meet at a barrier in every step, as an all-reduce makes them, each step with 9 spans. All four
  share one core and the service has another: it has a machine of its own in earnest, and so every microsecond of every client,
  threads included, is one of the step. Blocks of steps with the client and without take turns on all ranks at once, in pairs whose
  order is drawn by a seeded generator; the ratio is the median over the pairs, with its 95 % interval by order statistics, which
  assumes nothing of the noise. Pairs of blocks that are both without the client say what the measurement cannot see.
- The thread: its processor time, which hardly feels what else the machine does; the bound for a step on a core without a gap.
- Memory: what the process holds more at its end than one that did the same without the client.
- The agent: its processor time over some seconds.

    benchmarks/client.py [--pairs 20]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from _interval import interval
from _results import Results
from _service import Service, service

RANKS, STEPS_BEFORE, STEPS_A_BLOCK, WORK_MS = 4, 10, 20, 25.0  # a step of 100 ms on the core of four ranks
ROUNDS, SPANS_A_ROUND = 100, 1000
AGENT_S, THREAD_S = 20.0, 10.0


def hot_path(url: str) -> tuple[float, float]:
    """Median and 99th percentile of a span in nanoseconds, the empty pass taken off at the same rank; the median over the rounds."""
    import crossrank_client as cr

    cr.init(url, "hot", rank=0, spool_dir=tempfile.mkdtemp())
    rounds = []
    for _ in range(ROUNDS):
        empty = _passes(contextlib.nullcontext, SPANS_A_ROUND)
        spanned = _passes(lambda: cr.span("forward"), SPANS_A_ROUND)
        rounds.append([_at(spanned, share) - _at(empty, share) for share in (0.5, 0.99)])
        time.sleep(0.05)
    cr.shutdown()
    mid, high = (median(values) for values in zip(*rounds, strict=True))
    return mid, high


def _passes(context: Callable[[], Any], count: int) -> list[int]:
    took, clock = [], time.perf_counter_ns
    for _ in range(count):
        began = clock()
        with context():
            pass
        took.append(clock() - began)
    return took


def _at(values: list[int], share: float) -> float:
    return float(sorted(values)[min(int(share * len(values)), len(values) - 1)])


def work(rounds: int) -> None:
    """The same computation each time, without letting go of the interpreter."""
    for _ in range(rounds):
        sum(range(200))


def rounds_in(milliseconds: float) -> int:
    """Rounds of `work` that take so long on an idle core."""
    took = []
    for _ in range(20):
        began = time.perf_counter()
        work(500)
        took.append(time.perf_counter() - began)
    return max(1, int(500 * milliseconds / 1e3 / median(took)))


def rank(url: str, number: int, pairs: list[tuple[bool, bool]], meet: Any, rounds: int, out: Any) -> None:
    """One rank: its blocks in pairs; rank 0 tells the time from barrier to barrier, each rank its processor time."""
    import crossrank_client as cr

    def block(spanned: bool) -> tuple[float, float]:
        began = used = 0.0
        if spanned:
            cr.init(url, "steps", rank=number, world_size=RANKS, spool_dir=tempfile.gettempdir())
        meet.wait()
        for n in range(STEPS_BEFORE + STEPS_A_BLOCK):
            if n == STEPS_BEFORE:  # by now the thread posts once a second
                began, used = time.perf_counter(), time.process_time()
            with cr.step(n):
                for name in ("data", "forward", "backward", "optimizer"):
                    with cr.span(name), cr.span("inner"):
                        work(rounds)
                meet.wait()
        took = time.perf_counter() - began, time.process_time() - used
        cr.shutdown()
        meet.wait()
        return took

    block(spanned=True)
    out.put((number, [(block(first), block(second)) for first, second in pairs]))


def step_ratios(running: Service, pairs: int) -> tuple[list[float], list[float], list[float], float]:
    """Ratios with / without of step times, of processor times, and of step times without / without; the shortest step in ms."""
    draw = random.Random(7)
    blocks = []
    for n in range(pairs):
        first = draw.random() < 0.5
        blocks += [(first, not first), (False, False)] if n % 3 == 0 else [(first, not first)]
    cores = sorted(os.sched_getaffinity(0))
    for task in Path(f"/proc/{running.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores[1:] or cores)
    fork = multiprocessing.get_context("fork")
    meet, out, rounds = fork.Barrier(RANKS), fork.Queue(), rounds_in(WORK_MS / 4)
    os.sched_setaffinity(0, cores[:1])
    try:
        ranks = [fork.Process(target=rank, args=(running.url, n, blocks, meet, rounds, out)) for n in range(RANKS)]
        for process in ranks:
            process.start()
        said = dict(out.get(timeout=600) for _ in ranks)
        for process in ranks:
            process.join()
    finally:
        os.sched_setaffinity(0, cores)
    wall = [[took for took, _ in pair] for pair in said[0]]
    used = [[sum(said[n][at][which][1] for n in range(RANKS)) for which in (0, 1)] for at in range(len(blocks))]

    def ratios(times: list[list[float]]) -> list[float]:
        return [t[0] / t[1] if b[0] else t[1] / t[0] for t, b in zip(times, blocks, strict=True) if any(b)]

    nothing = [t[0] / t[1] for t, b in zip(wall, blocks, strict=True) if not any(b)]
    return ratios(wall), ratios(used), nothing, 1e3 * min(map(min, wall)) / STEPS_A_BLOCK


def thread_share(url: str) -> float:
    """Processor time of the client's thread as a share of one core, at 250 spans a second."""
    import crossrank_client as cr

    client = cr.init(url, "thread", rank=0, spool_dir=tempfile.gettempdir())
    assert client is not None
    times = Path(f"/proc/self/task/{client._worker.thread.native_id}/schedstat")  # noqa: SLF001 -- whose time it is
    time.sleep(1.5)
    before, began, n = int(times.read_text().split()[0]), time.monotonic(), 0
    while time.monotonic() - began < THREAD_S:
        with cr.step(n):
            for _ in range(9):
                with cr.span("forward", bytes=n):
                    pass
        n += 1
        time.sleep(max(0.0, began + n * 0.04 - time.monotonic()))
    share = (int(times.read_text().split()[0]) - before) / 1e9 / (time.monotonic() - began)
    cr.shutdown()
    return share


def memory(url: str, spanned: bool) -> None:
    """Prints the resident memory after a second's work, with the client or without."""
    if spanned:
        import crossrank_client as cr

        cr.init(url, "memory", rank=0, spool_dir=tempfile.gettempdir())
        for n in range(100):
            with cr.step(n):
                for _ in range(100):
                    with cr.span("forward", bytes=n):
                        pass
                time.sleep(0.01)
        cr.flush(30)
    print(json.dumps(rss_mb()))


def rss_mb() -> float:
    """Resident memory of this process, MB = 1e6 bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def agent_share(url: str) -> float:
    """Processor time of the agent as a share of one core, after it has started."""
    command = [sys.executable, "-m", "crossrank_client.agent.main", "--url", url, "--job", "agent"]
    process = subprocess.Popen(command)
    time.sleep(3.0)
    before = _cpu_s(process.pid)
    began = time.monotonic()
    time.sleep(AGENT_S)
    share = (_cpu_s(process.pid) - before) / (time.monotonic() - began)
    process.terminate()
    process.wait(10)
    return share


def _cpu_s(pid: int) -> float:
    # Nanoseconds on a processor: the ticks of /proc/PID/stat are too coarse for a process that is hardly ever running.
    return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _said(*words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )


def main() -> int:
    """Runs everything; 0 when all demands hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--as", dest="role", default="")
    parser.add_argument("--url", default="")
    said = parser.parse_args()
    if said.role:
        roles = {"with": lambda: memory(said.url, spanned=True), "without": lambda: memory(said.url, spanned=False)}
        roles[said.role]()
        return 0
    results = Results("client")
    with service() as running:
        mid, high = hot_path(running.url)
        results.add("a span, median", mid / 1e3, "us", at_most=2.0)
        results.add("a span, 99th percentile", high / 1e3, "us", at_most=10.0)
        held = {role: json.loads(_said("--as", role, "--url", running.url).communicate()[0]) for role in ("without", "with")}
        results.add("memory the client adds", held["with"] - held["without"], "MB", at_most=20.0)
        results.add("processor time of the client's thread, 250 spans a second", 100 * thread_share(running.url), "% of a core")
        ratios, used, nothing, shortest = step_ratios(running, said.pairs)
        what = f"with / without, {RANKS} ranks on one core, median of {len(ratios)} pairs"
        results.add(f"step time {what}", median(ratios), "", at_most=1.01)
        low, high = interval(ratios)
        results.add("... 95 % interval of that median, from", low, "")
        results.add("... to", high, "")
        results.add(f"step time without / without, median of {len(nothing)} pairs", median(nothing), "")
        results.add(f"processor time {what}", median(used), "")
        results.add("shortest step without", shortest, "ms")
        results.add("processor time of the agent", 100 * agent_share(running.url), "% of a core", at_most=0.5)
    return 0 if results.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
