"""The HTTP contract: answer shapes, one error shape, limits, no redirect, OTLP faults in the request's encoding."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from crossrank.api import shapes
from crossrank.limits import Limits
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

NDJSON, PROTOBUF, JSON = "application/x-ndjson", "application/x-protobuf", "application/json"
LIMITS = Limits(body_bytes=1 << 20)
ANSWERS = {
    "": shapes.Summary,
    "clocks": shapes.Clocks,
    "steps": shapes.Steps,
    "steps/1/critical-path": shapes.CriticalPath,
    "collectives": shapes.Collectives,
    "stragglers": shapes.Stragglers,
    "bottlenecks": shapes.Bottlenecks,
    "events": shapes.Events,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    config = JobConfig(job="team/run 1", dp=2, tp=2, pp=1, steps=3, microbatches=1, ranks_per_host=2)
    with InProcess(tmp_path_factory.mktemp("data"), LIMITS) as running:
        running.post("/v1/events", encode.ndjson(simulate(config, seed=3).events), NDJSON)
        yield running


@pytest.mark.parametrize("question", ANSWERS)
def test_answers_have_the_documented_shape(service: InProcess, question: str) -> None:
    answer = service.get(f"/v1/jobs/team/run 1/{question}".rstrip("/"))
    ANSWERS[question].model_validate(answer)
    for carried in ("complete_to_ns", "alignment", "dropped", "truncated"):
        assert carried in answer


def test_a_path_fills_its_step(service: InProcess) -> None:
    steps = service.get("/v1/jobs/team/run 1/steps")["steps"]
    assert [s["step"] for s in steps] == [0, 1, 2]
    for step in steps:
        path = service.get(f"/v1/jobs/team/run 1/steps/{step['step']}/critical-path")
        segments = sorted(path["segments"], key=lambda s: s["start_ns"])
        assert sum(s["on_path_ns"] for s in segments) == path["total_ns"] == step["duration_ns"]
        assert [segments[0]["start_ns"], *(s["end_ns"] for s in segments)] == [*(s["start_ns"] for s in segments), step["end_ns"]]


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "field"),
    [
        ("GET", "/v1/jobs/nobody", 404, "not_found", None),
        ("GET", "/v1/jobs/nobody/steps", 404, "not_found", None),
        ("GET", "/v1/jobs/team/run 1/steps/99/critical-path", 404, "not_found", "step"),
        ("GET", "/v1/jobs/team/run 1/steps?from=soon", 400, "bad_parameter", "from"),
        ("GET", "/v1/jobs/team/run 1/events?limit=0", 400, "bad_parameter", "limit"),
        ("GET", "/v1/jobs/team/run 1/events?cursor=xyz", 400, "bad_parameter", "cursor"),
        ("GET", "/v1/jobs/team/run 1/events?from_ns=99999999999999999999", 400, "bad_parameter", "from_ns"),
        ("GET", "/v1/jobs/team/run 1/steps?attempt=7", 404, "not_found", "attempt"),
        ("GET", "/v1/jobs/team/run 1/traces/xyz", 400, "bad_parameter", "trace_id"),
        ("GET", "/v1/jobs/team/run 1/export?format=csv", 400, "bad_parameter", "format"),
        ("GET", "/v1/events", 405, "http", None),
        ("GET", "/v1/nothing", 404, "http", None),
        ("GET", "/v1/jobs/", 404, None, None),
        ("DELETE", "/v1/jobs/nobody", 404, "not_found", None),
    ],
)
def test_one_error_shape(service: InProcess, method: str, path: str, status: int, code: str | None, field: str | None) -> None:
    answer = service.request(method, path)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "detail"}
    assert code is None or error["code"] == code
    if field is not None:
        assert error["detail"]["field"] == field


@pytest.mark.parametrize(
    ("route", "content_type", "body", "encoding", "status"),
    [
        ("events", NDJSON, b"x" * ((1 << 20) + 1), "", 413),
        ("events", "text/html", b"{}", "", 415),
        ("events", NDJSON, b"{}", "br", 415),
        ("events", NDJSON, b"not gzip", "gzip", 400),
        ("events", JSON, b"{", "", 400),
        ("traces", PROTOBUF, b"\xff\xff\xff", "", 400),
        ("traces", PROTOBUF, b"\0" * ((1 << 20) + 1), "", 413),
        ("traces", JSON, b"[]", "", 400),
        ("traces", "text/plain", b"", "", 415),
    ],
)
def test_bad_bodies(service: InProcess, route: str, content_type: str, body: bytes, encoding: str, status: int) -> None:
    headers = {"Content-Type": content_type, **({"Content-Encoding": encoding} if encoding else {})}
    answer = service.request("POST", f"/v1/{route}", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    if route == "events":
        assert answer.json()["error"]["message"]
    elif content_type == PROTOBUF:
        assert answer.headers["content-type"] == PROTOBUF
        assert status_pb2.Status.FromString(answer.content).message
    else:
        assert answer.json()["message"]


def test_bad_events_are_rejected_one_by_one_and_counted(service: InProcess) -> None:
    lines = [
        {"job": "mixed", "rank": 0, "name": "a", "start_ns": 10**18, "end_ns": 10**18 + 5, "span_id": "01" * 8},
        {"job": "mixed", "rank": -1, "name": "a", "start_ns": 10**18, "end_ns": 10**18 + 5, "span_id": "02" * 8},
        {"job": "mixed", "rank": 1, "name": "a", "start_ns": 10**18, "end_ns": 10**18 + 5, "span_id": "nonsense"},
    ]
    receipt = service.post("/v1/events", "\n".join(map(json.dumps, lines)).encode(), NDJSON)
    shapes.EventsReceipt.model_validate(receipt)
    assert (receipt["accepted"], receipt["rejected"]) == (1, 2)
    assert [e["index"] for e in receipt["errors"]] == [1, 2]
    summary = service.get("/v1/jobs/mixed")
    assert sum(summary["dropped"].values()) == 2
    assert {r["rank"]: r["count"] for r in summary["rejects"]}.get(1) == 1
    metrics = service.request("GET", "/metrics").text
    assert "crossrank_events_rejected_total{" in metrics


def test_an_otlp_request_with_one_bad_span_is_partly_taken(service: InProcess) -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for i in range(3):
        spans.add(name="s", trace_id=b"\1" * 16, span_id=bytes([i]) * 8, start_time_unix_nano=10**18, end_time_unix_nano=10**18 + 1)
    answer = service.request(
        "POST", "/v1/traces", content=request.SerializeToString(), headers={"Content-Type": PROTOBUF, "X-Crossrank-Job": "p"}
    )
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 1
    assert partial.error_message
    assert service.get("/v1/jobs/p")["events"]["stored"] == 2


def test_an_empty_otlp_request_is_a_success_without_partial_success(service: InProcess) -> None:
    assert service.request("POST", "/v1/traces", content=b"", headers={"Content-Type": PROTOBUF}).content == b""
    answer = service.request("POST", "/v1/traces", content=b"{}", headers={"Content-Type": JSON})
    assert (answer.status_code, answer.json()) == (200, {})


def test_topology_posts_are_merged(service: InProcess) -> None:
    for rank in range(3):
        body = {"world_size": 4, "ranks": [{"rank": rank, "host": f"h{rank}", "coords": {"dp": rank}}]}
        answer = service.request("POST", "/v1/jobs/shape/topology", json=body)
        assert answer.status_code == 200, answer.text
    assert answer.json() == {"world_size": 4, "ranks": 3, "groups": 0}
    summary = service.get("/v1/jobs/shape")
    assert summary["world_size"] == 4
    assert summary["ranks"]["missing"] == [0, 1, 2, 3]


def test_a_deleted_job_is_gone_and_may_begin_anew(service: InProcess) -> None:
    line = b'{"job":"gone","rank":0,"name":"a","start_ns":1000000000000000000,"end_ns":1000000000000000009,"span_id":"0101010101010101"}'
    service.post("/v1/events", line, NDJSON)
    assert service.get("/v1/jobs/gone")["events"]["stored"] == 1
    assert service.request("DELETE", "/v1/jobs/gone").json() == {"deleted": "gone"}
    assert service.request("GET", "/v1/jobs/gone").status_code == 404
    assert service.post("/v1/events", line, NDJSON)["accepted"] == 1


def test_health(service: InProcess) -> None:
    assert service.get("/healthz") == {"status": "ok"}
    assert service.get("/readyz") == {"status": "ready"}


def test_simulated_events_satisfy_the_published_schema() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "event.schema.json").read_text())
    events = simulate(JobConfig(dp=2, tp=1, pp=2, steps=1, microbatches=1), seed=1).events
    check = jsonschema.Draft202012Validator(schema)
    for line in encode.ndjson(events).splitlines() + encode.seed_form(events).splitlines():
        check.validate(json.loads(line))
