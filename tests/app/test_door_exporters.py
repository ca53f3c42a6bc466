"""Stock exporters against a service that is overloaded, killed and restarted in between: stored is what they report as exported."""

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.server import Service, derived

BUDGET = 20_000
BATCHES, SPANS = 4, 40


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def batch(job: str, rank: int) -> Sequence[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"crossrank.job": job, "crossrank.rank": rank}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for i in range(SPANS):
        provider.get_tracer("t").start_span(f"span {i}").end()
    return memory.get_finished_spans()


def ids(spans: Sequence[ReadableSpan]) -> set[str]:
    return {f"{s.get_span_context().span_id:016x}" for s in spans}


@contextmanager
def budget_used_up(service: Service) -> Iterator[None]:
    """A request that has sent more than half of the budget and then pauses: others do not fit beside it."""
    parts = urlsplit(service.url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30) as slow:
        head = (
            f"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: {BUDGET}\r\n\r\n"
        )
        slow.sendall(head.encode() + b"\n" * (BUDGET - 100))
        yield


def overloaded(service: Service) -> float:
    with service.client() as client:
        text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("crossrank_requests_overloaded_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_stored_is_what_the_exporter_reports(tmp_path: Path, protocol: str) -> None:
    ports = free_port(), free_port()
    options = ("--port", str(ports[0]), "--grpc-port", str(ports[1]))

    def exporter() -> HttpExporter | GrpcExporter:
        if protocol == "http":
            return HttpExporter(endpoint=f"http://127.0.0.1:{ports[0]}/v1/traces", timeout=60)
        return GrpcExporter(endpoint=f"http://127.0.0.1:{ports[1]}", insecure=True, timeout=60)

    exporters = [exporter() for _ in range(BATCHES)]
    rounds = [[batch("export", rank) for rank in range(BATCHES)] for _ in range(3)]
    exported: list[tuple[Sequence[ReadableSpan], SpanExportResult]] = []
    lock = threading.Lock()

    def send(which: int, spans: Sequence[ReadableSpan]) -> None:
        result = exporters[which].export(spans)
        with lock:
            exported.append((spans, result))

    def send_all(batches: list[Sequence[ReadableSpan]], pool: ThreadPoolExecutor) -> list:
        return [pool.submit(send, i, spans) for i, spans in enumerate(batches)]

    service = Service(tmp_path / "data", *options, env={"CROSSRANK_INFLIGHT_BYTES": str(BUDGET)}).start()
    try:
        with ThreadPoolExecutor(BATCHES) as pool:
            with budget_used_up(service):
                while overloaded(service) == 0:  # the paused request counts from when its bytes have arrived
                    send_probe(service)
                before = overloaded(service)
                sending = send_all(rounds[0], pool)
                while overloaded(service) < before + BATCHES:
                    assert not any(f.done() for f in sending), "told to wait, they must not give up"
            for f in sending:
                f.result()
            sending = send_all(rounds[1], pool)
            service.kill()
            sending += send_all(rounds[2], pool)
            service.start()
            for f in sending:
                f.result()
        reported = set().union(*(ids(spans) for spans, result in exported if result is SpanExportResult.SUCCESS))
        unreported = [ids(spans) for spans, result in exported if result is not SpanExportResult.SUCCESS]
        first = set().union(*(ids(spans) for spans in rounds[0]))
        assert first <= reported, "overload alone loses nothing"
        with service.client() as client:
            derived(client, "export")
            events = client.get("/v1/jobs/export/events", params={"limit": 10_000}).json()["events"]
        stored = [e["span_id"] for e in events]
        assert len(stored) == len(set(stored)), "a resent batch is stored once"
        assert reported <= set(stored)
        surplus = set(stored) - reported
        assert surplus <= set().union(*unreported)
        assert all(not (spans & surplus) or spans <= surplus for spans in unreported), "a batch is stored whole or not at all"
    finally:
        service.kill()
        for e in exporters:
            e.shutdown()


def send_probe(service: Service) -> None:
    with service.client() as client:
        client.post("/v1/events", content=b"\n" * 200, headers={"Content-Type": "application/x-ndjson"})
