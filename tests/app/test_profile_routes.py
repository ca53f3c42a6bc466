"""Profiles on demand: what ranks are told in the answers to their posts, and what is known of their traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossrank.api.profile_desk import ProfileDesk, Steps
from crossrank.errors import BadParameter, NotFound, Overloaded
from crossrank.limits import Limits
from tests.support.inprocess import InProcess

TRACE = {
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "distributedInfo": {"rank": 1, "world_size": 4},
    "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100.0, "dur": 50.0}],
}


def events(rank: int, step: int, job: str = "llm") -> bytes:
    """A step of 100 ms in which rank 2 comes last to an all-reduce."""
    begin = 1_700_000_000_000_000_000 + step * 100_000_000
    late = 30_000_000 if rank == 2 else 0
    common = {"job": job, "rank": rank, "host": f"h{rank}", "lane": "cpu:main", "step": step}
    spans = [
        {"name": "step", "kind": "step", "start_ns": begin, "end_ns": begin + 99_000_000},
        {"name": "forward", "kind": "compute", "start_ns": begin, "end_ns": begin + 20_000_000 + late},
        {"name": "all_reduce", "kind": "collective", "op": "all_reduce", "group": "world", "seq": step, "bytes": 8,
         "group_ranks": [0, 1, 2, 3], "start_ns": begin + 21_000_000 + late, "end_ns": begin + 60_000_000},
    ]  # fmt: skip
    lines = [{**common, **span, "span_id": f"{step * 10 + n + 1:016x}"} for n, span in enumerate(spans)]
    return "\n".join(map(json.dumps, lines)).encode()


@pytest.fixture
def service(tmp_path: Path):
    with InProcess(tmp_path, Limits(profile_ranks=3)) as opened:
        for rank in range(4):
            for step in range(6):
                opened.post("/v1/events", events(rank, step), "application/x-ndjson")
        opened.derive("llm")
        yield opened


def ask(service: InProcess, **asked: object):
    return service.request("POST", "/v1/jobs/llm/profile", json=asked)


def state_of(service: InProcess) -> dict[int, str]:
    return {r["rank"]: r["state"] for r in service.get("/v1/jobs/llm/profile")["ranks"]}


def test_a_rank_is_told_in_the_answers_to_its_posts_until_its_trace_closes_the_request(service: InProcess):
    assert "profile" not in service.post("/v1/events", events(1, 6), "application/x-ndjson")
    asked = ask(service, ranks=[1, 3], steps=2).json()
    assert (asked["steps"], asked["done"]) == (2, False)
    assert "profile" not in service.post("/v1/events", events(0, 6), "application/x-ndjson")
    for step in (7, 8):  # an answer may be lost on its way
        told = service.post("/v1/events", events(1, step), "application/x-ndjson")["profile"]
        assert told == {"id": asked["id"], "rank": 1, "steps": 2, "first_step": None}
    assert state_of(service) == {1: "told", 3: "asked"}
    where = {"format": "kineto", "job": "llm", "rank": 1, "profile": asked["id"]}
    service.post("/v1/import", json.dumps(TRACE).encode(), "application/json", **where)
    assert state_of(service) == {1: "received", 3: "asked"}
    assert "profile" not in service.post("/v1/events", events(1, 9), "application/x-ndjson")
    assert service.get("/v1/jobs/llm/profile")["ranks"][0]["events"] >= 1


@pytest.mark.parametrize("steps", [[100, 105], "100-105"])
def test_steps_can_be_asked_for_by_number(service: InProcess, steps: object):
    asked = ask(service, ranks=[1], steps=steps).json()
    assert (asked["steps"], asked["first_step"]) == (6, 100)
    told = service.post("/v1/events", events(1, 6), "application/x-ndjson")["profile"]
    assert (told["steps"], told["first_step"]) == (6, 100)


def test_another_job_hears_nothing(service: InProcess):
    ask(service, ranks=[1])
    assert "profile" not in service.post("/v1/events", events(1, 6, job="other"), "application/x-ndjson")


def test_the_ranks_that_tell_most_are_chosen_with_a_healthy_peer(service: InProcess):
    ranks = ask(service, most=2).json()["ranks"]
    assert [(r["rank"], r["why"].split(":")[0].rstrip(" 2")) for r in ranks] == [
        (2, "named by a finding"),
        (0, "a healthy peer of rank"),
    ]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"ranks": [9]}, "ranks"),
        ({"ranks": [0, 1, 2, 3]}, "ranks"),
        ({"ranks": []}, "ranks"),
        ({"steps": 0}, "steps"),
        ({"steps": [5]}, "steps"),
        ({"steps": [105, 100]}, "steps"),
        ({"steps": "100-200"}, "steps"),
        ({"steps": "100-"}, "steps"),
        ({"steps": "0-2"}, "are over"),
        ({"all": 1}, "all"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(service: InProcess, asked: dict, field: str):
    answer = ask(service, **asked)
    assert answer.status_code == 400
    assert field in json.dumps(answer.json()["error"])


def test_one_request_at_a_time(service: InProcess):
    ask(service, ranks=[1])
    again = ask(service, ranks=[2])
    assert (again.status_code, "still under way" in again.text) == (400, True)


def test_an_unknown_job_and_a_job_without_a_request_are_not_found(service: InProcess):
    assert service.request("POST", "/v1/jobs/nobody/profile", json={}).status_code == 404
    assert service.request("GET", "/v1/jobs/nobody/profile").status_code == 404
    answer = service.request("GET", "/v1/jobs/llm/profile")
    assert (answer.status_code, "was asked for" in answer.text) == (404, True)


class Hour:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_requests_expire_and_their_number_is_bounded():
    hour = Hour()
    desk = ProfileDesk(jobs=2, expire_ns=100, monotonic_ns=hour)
    assert not desk.open
    desk.ask("a", {0: "asked for"}, Steps(1))
    desk.ask("b", {0: "asked for"}, Steps(1))
    assert desk.open
    with pytest.raises(Overloaded):
        desk.ask("c", {0: "asked for"}, Steps(1))
    with pytest.raises(BadParameter):
        desk.ask("a", {1: "asked for"}, Steps(1))
    hour.now_ns = 101
    assert desk.told("a", 0) is None
    assert not desk.open
    assert (desk.state("a")["done"], desk.state("a")["ranks"][0]["state"]) == (True, "expired")
    desk.ask("c", {0: "asked for"}, Steps(1))
    with pytest.raises(NotFound):
        desk.state("a")
    desk.forget("c")
    assert not desk.open
