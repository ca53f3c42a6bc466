"""Server-sent events of a real service: news after a post, an end when the service stops, a bound on streams."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from crossrank.auth.tokens import create_token
from tests.support.server import Service

STOP_TAKING_S = 1.0
NDJSON = {"Content-Type": "application/x-ndjson"}


def step(job: str, number: int) -> bytes:
    begin = 1_780_000_000_000_000_000 + number * 1_000_000
    row = {"job": job, "rank": 0, "name": "step", "kind": "step", "step": number, "start_ns": begin, "end_ns": begin + 900_000}
    return json.dumps({**row, "span_id": f"{number + 1:016x}"}).encode()


def messages(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    event = ""
    for line in lines:
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            yield event, json.loads(line[6:])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "data") as running:
        yield running


def test_a_post_is_told_to_who_follows_the_job_and_the_list(service):
    with service.client() as client:
        client.post("/v1/events", content=step("a", 0), headers=NDJSON).raise_for_status()
        with client.stream("GET", "/v1/jobs/a/live") as of_job, client.stream("GET", "/v1/live") as of_list:
            assert of_job.headers["content-type"].startswith("text/event-stream")
            job_news, list_news = messages(of_job.iter_lines()), messages(of_list.iter_lines())
            name, first = next(job_news)
            assert (name, first["steps"]) == ("job", 1)
            assert next(list_news)[1]["jobs"] == 1
            client.post("/v1/events", content=step("a", 1), headers=NDJSON).raise_for_status()
            name, second = next(job_news)
            assert (second["steps"], second["last_step"]) == (2, 1)
            assert second["version"] > first["version"]
            client.post("/v1/events", content=step("b", 0), headers=NDJSON).raise_for_status()
            assert any("b" in {c["job"] for c in news["changed"]} for _, news in list_news)
        assert client.get("/v1/jobs/none/live").status_code == 404


def test_stopping_ends_many_streams_and_nothing_new_is_taken_within_a_second(service):
    """Open streams do not keep the door open: from the signal on, no connection is taken for longer than a second."""
    with service.client() as client:
        client.post("/v1/events", content=step("a", 0), headers=NDJSON).raise_for_status()
        streams = [client.send(client.build_request("GET", path), stream=True) for path in ("/v1/jobs/a/live", "/v1/live") * 16]
        lines = [stream.iter_lines() for stream in streams]
        for told in lines:
            next(messages(told))
        address = urlsplit(service.url)
        began = time.monotonic()
        os.kill(service.pid, signal.SIGTERM)
        while time.monotonic() - began < STOP_TAKING_S:
            with contextlib.suppress(OSError):
                socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=1).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=1)
        for told in lines:
            for _ in told:
                pass  # until the service ends the stream
        assert service.stop() == 0
        print(f"the process ended {time.monotonic() - began:.2f} s after the signal, with {len(streams)} streams open")
        assert time.monotonic() - began < 12  # not the 15 s that a drain waits for work in hand


def test_one_stream_too_many_is_told_to_come_again_and_a_place_is_given_back(tmp_path):
    with Service(tmp_path / "data") as service, service.client() as client:
        streams = [client.send(client.build_request("GET", "/v1/live"), stream=True) for _ in range(64)]
        assert {s.status_code for s in streams} == {200}
        refused = client.get("/v1/live")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        for stream in streams:
            stream.close()
        deadline = time.monotonic() + 20
        while True:
            with client.stream("GET", "/v1/live") as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < deadline


def test_a_token_for_one_job_hears_of_no_other(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    admin = create_token(folder, "admin", None, 0)[1]
    reader = create_token(folder, "read", "a", 0)[1]
    with Service(folder) as service, service.client() as client:
        for job in ("a", "b"):
            head = {**NDJSON, "Authorization": f"Bearer {admin}"}
            client.post("/v1/events", content=step(job, 0), headers=head).raise_for_status()
        assert client.get("/v1/live").status_code == 401
        mine = {"Authorization": f"Bearer {reader}"}
        with client.stream("GET", "/v1/live", headers=mine) as stream:
            _, news = next(messages(stream.iter_lines()))
            assert (news["jobs"], {c["job"] for c in news["changed"]}) == (1, {"a"})
        assert client.get("/v1/jobs/b/live", headers=mine).status_code == 404
        with pytest.raises(httpx.ReadTimeout), client.stream("GET", "/v1/jobs/a/live", headers=mine, timeout=1.5) as quiet:
            list(quiet.iter_lines())
