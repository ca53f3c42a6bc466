"""What the client costs a training process, and the agent a machine. Writes results/client.json.

- A span, alone: the same loop with and without, each pass timed by itself; the pass without (the loop and the two readings of
  the timer) is taken off, round by round. The thread is at work meanwhile, posting to a real service.
- A step: four rank processes of a job that computes, each step with 8 spans. Blocks of steps with the client and without take
  turns in the same process, so that whatever else the machine does meets both; the ratio is the median over the pairs. Processor
  time of the whole process, threads included, is compared the same way: it hardly feels what else runs on the machine.
- Memory: what the process holds more at its end than one that did the same without the client.
- The agent: its processor time over some seconds.

    benchmarks/client.py [--pairs 20]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from _results import Results
from _service import service

RANKS, STEPS_A_BLOCK, WORK_MS = 4, 25, 20.0
ROUNDS, SPANS_A_ROUND = 100, 1000
AGENT_S = 20.0


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


def work(milliseconds: float) -> None:
    """Computes, without letting go of the interpreter."""
    until = time.thread_time_ns() + int(milliseconds * 1e6)
    while time.thread_time_ns() < until:
        sum(range(200))


def rank(url: str, pairs: int) -> None:
    """One rank: prints its block times in pairs, and its memory."""
    import crossrank_client as cr

    def block(spanned: bool) -> tuple[float, float]:
        if spanned:
            cr.init(url, "steps", spool_dir=tempfile.gettempdir())
            time.sleep(0.2)
        began, used = time.perf_counter(), time.process_time()
        for n in range(STEPS_A_BLOCK):
            with cr.step(n):
                for name in ("data", "forward", "backward", "optimizer"):
                    with cr.span(name), cr.span("inner"):
                        work(WORK_MS / 4)
        took = time.perf_counter() - began, time.process_time() - used
        cr.shutdown()
        return took

    with_client, without = [], []
    block(spanned=False)
    for pair in range(pairs):
        order = (True, False) if pair % 2 else (False, True)
        for spanned in order:
            (with_client if spanned else without).append(block(spanned))
    print(json.dumps({"with": with_client, "without": without}))


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
        roles = {"rank": lambda: rank(said.url, said.pairs)}
        roles |= {"with": lambda: memory(said.url, spanned=True), "without": lambda: memory(said.url, spanned=False)}
        roles[said.role]()
        return 0
    results = Results("client")
    with service() as running:
        mid, high = hot_path(running.url)
        results.add("a span, median", mid / 1e3, "us", at_most=2.0)
        results.add("a span, 99th percentile", high / 1e3, "us", at_most=10.0)
        held = {role: json.loads(_said("--as", role, "--url", running.url).communicate()[0]) for role in ("without", "with")}
        results.add("memory the client adds", held["with"] - held["without"], "MB", at_most=20.0)
        envs = [{"RANK": str(r), "WORLD_SIZE": str(RANKS)} for r in range(RANKS)]
        ranks = [_said("--as", "rank", "--url", running.url, "--pairs", str(said.pairs), env=env) for env in envs]
        blocks = [json.loads(process.communicate()[0]) for process in ranks]
        pairs = [pair for one in blocks for pair in zip(one["with"], one["without"], strict=True)]
        what = f"with / without, {RANKS} ranks, median of {said.pairs} pairs each"
        results.add(f"step time {what}", median(a[0] / b[0] for a, b in pairs), "", at_most=1.01)
        results.add(f"processor time {what}", median(a[1] / b[1] for a, b in pairs), "")
        shortest = min(b[0] for _, b in pairs) / STEPS_A_BLOCK * 1e3
        results.add("shortest step without", shortest, "ms")
        results.add("processor time of the agent", 100 * agent_share(running.url), "% of a core", at_most=0.5)
    return 0 if results.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
