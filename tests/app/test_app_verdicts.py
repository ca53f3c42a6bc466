"""Verdicts over HTTP while the job hangs: posted as it runs, asked while nothing new comes."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crossrank.app import build_api
from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import Delivery, deliver
from crossrank.simulate.encode import ndjson
from crossrank.simulate.faults import Hang
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

SECOND = 1_000_000_000


class Clock:
    """A wall clock that the test moves."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


def with_clock(service: InProcess, clock: Clock) -> InProcess:
    """The same service by another wall clock."""
    service.rooms = replace(service.rooms, wall_ns=clock, listening_since_ns=0)
    service.api = build_api(service.rooms)
    return service


@pytest.fixture(scope="module")
def recorded(recordings: Path, tmp_path_factory: pytest.TempPathFactory):
    """The recording of a job in which rank 1 stays away, posted as it is and asked a minute later."""
    with InProcess(tmp_path_factory.mktemp("verdicts") / "data") as service:
        clock = Clock(service.rooms.wall_ns())
        with_clock(service, clock)
        for file in sorted((recordings / "gloo" / "hang_ddp_w4" / "events").iterdir()):
            service.post("/v1/events", gzip.decompress(file.read_bytes()), "application/x-ndjson")
        service.derive("hang_ddp_w4")
        clock.now_ns += 60 * SECOND
        yield service


def test_answers_have_their_shape_and_agree(recorded: InProcess):
    hang = recorded.get("/v1/jobs/hang_ddp_w4/hangs")
    assert hang["hung"]
    assert [(c["rank"], c["reason"]) for c in hang["culprits"]] == [(1, "not_entered")]
    assert sorted(w["rank"] for w in hang["waiting"]) == [0, 2, 3]
    assert {"complete_to_ns", "alignment", "dropped", "truncated"} <= hang.keys()
    first = recorded.get("/v1/jobs/hang_ddp_w4/bottlenecks")["findings"][0]
    assert (first["class"], first["ranks"], first["sentence"]) == ("hang", [1], hang["sentence"])
    assert recorded.get("/v1/jobs/hang_ddp_w4")["findings"][0]["class"] == "hang"
    assert recorded.get("/v1/jobs/hang_ddp_w4/mismatches")["mismatches"] == []


def test_ranks_and_topology(recorded: InProcess):
    ranks = recorded.get("/v1/jobs/hang_ddp_w4/ranks")
    assert [r["rank"] for r in ranks["ranks"]] == [0, 1, 2, 3]
    assert all(r["waits_suffered_ns"] > 0 and r["phases_ns"]["compute"] > 0 for r in ranks["ranks"])
    short = recorded.get("/v1/jobs/hang_ddp_w4/ranks", limit=1)
    assert (len(short["ranks"]), short["truncated"], short["total"]) == (1, True, 4)
    shape = recorded.get("/v1/jobs/hang_ddp_w4/topology")
    assert shape["world_size"] == 4
    assert shape["groups"] == [{"name": "world", "kind": "world", "ranks": [0, 1, 2, 3], "hosts": 2, "scope": "inter_host"}]


def test_causality(recorded: InProcess):
    events = recorded.get("/v1/jobs/hang_ddp_w4/events", kind="collective", limit=1000)["events"]
    first = next(e for e in events if e["rank"] == 0 and e["seq"] == 5)
    later = next(e for e in events if e["rank"] == 2 and e["seq"] == 12)
    names = {which: f"{e['rank']}:{e['span_id']}" for which, e in (("a", first), ("b", later))}
    forward = recorded.get("/v1/jobs/hang_ddp_w4/causality", **names)
    assert forward["relation"] == "before"
    assert (forward["path"][0], forward["path"][-1]) == (first["span_id"], later["span_id"])
    assert recorded.get("/v1/jobs/hang_ddp_w4/causality", a=names["b"], b=names["a"])["relation"] == "after"


@pytest.mark.parametrize(
    ("a", "status"),
    [
        ("", 400),
        ("12", 400),
        ("zz00000000000000", 400),
        ("x:0000000000000001", 400),
        ("00000000000000ff", 404),
        ("9" * 30 + ":" + "0" * 16, 404),
    ],
)
def test_spans_that_are_none(recorded: InProcess, a: str, status: int):
    answer = recorded.request("GET", "/v1/jobs/hang_ddp_w4/causality", params={"a": a, "b": "0:0000000000000001"})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["detail"]["field"] == "a"


def test_the_verdict_comes_while_the_job_hangs_without_any_new_event(tmp_path: Path):
    job = simulate(JobConfig(job="live", dp=4, tp=2, pp=2, steps=6, microbatches=2), (Hang(5, 4, "forward"),), seed=3)
    batches = deliver(job, Delivery(every_ns=SECOND // 4))
    with InProcess(tmp_path / "data") as service:
        clock = Clock(job.config.start_ns)
        with_clock(service, clock)
        for batch in batches:
            clock.now_ns = job.config.start_ns + batch.available_ns
            service.post("/v1/events", ndjson(batch.events), "application/x-ndjson")
        service.derive("live")
        at_once = service.get("/v1/jobs/live/hangs")
        assert not at_once["hung"]
        assert at_once["waiting"]
        clock.now_ns += at_once["threshold_ns"] + 1
        hang = service.get("/v1/jobs/live/hangs")
        assert hang["hung"]
        assert [(c["rank"], c["reason"]) for c in hang["culprits"]] == [(5, "not_entered")]
        assert at_once["threshold_ns"] < 10 * SECOND
        assert service.get("/v1/jobs/live/bottlenecks")["findings"][0]["class"] == "hang"


def test_dumps_posted_as_files_name_who_stopped(recordings: Path, tmp_path: Path):
    folder = recordings / "flight_recorder" / "gpu_error_2nd"
    if not folder.is_dir():
        pytest.skip("dumps are not in the committed sample")
    with InProcess(tmp_path / "data") as service:
        for file in folder.glob("_dump_*"):
            rank: dict[str, Any] = {"rank": int(file.name.rpartition("_")[2])}
            service.post("/v1/import", file.read_bytes(), "application/octet-stream", format="flight_recorder", job="fr", **rank)
        service.derive("fr")
        hang = service.get("/v1/jobs/fr/hangs")
        assert [(c["rank"], c["reason"]) for c in hang["culprits"]] == [(9, "device_stopped"), (14, "device_stopped")]
        assert msgspec.json.encode(hang)
