"""Whatever happens to the collector, training goes on as fast, nothing is raised, and what was kept arrives exactly once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import httpx
import pytest

import crossrank_client as cr
from tests.support.server import Service
from tests.support.stub_service import Reply, Request, Stub, stub_service

RANKS = 2


class Job:
    """Rank processes of tests/support/client_rank.py, and beside them one that trains without the client."""

    def __init__(self, url: str, spool: Path, seconds: float, *words: str, name: str = "job") -> None:
        self._command = [sys.executable, "-m", "tests.support.client_rank", url, str(spool), str(seconds), *words]
        self._name = name
        self._ranks = [self._started(rank) for rank in range(RANKS)]
        self._plain = self._started(RANKS, "none")

    def _started(self, rank: int, *words: str) -> subprocess.Popen[str]:
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "CROSSRANK_JOB": self._name}
        pipe = subprocess.PIPE
        return subprocess.Popen([*self._command, *words], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def said(self) -> list[dict]:
        """What the ranks say at their end; nothing on stderr, no fault, no thread left, and steps as long as without the client."""
        self.tell()
        *found, plain = (self._ended(process) for process in (*self._ranks, self._plain))
        for said in found:
            assert said["threads"] == 1
            assert said["stats"]["faults"] == 0, said["stats"]
        _as_fast([ms for said in found for ms in said["took_ms"]], plain["took_ms"])
        return found

    def tell(self) -> None:
        """Those that were told to train on until a line comes get it."""
        for process in (*self._ranks, self._plain):
            assert process.stdin is not None
            if not process.stdin.closed:
                with suppress(BrokenPipeError):  # it has ended, and did not wait for one
                    process.stdin.write("enough\n")
                    process.stdin.flush()

    def _ended(self, process: subprocess.Popen[str]) -> dict:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        return json.loads(out)


def _as_fast(with_client: list[float], without: list[float]) -> None:
    """Prints step times; only a gross difference fails, as a post waited for would make. Finer is benchmarks/client.py."""
    mid, plain = median(with_client), median(without)
    print(f"step: {mid:.2f} ms with the client, {plain:.2f} ms without; longest {max(with_client):.0f} and {max(without):.0f} ms")
    assert mid < 3 * plain


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def steps_in(url: str, job: str) -> Counter[tuple[int, int]]:
    """How often each (rank, step) is in the service."""
    found: Counter[tuple[int, int]] = Counter()
    params: dict[str, object] = {"kind": "step", "limit": 5000}
    with httpx.Client(base_url=url, timeout=60) as client:
        while True:
            answer = client.get(f"/v1/jobs/{job}/events", params=params).raise_for_status().json()
            found.update((event["rank"], event["step"]) for event in answer["events"])
            if not answer["next_cursor"]:
                return found
            params["cursor"] = answer["next_cursor"]


def all_once(said: list[dict]) -> Counter[tuple[int, int]]:
    return Counter((rank, step) for rank, one in enumerate(said) for step in range(one["steps"]))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("data"), "--port", str(free_port())) as started:
        yield started


@pytest.fixture(scope="module", params=[2.5, pytest.param(30.0, marks=pytest.mark.long)])
def outage(request: pytest.FixtureRequest, service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """What the ranks of two jobs said that lived through one outage of their service; the disk of one job takes nothing."""
    spool = tmp_path_factory.mktemp("spool")
    jobs = {
        "whole": Job(service.url, spool, 0.0, "told", name="whole"),
        "full": Job(service.url, spool, 0.0, "told", "full", "little", name="full"),
    }
    deadline = time.monotonic() + 60
    while not set(jobs) <= {card["job"] for card in httpx.get(f"{service.url}/v1/jobs", timeout=30).json()["jobs"]}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    service.kill()
    threading.Event().wait(request.param)  # the outage itself
    service.start()
    for job in jobs.values():
        job.tell()
    return {name: job.said() for name, job in jobs.items()}


def test_a_killed_service_gets_everything_once_when_it_is_back(outage: dict[str, list[dict]], service: Service):
    said = outage["whole"]
    assert all(one["flushed"] for one in said)
    assert steps_in(service.url, "whole") == all_once(said)
    assert [one["stats"]["dropped"] for one in said] == [{}, {}]
    assert all(one["stats"]["retries"] for one in said)


def test_a_full_disk_costs_the_oldest_and_says_so(outage: dict[str, list[dict]], service: Service):
    said = outage["full"]
    stored = steps_in(service.url, "full")
    assert set(stored.values()) == {1}
    assert set(stored) < set(all_once(said)), "what was dropped is missing, what was kept is there once"
    for rank, one in enumerate(said):
        assert one["stats"]["dropped"]["backlog_full"] > 0
        assert one["stats"]["disk_faults"] > 0
        params = {"rank": rank, "kind": "metric", "limit": 1000}
        events = httpx.get(f"{service.url}/v1/jobs/full/events", params=params, timeout=30).json()["events"]
        told = [e["value"] for e in events if e["name"] == "client.dropped"]
        assert max(told) == one["stats"]["dropped"]["backlog_full"]


def test_what_a_job_could_not_send_is_sent_by_the_next_one(service: Service, tmp_path: Path):
    first = Job(f"http://127.0.0.1:{free_port()}", tmp_path, 1.2, "away", name="next").said()
    assert all(one["shutdown_s"] <= 2.1 for one in first)
    assert list(tmp_path.rglob("*-*.*"))
    with cr.Client(service.url, "next", rank=7, host="h", spool_dir=tmp_path) as second:
        assert second.flush(30), second.stats()
    assert steps_in(service.url, "next") == all_once(first)
    assert list(tmp_path.rglob("*-*.*")) == []


def test_an_overloaded_service_is_asked_again_when_it_said(tmp_path: Path):
    times: list[float] = []

    def busy(request: Request) -> Reply:
        if request.path != "/v1/events":
            return Reply({"world_size": 2, "ranks": 0, "groups": 0})
        times.append(time.monotonic())
        if len(times) <= 2:
            return Reply({"error": {"code": "overloaded"}}, 503, {"retry-after": "1"})
        return taking(request)

    with stub_service(busy) as stub:
        said = Job(stub.url, tmp_path, 1.2).said()
        lines = lines_of(stub)
    unique = {(e["rank"], e["span_id"]): e for e in lines}
    steps = Counter((e["rank"], e["step"]) for e in unique.values() if e.get("kind") == "step")
    assert steps == all_once(said)
    assert len(lines) > len(unique), "the same batch came again with the same ids"


@pytest.mark.parametrize(("answer_s", "seconds"), [(0.5, 1.5), pytest.param(2.0, 20.0, marks=pytest.mark.long)])
def test_a_slow_service_slows_nobody(tmp_path: Path, answer_s: float, seconds: float):
    def slow(request: Request) -> Reply:
        threading.Event().wait(answer_s / RANKS)  # the stub answers one at a time
        return taking(request)

    with stub_service(slow) as stub:
        said = Job(stub.url, tmp_path, seconds).said()
        lines = lines_of(stub)
    assert Counter((e["rank"], e["step"]) for e in lines if e.get("kind") == "step") == all_once(said)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 301])
def test_a_refusal_is_final_and_counted(tmp_path: Path, status: int):
    with (
        stub_service(lambda _: Reply({"error": {}}, status)) as stub,
        cr.Client(stub.url, "job", rank=0, host="h", spool_dir=tmp_path) as client,
    ):
        for n in range(100):
            client.mark("m", n=n)
        assert client.flush(30)
        assert client.stats()["retries"] == 0
        assert client.stats()["dropped"]["refused"] >= 100


def taking(request: Request) -> Reply:
    return Reply({"accepted": request.body.count(b"\n"), "duplicate": 0, "rejected": 0})


def lines_of(stub: Stub) -> list[dict]:
    return [json.loads(line) for r in stub.posted() if r.path == "/v1/events" for line in r.body.splitlines()]
