"""How answers travel and which job an address means: gzip for who takes it, and names of jobs that look like questions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from crossrank.api.reply import SQUEEZED_BYTES, takes_gzip
from crossrank.commands.source import job_path
from tests.support.inprocess import InProcess
from tests.support.server import Service, derived

NDJSON = "application/x-ndjson"
NAMES = ["a", "a/live", "a/figures", "a/figures/steps", "a/steps/3/critical-path", "a/timeline", "ü/%2F?#/export", "/", "//x/"]


def lines(job: str, steps: int) -> bytes:
    rows = []
    for step in range(steps):
        begin = 1_780_000_000_000_000_000 + step * 1_000_000
        row = {"job": job, "rank": 0, "name": "step", "kind": "step", "step": step, "start_ns": begin, "end_ns": begin + 900_000}
        rows.append(json.dumps({**row, "span_id": f"{step + 1:016x}"}))
    return "\n".join(rows).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory):
    with InProcess(tmp_path_factory.mktemp("reply") / "data") as running:
        for place, name in enumerate(NAMES):
            running.post("/v1/events", lines(name, place + 1), NDJSON)
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_an_encoded_name_is_that_job_whatever_it_ends_in(service, name):
    steps = NAMES.index(name) + 1
    assert service.get(job_path(name))["steps"]["count"] == steps
    assert len(service.get(job_path(name, "steps"))["steps"]) == steps
    assert service.get(job_path(name, "figures/steps"))["data"][0]["x"] == list(range(steps))
    assert service.request("GET", job_path(name, "live")).headers["content-type"].startswith("text/event-stream")


def test_plain_slashes_are_read_as_the_longest_question(service):
    assert service.request("GET", "/v1/jobs/a/live").headers["content-type"].startswith("text/event-stream")
    assert len(service.get("/v1/jobs/a/figures/steps")["data"][0]["x"]) == 1, "the figure of a, not the steps of a/figures"
    assert len(service.get("/v1/jobs/a/figures/steps/steps")["steps"]) == NAMES.index("a/figures/steps") + 1


def test_a_name_is_deleted_as_it_is_written(tmp_path: Path):
    with InProcess(tmp_path / "data") as service:
        for name in ("a", "a/live"):
            service.post("/v1/events", lines(name, 1), NDJSON)
        assert service.request("DELETE", job_path("a/live")).json() == {"deleted": "a/live"}
        assert [job["job"] for job in service.get("/v1/jobs")["jobs"]] == ["a"]


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        ("gzip", True), ("GZip;q=0.5, br", True), ("br;q=1.0, *;q=0.1", True), ("deflate, gzip; q=1", True), ("", False), ("br", False),
        ("gzip;q=0", False), ("gzip; q=0.000, *", False), ("*;q=0", False), ("xgzip", False),
    ],
)  # fmt: skip
def test_who_takes_gzip(header, takes):
    assert takes_gzip(header) is takes


def test_answers_of_some_size_are_compressed_for_who_takes_it(tmp_path: Path):
    """On the wire, by a real service: large answers, not small ones, not streams, not exports; ingest as it was."""
    with Service(tmp_path / "data") as running, running.client() as client:
        plain, squeezed = {"Accept-Encoding": "identity"}, {"Accept-Encoding": "gzip"}
        taken = client.post("/v1/events", content=lines("big", 400), headers={"Content-Type": NDJSON, **squeezed})
        assert "content-encoding" not in taken.headers
        assert taken.json().get("accepted") == 400, taken.text
        derived(client, "big")
        for path, parameters in (
            ("/v1/jobs/big/steps", {}),
            ("/v1/jobs/big/timeline", {"width": 4000}),
            ("/v1/jobs/big/events", {}),
        ):
            whole = client.get(path, params=parameters, headers=plain)
            assert "content-encoding" not in whole.headers
            assert whole.headers["vary"] == "Accept-Encoding"
            with client.stream("GET", path, params=parameters, headers=squeezed) as answer:
                raw = b"".join(answer.iter_raw())
            assert answer.headers["content-encoding"] == "gzip"
            assert int(answer.headers["content-length"]) == len(raw) < len(whole.content) / 2
            assert gzip.decompress(raw) == whole.content
        small = client.get("/v1/jobs", headers=squeezed)
        assert len(small.content) < SQUEEZED_BYTES
        assert "content-encoding" not in small.headers
        export = client.get("/v1/jobs/big/export", params={"format": "perfetto"}, headers=squeezed)
        assert "content-encoding" not in export.headers
        with client.stream("GET", f"/v1/jobs/{quote('big')}/live", headers=squeezed) as stream:
            assert "content-encoding" not in stream.headers
            assert next(stream.iter_lines()).startswith("id: ")
        head: httpx.Response = client.head("/v1/jobs/big/steps", headers=squeezed)
        assert head.status_code in (200, 405)
