"""Stock OpenTelemetry exporters: everything they send is taken and found again by /events, with every attribute."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode

from tests.support.server import Service, derived


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("data")) as running:
        yield running


def all_events(client: httpx.Client, job: str) -> list[dict[str, Any]]:
    derived(client, job)
    return client.get(f"/v1/jobs/{job}/events", params={"limit": 100_000}).json()["events"]


@pytest.mark.parametrize("compression", list(Compression), ids=lambda c: c.name)
def test_the_stock_python_exporter(service: Service, compression: Compression) -> None:
    job = f"sdk-{compression.name}"
    provider = TracerProvider(resource=Resource.create({"crossrank.job": job, "host.name": "node7", "rank": 3, "site": "north"}))
    exporter = OTLPSpanExporter(endpoint=f"{service.url}/v1/traces", compression=compression)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("train", "1.2")
    with (
        tracer.start_as_current_span("step", attributes={"step": 7, "kind": "step"}) as step,
        tracer.start_as_current_span(
            "all_reduce",
            kind=SpanKind.CLIENT,
            attributes={
                "crossrank.group": "dp0",
                "crossrank.seq": 41,
                "crossrank.bytes": 1 << 40,
                "note": "ok",
                "big": 2**62 + 1,
                "ratio": 0.5,
                "flagged": True,
                "list": [1, 2],
            },
            links=[Link(step.get_span_context(), {"why": "cause"})],
        ) as span,
    ):
        span.add_event("retry", {"n": 2})
        span.set_status(StatusCode.ERROR, "slow")
    provider.shutdown()
    with service.client() as client:
        events = {e["name"]: e for e in all_events(client, job)}
    assert set(events) == {"step", "all_reduce"}
    event = events["all_reduce"]
    assert (event["job"], event["rank"], event["host"], event["group"], event["seq"], event["bytes"]) == (
        job,
        3,
        "node7",
        "dp0",
        41,
        1 << 40,
    )
    assert event["op"] == "all_reduce"
    assert event["kind"] == "collective"
    assert event["step_inferred"] == 7
    assert event["parent_span_id"] == events["step"]["span_id"]
    assert event["links"] == [events["step"]["span_id"]]
    for key, value in {"note": "ok", "big": 2**62 + 1, "ratio": 0.5, "flagged": True, "list": [1, 2]}.items():
        assert event["attrs"][key] == value
    text = json.dumps(event["otel"])
    for kept in ("retry", "slow", "why", "north", "train", "1.2"):
        assert kept in text, kept


def attribute_value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [attribute_value(v) for v in value.array_value.values]
    return getattr(value, which)


def json_value(value: dict[str, Any]) -> Any:
    which, held = next(iter(value.items()))
    return [json_value(v) for v in held["values"]] if which == "arrayValue" else held


def sent_spans(body: bytes, headers: dict[str, str]) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """(span id, name, span attributes, resource attributes), decoded without our code."""
    raw = {"": lambda b: b, "gzip": gzip.decompress, "deflate": zlib.decompress}[headers.get("content-encoding", "")](body)
    if headers["content-type"] == "application/json":
        unwrap = lambda attrs: {a["key"]: json_value(a["value"]) for a in attrs}  # noqa: E731
        return [
            (s["spanId"], s["name"], unwrap(s["attributes"]), unwrap(r["resource"]["attributes"]))
            for r in json.loads(raw)["resourceSpans"]
            for scope in r["scopeSpans"]
            for s in scope["spans"]
        ]
    request = ExportTraceServiceRequest.FromString(raw)
    named = lambda attrs: {a.key: attribute_value(a.value) for a in attrs}  # noqa: E731
    return [
        (s.span_id.hex(), s.name, named(s.attributes), named(r.resource.attributes))
        for r in request.resource_spans
        for scope in r.scope_spans
        for s in scope.spans
    ]


def test_recorded_requests_of_stock_exporters_come_back_whole(service: Service, recordings: Path) -> None:
    folders = sorted((recordings / "otlp").glob("*")) if (recordings / "otlp").is_dir() else []
    assert folders or recordings.name == "recordings", "the full recordings have OTLP requests"
    for folder in folders:
        job = folder.name.replace("_", "-")
        sent = []
        with service.client() as client:
            for meta in sorted(folder.glob("*.json")):
                body = meta.with_suffix(".body").read_bytes()
                headers = {k.lower(): v for k, v in json.loads(meta.read_text())["headers"]}
                keep = {k: v for k, v in headers.items() if k in ("content-type", "content-encoding")}
                # Every recorded client called its service `trainer`; the header keeps the clients apart.
                answer = client.post("/v1/traces", content=body, headers={**keep, "X-Crossrank-Job": job})
                assert answer.status_code == 200, answer.text
                assert answer.headers["content-type"].partition(";")[0] == keep["content-type"]
                if keep["content-type"] == "application/x-protobuf":
                    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 0
                sent += sent_spans(body, headers)
            jobs = [j["job"] for j in client.get("/v1/jobs").json()["jobs"]]
            events = {(e["rank"], e["span_id"]): e for e in all_events(client, job if job in jobs else "trainer")}
        for span_id, name, attributes, resource in sent:
            event = events[(int(resource["dist.rank"]), span_id.lower())]
            assert event["name"] == name
            held = json.dumps(event)
            for key, value in {**attributes, **resource}.items():
                if key in ("service.name", "host.name", "dist.rank", "dist.step", "dist.category"):
                    continue  # typed columns hold these
                assert json.dumps(value) in held or json.dumps(str(value)) in held, (key, value)
