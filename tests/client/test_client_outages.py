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
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
import pytest

from tests.support.server import Service
from tests.support.stub_service import Reply, Request, stub_service

RANKS = 2


class Job:
    """Rank processes of tests/support/client_rank.py, and beside them one that trains without the client."""

    def __init__(self, url: str, spool: Path, seconds: float, *words: str) -> None:
        self._command = [sys.executable, "-m", "tests.support.client_rank", url, str(spool), str(seconds), *words]
        self._ranks = [self._started(rank) for rank in range(RANKS)]
        self._plain = self._started(RANKS, "none")

    def _started(self, rank: int, *words: str) -> subprocess.Popen[str]:
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        pipe = subprocess.PIPE
        return subprocess.Popen([*self._command, *words], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def said(self) -> list[dict]:
        """What the ranks say at their end; nothing on stderr, no fault, no thread left, and steps as long as without the client."""
        *found, plain = (self._ended(process) for process in (*self._ranks, self._plain))
        for said in found:
            assert said["threads"] == 1
            assert said["stats"]["faults"] == 0, said["stats"]
        _as_fast([ms for said in found for ms in said["took_ms"]], plain["took_ms"])
        return found

    def _ended(self, process: subprocess.Popen[str]) -> dict:
        out, err = process.communicate("enough\n", timeout=120)
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


def steps_in(url: str, job: str = "job") -> Counter[tuple[int, int]]:
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


@contextmanager
def outage(tmp_path: Path, away: float, *words: str) -> Iterator[tuple[str, list[dict]]]:
    """A job through an outage of its service: the address of the service that is back, and what the ranks said."""
    with Service(tmp_path / "data", "--port", str(free_port())) as service:
        job = Job(service.url, tmp_path / "spool", 0.0, "told", *words)
        deadline = time.monotonic() + 60
        while not _has_events(service.url):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        service.kill()
        threading.Event().wait(away)  # the outage itself
        service.start()
        yield service.url, job.said()


def _has_events(url: str) -> bool:
    return bool(httpx.get(f"{url}/v1/jobs", timeout=30).json()["jobs"])


@pytest.mark.parametrize("away", [2.0, pytest.param(30.0, marks=pytest.mark.long)])
def test_a_killed_service_gets_everything_once_when_it_is_back(tmp_path: Path, away: float):
    with outage(tmp_path, away) as (url, said):
        assert all(one["flushed"] for one in said)
        assert steps_in(url) == all_once(said)
        assert [one["stats"]["dropped"] for one in said] == [{}, {}]
        assert all(one["stats"]["retries"] for one in said)


def test_a_full_disk_costs_the_oldest_and_says_so(tmp_path: Path):
    with outage(tmp_path, 4.0, "full", "little") as (url, said):
        stored = steps_in(url)
        assert set(stored.values()) == {1}
        assert set(stored) < set(all_once(said)), "what was dropped is missing, what was kept is there once"
        for rank, one in enumerate(said):
            assert one["stats"]["dropped"]["backlog_full"] > 0
            assert one["stats"]["disk_faults"] > 0
            params = {"rank": rank, "kind": "metric", "limit": 1000}
            events = httpx.get(f"{url}/v1/jobs/job/events", params=params, timeout=30).json()["events"]
            told = [e["value"] for e in events if e["name"] == "client.dropped"]
            assert max(told) == one["stats"]["dropped"]["backlog_full"]


def test_what_a_job_could_not_send_is_sent_by_the_next_one(tmp_path: Path):
    port = free_port()
    first = Job(f"http://127.0.0.1:{port}", tmp_path / "spool", 1.5, "away").said()
    assert all(one["shutdown_s"] <= 2.1 for one in first)
    assert list((tmp_path / "spool").rglob("*-*.*"))
    with Service(tmp_path / "data", "--port", str(port)) as service:
        env = dict(os.environ)
        env.pop("RANK", None)
        script = (
            "import sys, crossrank_client as cr\n"
            "cr.init(sys.argv[1], 'job', rank=7, spool_dir=sys.argv[2])\n"
            "assert cr.flush(20), cr.stats()\n"
        )
        subprocess.run([sys.executable, "-c", script, service.url, str(tmp_path / "spool")], check=True, env=env, timeout=60)
        assert steps_in(service.url) == all_once(first)
    assert list((tmp_path / "spool").rglob("*-*.*")) == []


def test_an_overloaded_service_is_asked_again_when_it_said(tmp_path: Path):
    times: list[float] = []

    def busy(request: Request) -> Reply:
        if request.path != "/v1/events":
            return Reply({"world_size": 2, "ranks": 0, "groups": 0})
        times.append(time.monotonic())
        if len(times) <= 3:
            return Reply({"error": {"code": "overloaded"}}, 503, {"retry-after": "1"})
        return Reply({"accepted": request.body.count(b"\n"), "duplicate": 0, "rejected": 0})

    with stub_service(busy) as stub:
        said = Job(stub.url, tmp_path / "spool", 2.0).said()
        lines = [json.loads(line) for r in stub.posted() if r.path == "/v1/events" for line in r.body.splitlines()]
    unique = {(e["rank"], e["span_id"]): e for e in lines}
    steps = Counter((e["rank"], e["step"]) for e in unique.values() if e.get("kind") == "step")
    assert steps == all_once(said)
    assert len(lines) > len(unique), "the same batch came again with the same ids"


def test_a_slow_service_slows_nobody(tmp_path: Path):
    def slow(request: Request) -> Reply:
        threading.Event().wait(1.0)  # the stub answers one at a time: each of two ranks waits 2 s
        return Reply({"accepted": request.body.count(b"\n"), "duplicate": 0, "rejected": 0})

    with stub_service(slow) as stub:
        said = Job(stub.url, tmp_path / "spool", 4.0).said()
        lines = [json.loads(line) for r in stub.posted() if r.path == "/v1/events" for line in r.body.splitlines()]
    assert Counter((e["rank"], e["step"]) for e in lines if e.get("kind") == "step") == all_once(said)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 301])
def test_a_refusal_is_final_and_counted(tmp_path: Path, status: int):
    with stub_service(lambda _: Reply({"error": {}}, status)) as stub:
        said = Job(stub.url, tmp_path / "spool", 0.3).said()
    for one in said:
        assert one["stats"]["retries"] == 0
        assert one["stats"]["dropped"]["refused"] >= 6 * one["steps"]
