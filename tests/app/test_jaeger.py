"""Jaeger's query interface: the requests that Grafana's data source sends, read as it reads the answers; and what is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from crossrank.api.jaeger_routes import duration_ns
from crossrank.auth.tokens import create_token
from crossrank.errors import BadParameter
from crossrank.limits import Limits
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

REQUESTS = json.loads((Path(__file__).parents[1] / "recordings" / "grafana_jaeger_requests.json").read_text())
JOB = "team/llm"


class Strict(BaseModel):
    """Go decodes JSON by type and refuses what does not fit."""

    model_config = ConfigDict(strict=True)


class KeyValue(Strict):
    key: str
    type: str
    value: str | int | float | bool


class Process(Strict):
    serviceName: str  # noqa: N815
    tags: list[KeyValue]


class Reference(Strict):
    refType: str  # noqa: N815
    spanID: str  # noqa: N815
    traceID: str  # noqa: N815


class Log(Strict):
    timestamp: int
    fields: list[KeyValue]


class Span(Strict):
    traceID: str  # noqa: N815
    spanID: str  # noqa: N815
    processID: str  # noqa: N815
    operationName: str  # noqa: N815
    startTime: int  # noqa: N815
    duration: int
    logs: list[Log]
    references: list[Reference]
    tags: list[KeyValue]
    warnings: list[str] | None
    flags: int


class Trace(Strict):
    traceID: str  # noqa: N815
    processes: dict[str, Process]
    warnings: list[str] | None
    spans: list[Span]


class Envelope(Strict):
    """What is around every answer."""

    total: int
    limit: int
    offset: int
    errors: list[dict[str, Any]] | None


class Names(Envelope):
    data: list[str]


class Operations(Envelope):
    data: list[dict[str, str]]


class Traces(Envelope):
    data: list[Trace]


class Dependencies(Envelope):
    data: list[dict[str, Any]]


READS = {"services": Names, "operations": Operations, "search": Traces, "trace": Traces, "dependencies": Dependencies}


@cache
def body() -> bytes:
    """A job of 16 ranks, rank 3 is slow in some steps."""
    slow = (SlowCompute(rank=3, phase="forward", steps=(2, 5), extra_ns=6_000_000),)
    config = JobConfig(job=JOB, dp=4, tp=2, pp=2, steps=6, microbatches=2, ranks_per_host=2)
    return encode.ndjson(simulate(config, slow, seed=1).events)


@contextmanager
def serving(folder: Path, limits: Limits | None = None) -> Iterator[InProcess]:
    with InProcess(folder, limits) as running:
        running.post("/v1/events", body(), encode.NDJSON_TYPE)
        running.derive(JOB)
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        yield running


def ask(service: InProcess, path: str, /, **query: Any) -> Any:
    answer = service.request("GET", path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tags(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: r["who"][:60])
def test_recorded_requests_are_answered_in_the_shape_that_is_read(service: InProcess, request_: dict[str, Any]):
    steps = service.get(f"/v1/jobs/{JOB}/steps")["steps"]
    known = {
        "service": JOB,
        "trace_id": ask(service, "/api/traces", service=JOB)["data"][0]["traceID"],
        "start_us": steps[1]["start_ns"] // 1000,
        "end_us": steps[3]["end_ns"] // 1000,
        "end_ms": steps[3]["end_ns"] // 10**6,
    }
    fill = lambda text: text if "{" not in text or '"' in text else text.format(**known)  # noqa: E731
    answer = ask(service, fill(request_["path"]), **{k: fill(v) for k, v in request_["query"].items()})
    read = READS[request_["reads"]].model_validate(answer)
    assert read.data or request_["reads"] == "dependencies"
    if isinstance(read, Traces):
        for trace in read.data:
            ids = [span.spanID for span in trace.spans]
            assert len(set(ids)) == len(ids)
            assert {span.processID for span in trace.spans} <= set(trace.processes)
            assert {r.spanID for span in trace.spans for r in span.references} <= set(ids)
            root = min(trace.spans, key=lambda s: s.startTime)
            assert trace.processes[root.processID].serviceName == JOB
            assert root.operationName.startswith("step ")


def test_a_step_is_a_trace_with_a_process_for_each_rank(service: InProcess):
    found = ask(service, "/api/traces", service=JOB, limit=1)["data"][0]
    trace = ask(service, f"/api/traces/{found['traceID']}")["data"][0]
    events = service.get(f"/v1/jobs/{JOB}/events", step=5, limit=10_000)["events"]
    collectives = service.get(f"/v1/jobs/{JOB}/collectives", step=5)["collectives"]
    assert trace["spans"][0]["operationName"] == "step 5"
    assert {p["serviceName"] for p in trace["processes"].values()} == {JOB, *(f"rank {r}" for r in range(16))}
    drawn = {(int(s["processID"][1:]) - 1, tags(s)["start_ns"], tags(s)["end_ns"], s["operationName"]) for s in trace["spans"][1:]}
    assert drawn == {(e["rank"], str(e["aligned_start_ns"]), str(e["aligned_end_ns"]), e["name"]) for e in events}
    assert len(trace["spans"]) == 1 + len(events)
    by_id = {s["spanID"]: s for s in trace["spans"]}
    decided = {(c["group"], c["seq"]): c["last_arriver"] for c in collectives}
    waited = 0
    for span in trace["spans"][1:]:
        for reference in span["references"][1:]:
            cause = by_id[reference["spanID"]]
            if tags(span)["kind"] == "collective":
                assert decided[tags(span)["group"], tags(span)["seq"]] == int(cause["processID"][1:]) - 1
                waited += 1
    assert waited > 20


def test_search_by_operation_duration_tags_and_time(service: InProcess):
    steps = service.get(f"/v1/jobs/{JOB}/steps")["steps"]

    def found(**query: Any) -> list[str]:
        return [t["spans"][0]["operationName"] for t in ask(service, "/api/traces", service=JOB, **query)["data"]]

    everything = [f"step {n}" for n in range(5, -1, -1)]
    assert found() == everything
    assert found(limit=2) == everything[:2]
    assert found(start=steps[2]["start_ns"] // 1000 + 1, end=steps[2]["end_ns"] // 1000 - 2000, operation="forward") == ["step 2"]
    assert found(operation="nobody calls it so") == []
    assert found(tags='{"rank":"3","phase":"forward"}') == everything
    assert found(tags='{"phase":"sideways"}') == []
    assert found(tag="crossrank.rank:99") == []
    longest = max(s["duration_ns"] for s in steps)
    assert found(minDuration=f"{longest + 10**9}ns") == []
    slow = found(operation="forward", tags='{"rank":"3"}', minDuration=_between_normal_and_slow(service))
    assert slow == ["step 5", "step 4", "step 3", "step 2"]


def _between_normal_and_slow(service: InProcess) -> str:
    forward = [e for e in service.get(f"/v1/jobs/{JOB}/events", rank=3, limit=10_000)["events"] if e["name"] == "forward"]
    usual = max(e["end_ns"] - e["start_ns"] for e in forward if e["step"] < 2)
    return f"{(usual + 3_000_000) / 1e6:.3f}ms"


def test_a_trace_under_the_id_of_its_senders(service: InProcess):
    event = service.get(f"/v1/jobs/{JOB}/events", limit=1)["events"][0]
    trace = ask(service, f"/api/traces/{event['trace_id']}")["data"][0]
    raw = ask(service, f"/api/traces/{event['trace_id']}", raw="true")["data"][0]
    assert trace["traceID"] == event["trace_id"]
    spans = {tags(s)["start_ns"] for s in raw["spans"][1:]}
    assert str(event["start_ns"]) in spans


def test_faults_have_the_shape_of_jaeger(service: InProcess):
    for path, query, status in (
        ("/api/traces/" + "ab" * 16, {}, 404),
        ("/api/traces/nonsense", {}, 400),
        ("/api/traces", {}, 400),
        ("/api/operations", {}, 400),
        ("/api/traces", {"service": JOB, "minDuration": "soon"}, 400),
        ("/api/traces", {"service": JOB, "minDuration": "2s", "maxDuration": "1s"}, 400),
        ("/api/traces", {"service": JOB, "tags": "{"}, 400),
        ("/api/traces", {"service": JOB, "tag": "novalue"}, 400),
        ("/api/traces", {"service": JOB, "limit": "many"}, 400),
        ("/api/nothing", {}, 404),
    ):
        answer = service.request("GET", path, params=query)
        assert answer.status_code == status, path
        error = answer.json()["errors"][0]
        assert (error["code"], bool(error["msg"])) == (status, True)
    assert ask(service, "/api/traces", service="nobody")["data"] == []
    assert ask(service, "/api/services/nobody/operations")["data"] == []


def test_large_steps_are_cut_and_say_so(tmp_path: Path):
    with serving(tmp_path, Limits(trace_spans=100)) as service:
        found = ask(service, "/api/traces", service=JOB, operation="optimizer")["data"]
        trace = ask(service, f"/api/traces/{found[0]['traceID']}")["data"][0]
    assert all(any(s["operationName"] == "optimizer" for s in t["spans"]) for t in found)
    assert all(len(t["spans"]) == 21 for t in found)
    assert len(trace["spans"]) == 101
    assert "left out" in trace["warnings"][0]
    assert "rank 3" in {p["serviceName"] for p in trace["processes"].values()}


def test_hostile_and_unfinished_spans(tmp_path: Path):
    hostile = '<script>alert("1")</script>'
    start = 1_800_000_000_000_000_123
    rows = [
        {"rank": r, "lane": hostile, "name": hostile, "span_id": "0" * 15 + "1", "start_ns": start, "end_ns": start + 1000, "step": 1,
         "attrs": {hostile: hostile, "big": 2**60 + 1, "list": [1, None], "yes": True}}
        for r in (0, 1)
    ]  # fmt: skip
    rows.append({"rank": 0, "name": "open", "span_id": "0" * 15 + "2", "start_ns": start, "end_ns": None, "step": 1})
    with InProcess(tmp_path) as service:
        service.post("/v1/events", "\n".join(json.dumps({"job": hostile, **r}) for r in rows).encode(), "application/x-ndjson")
        service.derive("%3Cscript%3Ealert(%221%22)%3C%2Fscript%3E")
        answer = service.request("GET", "/api/traces", params={"service": hostile})
    assert answer.headers["content-type"] == "application/json"
    trace = Traces.model_validate(answer.json()).data[0].model_dump()
    assert len({s["spanID"] for s in trace["spans"]}) == 4
    shown = [tags(s) for s in trace["spans"] if s["operationName"] == hostile]
    assert all((t[hostile], t["big"], t["list"], t["yes"]) == (hostile, str(2**60 + 1), "[1,null]", True) for t in shown)
    assert [s["warnings"] for s in trace["spans"] if s["operationName"] == "open"] == [["this span has not ended"]]


def test_a_token_of_one_job_sees_one_service(tmp_path: Path):
    create_token(tmp_path, "admin", None, 0)
    token = create_token(tmp_path, "read", "own", 0)[1]
    admin = create_token(tmp_path, "admin", None, 0)[1]
    line = {"rank": 0, "name": "n", "span_id": "0" * 15 + "1", "start_ns": 10**18, "end_ns": 10**18 + 5, "step": 1}
    with InProcess(tmp_path) as service:
        for job in ("own", "other"):
            body = json.dumps({"job": job, **line}).encode()
            answer = service.request(
                "POST", "/v1/events", content=body,
                headers={"Authorization": f"Bearer {admin}", "Content-Type": "application/x-ndjson"},
            )  # fmt: skip
            assert answer.status_code == 200

        def get(path: str, who: str, /, **query: Any) -> Any:
            return service.request("GET", path, params=query, headers={"Authorization": f"Bearer {who}"})

        assert get("/api/services", token).json()["data"] == ["own"]
        assert get("/api/services", admin).json()["data"] == ["other", "own"]
        assert get("/api/services/other/operations", token).json()["data"] == []
        assert get("/api/traces", token, service="other").json()["data"] == []
        other = get("/api/traces", admin, service="other").json()["data"][0]["traceID"]
        assert get(f"/api/traces/{other}", admin).status_code == 200
        assert get(f"/api/traces/{other}", token).status_code == 404
        assert service.request("GET", "/api/services").json()["errors"][0]["code"] == 401


@pytest.mark.parametrize(
    ("text", "ns"), [("", None), ("1.5ms", 1_500_000), ("1h30m", 5400 * 10**9), ("2us", 2000), (".5s", 5 * 10**8)]
)
def test_durations_as_go_writes_them(text: str, ns: int | None):
    assert duration_ns(text, "minDuration") == ns


@pytest.mark.parametrize("text", ["5", "ms", "1 ms", "-1s", "1ms!", "1e3s"])
def test_what_is_no_duration(text: str):
    with pytest.raises(BadParameter):
        duration_ns(text, "minDuration")
