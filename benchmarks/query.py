"""How fast a real service answers its questions, over loopback HTTP, with one simulated job in it.

Questions take turns on one keep-alive connection; figures are the median (p50) and the 90th percentile of their wall times. The
export, which moves the whole job, is asked in every tenth round only.

    python benchmarks/query.py [--rounds N]
"""

from __future__ import annotations

import argparse
import gzip
import time

import httpx
from _measure import percentile
from _results import Results
from _service import Service, service

from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import deliver
from crossrank.simulate.encode import NDJSON_TYPE, ndjson
from crossrank.simulate.faults import SlowCompute, SlowLoader
from crossrank.simulate.job import Simulated, simulate

FAULTS = (SlowCompute(2, "forward", steps=(5, 9), extra_ns=30_000_000), SlowLoader(40, steps=(20, 24)))
QUESTIONS = {
    "jobs": "/v1/jobs",
    "summary": "/v1/jobs/{job}",
    "clocks": "/v1/jobs/{job}/clocks",
    "steps": "/v1/jobs/{job}/steps",
    "critical path": "/v1/jobs/{job}/steps/7/critical-path",
    "collectives of a step": "/v1/jobs/{job}/collectives?step=7",
    "stragglers": "/v1/jobs/{job}/stragglers",
    "bottlenecks": "/v1/jobs/{job}/bottlenecks",
    "events of a rank and step": "/v1/jobs/{job}/events?rank=2&step=7",
    "events, a page of 1000": "/v1/jobs/{job}/events?limit=1000",
    "healthz": "/healthz",
}
RARE_QUESTIONS = {"export as Parquet": "/v1/jobs/{job}/export?format=parquet"}


def post_all(client: httpx.Client, job: Simulated) -> None:
    """Posts a whole job and waits until it is derived."""
    for batch in deliver(job):
        body = gzip.compress(ndjson(batch.events), 1)
        client.post(
            "/v1/events", content=body, headers={"Content-Type": NDJSON_TYPE, "Content-Encoding": "gzip"}
        ).raise_for_status()
    client.post(f"/v1/jobs/{job.config.job}/derive?wait=true").raise_for_status()


def ask_all(client: httpx.Client, job: str, rounds: int) -> dict[str, list[float]]:
    """Wall milliseconds of every question, asked in turn. A question that the service does not know is left out."""
    times: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        asked = QUESTIONS if number % 10 else {**QUESTIONS, **RARE_QUESTIONS}
        for name, path in asked.items():
            began = time.perf_counter()
            answer = client.get(path.format(job=job))
            took = (time.perf_counter() - began) * 1e3
            if answer.status_code == 404:
                continue
            answer.raise_for_status()
            if number > 0:  # the first round warms caches
                times.setdefault(name, []).append(took)
    return times


def measure(server: Service, job: Simulated, rounds: int, results: Results) -> None:
    with httpx.Client(base_url=server.url, timeout=300) as client:
        began = time.perf_counter()
        post_all(client, job)
        results.add("posting the job until everything is derived", time.perf_counter() - began, "s")
        began = time.perf_counter()
        client.post(f"/v1/jobs/{job.config.job}/derive?wait=true").raise_for_status()
        results.add("derive?wait=true with nothing new", (time.perf_counter() - began) * 1e3, "ms")
        for name, times in ask_all(client, job.config.job, rounds).items():
            results.add(f"{name}: p50", percentile(times, 0.5), "ms")
            results.add(f"{name}: p90", percentile(times, 0.9), "ms")
        results.add("resident memory of the service", server.rss_mb(), "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    job = simulate(JobConfig(steps=40), FAULTS, seed=1)
    results = Results("query")
    results.add("spans in the job (64 ranks x 40 steps)", len(job.events), "spans")
    with service() as server:
        measure(server, job, options.rounds, results)
    results.finish()


if __name__ == "__main__":
    main()
