"""After warm_up no request compiles anything."""

import contextlib
import importlib
import pkgutil

from numba.core.registry import CPUDispatcher
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import crossrank.ingest
from crossrank.errors import UndecodableBody
from crossrank.ingest.warm import warm_up
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import ndjson, otlp_protobuf
from crossrank.simulate.job import simulate
from tests.support.naive_ingest import any_value, every_body, take


def compiled() -> dict[str, int]:
    """Signatures compiled so far, by kernel."""
    found = {}
    for module in pkgutil.iter_modules(crossrank.ingest.__path__, "crossrank.ingest."):
        for name, member in vars(importlib.import_module(module.name)).items():
            if isinstance(member, CPUDispatcher):
                found[f"{member.__module__}.{name}"] = len(member.signatures)
    return found


def odd_request() -> bytes:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for i in range(9):
        span = spans.add(trace_id=b"\1" * 16, span_id=bytes([i + 1] * 8), name="n" * i, start_time_unix_nano=5)
        for value in (float("nan"), [1, "x"], {"a": b"\0"}, None, True, "é" * i, -i, 0.5 * i)[: i % 9]:
            span.attributes.add(key=str(value), value=any_value(value))
    return request.SerializeToString()


def test_nothing_is_compiled_after_warm_up():
    warm_up()
    before = compiled()
    assert before
    for body in every_body(
        [{"job": "j", "rank": 0, "kind": "mark", "start_ns": 5, "end_ns": 7, "trace_id": "11" * 16, "span_id": "22" * 8}]
    ).values():
        take(body.route, body.content_type, body.body, encoding=body.content_encoding)
    for lines in (
        b"",
        b"\n",
        b'{"rank":1,"value":1,"links":["00000000000000a1"]}',
        b"x",
        ndjson(simulate(JobConfig(steps=2), seed=1).events),
    ):
        with contextlib.suppress(UndecodableBody):
            take("events", "application/x-ndjson", lines)
    for otlp in (b"", odd_request(), otlp_protobuf(simulate(JobConfig(steps=2), seed=1).events)):
        take("traces", "application/x-protobuf", otlp)
    assert compiled() == before
