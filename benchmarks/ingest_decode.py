"""Bodies to columns, format by format, each against its rivals in the same run: requests of 8,192 spans with ten attributes.

Every competitor starts from the body's bytes in memory (DuckDB from a file in the page cache) and they take turns; medians of CPU
seconds. Ours gives the event columns, all fields kept. The rivals:

    protobuf-python loop   ParseFromString, then one pass over the spans into lists, then Arrow
    ParseFromString alone  what any decoder in Python that uses protobuf must pay at least; gives no columns
    ptars + flatten        protobuf to nested Arrow in Rust, then the spans and their attributes flattened
    DuckDB read_json       column types given, `attrs` as JSON, one thread, to Arrow
    json.loads loop        the standard parser, then one pass into lists, then Arrow

    python benchmarks/ingest_decode.py [--rounds N]

ptars is in the dependency group `rivals`; where it is not installed it is reported as absent.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from _measure import Timing, take_turns
from _results import Results
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from crossrank.ingest import events_fast, otlp_fast, otlp_json_fast
from crossrank.limits import Limits

SPANS = 8192
NAMES = ("forward", "backward", "all_reduce", "all_gather", "optimizer", "reduce_scatter")
RESOURCE = {"service.name": "llm", "host.name": "node-3", "crossrank.rank": 3, "telemetry.sdk.name": "opentelemetry"}
COLUMNS = ("step", "seq", "bytes", "group", "op", "dtype")
LIMITS = Limits()


def spans(seed: int = 0) -> list[dict[str, Any]]:
    """Spans of one rank: six attributes that are columns, four that are not (two texts, an integer, a double of full precision)."""
    rng = np.random.default_rng(seed)
    out, now = [], 1_800_000_000_000_000_000
    for i in range(SPANS):
        now += int(rng.integers(1000, 2_000_000))
        name = NAMES[i % len(NAMES)]
        own = (i // 60, i, int(rng.integers(1, 1 << 28)), f"dp{i % 8}", name, "bfloat16")
        attrs = dict(zip(COLUMNS, own, strict=True))
        attrs |= {
            "stream": i % 4,
            "phase": NAMES[(i * 7) % 6],
            "layer": f"model.layers.{i % 48}.mlp",
            "busbw": float(rng.random() * 400),
        }
        ids = {"trace_id": rng.bytes(16), "span_id": rng.bytes(8), "parent_span_id": rng.bytes(8)}
        out.append({"name": name, "start": now, "end": now + int(rng.integers(1000, 1_000_000)), "attrs": attrs} | ids)
    return out


def pair(key: str, value: Any) -> KeyValue:
    kind = {int: "int_value", float: "double_value", str: "string_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def protobuf_body(rows: list[dict[str, Any]]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.extend(pair(key, value) for key, value in RESOURCE.items())
    scope = resource.scope_spans.add()
    scope.scope.name = "trainer"
    for row in rows:
        times = {"start_time_unix_nano": row["start"], "end_time_unix_nano": row["end"]}
        ids = {key: row[key] for key in ("trace_id", "span_id", "parent_span_id")}
        span = scope.spans.add(name=row["name"], kind=1, flags=256, **times, **ids)
        span.attributes.extend(pair(f"crossrank.{k}" if k in COLUMNS else k, v) for k, v in row["attrs"].items())
    return request.SerializeToString()


def json_pair(key: str, value: Any) -> dict[str, Any]:
    kind = {int: "intValue", float: "doubleValue", str: "stringValue"}[type(value)]
    return {"key": key, "value": {kind: str(value) if isinstance(value, int) else value}}


def otlp_json_body(rows: list[dict[str, Any]]) -> bytes:
    sent = [
        {
            "traceId": row["trace_id"].hex(),
            "spanId": row["span_id"].hex(),
            "parentSpanId": row["parent_span_id"].hex(),
            "name": row["name"],
            "kind": 1,
            "startTimeUnixNano": str(row["start"]),
            "endTimeUnixNano": str(row["end"]),
            "attributes": [json_pair(f"crossrank.{k}" if k in COLUMNS else k, v) for k, v in row["attrs"].items()],
        }
        for row in rows
    ]
    resource = {"attributes": [json_pair(key, value) for key, value in RESOURCE.items()]}
    return json.dumps(
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "trainer"}, "spans": sent}]}]}
    ).encode()


def ndjson_body(rows: list[dict[str, Any]]) -> bytes:
    lines = []
    for row in rows:
        event = {"job": "llm", "rank": 3, "host": "node-3", "name": row["name"], "start_ns": row["start"], "end_ns": row["end"]}
        event |= {key: row[key].hex() for key in ("trace_id", "span_id", "parent_span_id")}
        event |= {key: row["attrs"][key] for key in COLUMNS}
        event["attrs"] = {key: value for key, value in row["attrs"].items() if key not in COLUMNS}
        lines.append(json.dumps(event))
    return "\n".join(lines).encode() + b"\n"


def columns_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    names = ("trace_id", "span_id", "parent_span_id", "name", "start_ns", "end_ns", *COLUMNS, "attrs", "resource", "scope")
    return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))


def protobuf_loop(body: bytes) -> pa.Table:
    """The obvious decoder in Python."""
    rows = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = json.dumps({pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in resource.resource.attributes})
        for scope in resource.scope_spans:
            for span in scope.spans:
                attrs = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}
                known = [attrs.pop(f"crossrank.{name}", None) for name in COLUMNS]
                ids = (span.trace_id, span.span_id, span.parent_span_id)
                times = (span.start_time_unix_nano, span.end_time_unix_nano)
                rows.append((*ids, span.name, *times, *known, json.dumps(attrs), about, scope.scope.name))
    return columns_of(rows)


def json_loop(body: bytes) -> pa.Table:
    """The same for OTLP's JSON."""

    def value(sent: dict[str, Any]) -> Any:
        ((kind, content),) = sent.items()
        return int(content) if kind == "intValue" else content

    rows = []
    for resource in json.loads(body)["resourceSpans"]:
        about = json.dumps({pair["key"]: value(pair["value"]) for pair in resource["resource"]["attributes"]})
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                attrs = {pair["key"]: value(pair["value"]) for pair in span["attributes"]}
                known = [attrs.pop(f"crossrank.{name}", None) for name in COLUMNS]
                ids = [bytes.fromhex(span[key]) for key in ("traceId", "spanId", "parentSpanId")]
                times = (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
                rows.append((*ids, span["name"], *times, *known, json.dumps(attrs), about, scope["scope"]["name"]))
    return columns_of(rows)


def ptars_decoder() -> Any:
    """Protobuf to nested Arrow by ptars, then flattened; None where ptars is not installed."""
    try:
        from ptars import HandlerPool
    except ImportError:
        return None
    handler = HandlerPool([ExportTraceServiceRequest.DESCRIPTOR.file]).get_for_message(ExportTraceServiceRequest.DESCRIPTOR)

    def decode(body: bytes) -> list[pa.Array]:
        resources = handler.list_to_record_batch([body]).column("resource_spans").flatten()
        scopes = resources.field("scope_spans").flatten()
        found = scopes.field("spans").flatten()
        pairs = found.field("attributes").flatten()
        return [*found.flatten(), *pairs.flatten(), *pairs.field("value").flatten()]

    return decode


def duckdb_reader(path: Path) -> Any:
    texts = ["job", "host", "name", "trace_id", "span_id", "parent_span_id", "group", "op", "dtype"]
    types = (
        dict.fromkeys(texts, "VARCHAR")
        | dict.fromkeys(["rank", "start_ns", "end_ns", "step", "seq", "bytes"], "BIGINT")
        | {"attrs": "JSON"}
    )
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    connection = duckdb.connect(config={"threads": 1})
    return lambda: connection.sql(
        f"SELECT * FROM read_json('{path}', format = 'newline_delimited', columns = {{{columns}}})"
    ).arrow()


def report(results: Results, timings: dict[str, Timing]) -> None:
    def faster(what: str, ours: str, rival: str, at_least: float) -> None:
        if rival in timings:
            results.add(f"{what} over {rival}", timings[rival].cpu_s / timings[ours].cpu_s, "x", at_least=at_least)

    for name, timing in timings.items():
        results.add(name, SPANS / timing.cpu_s, "spans/s per core")
    faster("OTLP protobuf: ours", "OTLP protobuf: crossrank", "OTLP protobuf: protobuf-python loop", 20)
    faster("OTLP protobuf: ours", "OTLP protobuf: crossrank", "OTLP protobuf: ptars + flatten", 3)
    faster("OTLP protobuf: ours", "OTLP protobuf: crossrank", "OTLP protobuf: ParseFromString alone", 1)
    faster("NDJSON: ours", "NDJSON: crossrank", "NDJSON: DuckDB read_json", 1.3)
    faster("OTLP/JSON: ours", "OTLP/JSON: crossrank", "OTLP/JSON: json.loads loop", 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    rows = spans()
    protobuf, lines, as_json = protobuf_body(rows), ndjson_body(rows), otlp_json_body(rows)
    assert otlp_fast.decode(protobuf, None, LIMITS).rows.num_rows == SPANS
    assert events_fast.decode_lines(lines, None, LIMITS).rows.num_rows == SPANS
    assert otlp_json_fast.decode(as_json, None, LIMITS).rows.num_rows == SPANS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.ndjson"
        path.write_bytes(lines)
        tasks = {
            "OTLP protobuf: crossrank": lambda: otlp_fast.decode(protobuf, None, LIMITS),
            "OTLP protobuf: ParseFromString alone": lambda: ExportTraceServiceRequest.FromString(protobuf),
            "OTLP protobuf: protobuf-python loop": lambda: protobuf_loop(protobuf),
            "NDJSON: crossrank": lambda: events_fast.decode_lines(lines, None, LIMITS),
            "NDJSON: DuckDB read_json": duckdb_reader(path),
            "OTLP/JSON: crossrank": lambda: otlp_json_fast.decode(as_json, None, LIMITS),
            "OTLP/JSON: json.loads loop": lambda: json_loop(as_json),
        }
        flatten = ptars_decoder()
        if flatten is None:
            print("ptars is absent (dependency group `rivals`): not compared")
        else:
            tasks["OTLP protobuf: ptars + flatten"] = lambda: flatten(protobuf)
        timings = take_turns(tasks, rounds=options.rounds)
    results = Results("ingest_decode")
    report(results, timings)
    results.finish()


if __name__ == "__main__":
    main()
