"""A simulated job as bytes, batches and files: nothing is lost, everything repeats, and forms say the same."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import Delivery, deliver
from crossrank.simulate.encode import arrow_stream, ndjson, otlp_protobuf, seed_form
from crossrank.simulate.faults import Hang, MissingRank, SlowLoader
from crossrank.simulate.files import write_job
from crossrank.simulate.job import Simulated, simulate

CONFIG = JobConfig(job='odd "job" \n é', dp=2, tp=2, pp=2, steps=3, ranks_per_host=4)


@pytest.fixture(scope="module")
def hung() -> Simulated:
    return simulate(CONFIG, [Hang(1, 2)], seed=1)


def sent_fields(event: dict) -> dict:
    """An event of the table as its JSON form has it."""
    out = {k: v.hex() if isinstance(v, bytes) else v for k, v in event.items() if v is not None}
    for name in ("flags", "received_ns"):
        del out[name]
    if not out["is_async"]:
        del out["is_async"]
    if "attrs" in out:
        out["attrs"] = json.loads(out["attrs"])
    out.setdefault("end_ns", None)
    return out


def test_ndjson_says_every_field_of_every_event(hung):
    lines = [json.loads(line) for line in ndjson(hung.events).splitlines()]
    assert lines == [sent_fields(e) for e in hung.events.to_pylist()]
    assert any(line["end_ns"] is None for line in lines)


def test_ndjson_of_a_slice_is_a_slice_of_the_ndjson(hung):
    whole = ndjson(hung.events).splitlines(keepends=True)
    assert ndjson(hung.events.slice(37, 11)) == b"".join(whole[37:48])
    assert ndjson(hung.events.slice(0, 0)) == b""


def test_seed_form_has_both_halves_of_every_closed_span_in_time_order(hung):
    halves = [json.loads(line) for line in seed_form(hung.events).splitlines()]
    assert all(set(h) <= {"trace_id", "span_id", "parent_span_id", "event", "rank", "timestamp_ns", "attrs"} for h in halves)
    stamps = [h["timestamp_ns"] for h in halves]
    assert stamps == sorted(stamps)
    pairs: dict[tuple, dict[str, dict]] = {}
    for h in halves:
        pairs.setdefault((h["rank"], h["span_id"]), {})[h["event"].rpartition("_")[2]] = h
    for event in hung.events.to_pylist():
        pair = pairs.pop((event["rank"], event["span_id"].hex()))
        expected = sent_fields(event)
        assert pair["start"]["timestamp_ns"] == event["start_ns"]
        assert ("end" in pair) == (event["end_ns"] is not None)
        assert "end" not in pair or pair["end"]["timestamp_ns"] == event["end_ns"]
        assert pair["start"]["event"] == event["name"] + "_start"
        told = pair["start"]["attrs"]
        inner = expected.pop("attrs", {})
        assert {k: v for k, v in told.items() if k not in inner and k != "is_async"} == {
            k: v
            for k, v in expected.items()
            if k not in ("trace_id", "span_id", "parent_span_id", "rank", "name", "start_ns", "end_ns")
        }
        assert inner.items() <= told.items()
    assert not pairs


def test_arrow_stream_holds_the_columns_as_they_are(hung):
    back = pa.ipc.open_stream(arrow_stream(hung.events)).read_all()
    assert back.equals(hung.events.select(back.column_names))


def test_otlp_has_one_resource_a_rank_and_all_attributes(hung):
    request = ExportTraceServiceRequest.FromString(otlp_protobuf(hung.events))
    assert len(request.resource_spans) == 8
    spans = {(r, s.span_id): s for r, resource in enumerate(request.resource_spans) for s in resource.scope_spans[0].spans}
    for event in hung.events.to_pylist():
        span = spans.pop((event["rank"], event["span_id"]))
        assert span.start_time_unix_nano == event["start_ns"]
        assert span.end_time_unix_nano == (event["end_ns"] or 0)
        told = {a.key: a.value for a in span.attributes}
        assert told["crossrank.kind"].string_value == event["kind"]
        if event["group"] is not None:
            assert told["crossrank.seq"].int_value == event["seq"]
            assert [v.int_value for v in told["crossrank.group_ranks"].array_value.values] == event["group_ranks"]
    assert not spans


def identity(table: pa.Table) -> list[tuple]:
    return sorted(zip(table["rank"].to_pylist(), table["span_id"].to_pylist(), strict=True))


@pytest.mark.parametrize("shuffled", [False, True])
def test_batches_hold_every_event_once_and_duplicates_are_whole_batches(hung, shuffled):
    plain = deliver(hung, Delivery(every_ns=100_000_000, batch_events=16, shuffled=shuffled), seed=5)
    assert identity(pa.concat_tables([b.events for b in plain])) == identity(hung.events)
    assert all(b.events.num_rows <= 16 and set(b.events["rank"].to_pylist()) == {b.rank} for b in plain)
    twice = deliver(hung, Delivery(every_ns=100_000_000, batch_events=16, duplicate_fraction=0.5, shuffled=shuffled), seed=5)
    assert 1.3 * len(plain) < len(twice) < 1.7 * len(plain)
    merged = pa.concat_tables([b.events for b in twice])
    assert sorted(set(identity(merged))) == identity(hung.events)
    again = deliver(hung, Delivery(every_ns=100_000_000, batch_events=16, duplicate_fraction=0.5, shuffled=shuffled), seed=5)
    assert [(b.rank, b.available_ns) for b in again] == [(b.rank, b.available_ns) for b in twice]


def test_batches_in_order_are_sent_after_what_they_hold_has_ended(hung):
    ended = dict(zip(identity_rows(hung.events), hung.true_end_ns.tolist(), strict=True))
    batches = deliver(hung, Delivery(every_ns=100_000_000), seed=6)
    assert [b.available_ns for b in batches] == sorted(b.available_ns for b in batches)
    for batch in batches:
        for key in identity_rows(batch.events):
            late = CONFIG.start_ns + batch.available_ns - ended[key]
            assert late > 0 if ended[key] == 0 else 0 < late <= 100_000_000


def identity_rows(table: pa.Table) -> list[tuple]:
    return list(zip(table["rank"].to_pylist(), table["span_id"].to_pylist(), strict=True))


def test_files_hold_the_job_its_truth_and_repeat_byte_by_byte(tmp_path):
    job = simulate(CONFIG, [SlowLoader(1, (1, 2)), MissingRank(3)], seed=2)
    paths = write_job(job, tmp_path / "a")
    assert [p.name for p in paths] == [f"rank{n}.ndjson.gz" for n in range(8)]
    assert gzip.decompress(paths[3].read_bytes()) == b""
    text = b"".join(gzip.decompress(p.read_bytes()) for p in paths)
    assert text == ndjson(job.events)
    truth = json.loads((tmp_path / "a" / "truth.json").read_text())
    assert [f["fault"] for f in truth["faults"]] == ["slow_loader", "missing_rank"]
    assert truth["cost_ns"][0] == truth["total_cost_ns"] > 40_000_000
    assert truth["cost_ns"][1] == 0
    assert np.array_equal(truth["step_end_ns"], job.step_end_ns)
    assert json.loads((tmp_path / "a" / "topology.json").read_text()) == job.topology
    for one, two in zip(paths, write_job(job, tmp_path / "b"), strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert pc.all(pc.not_equal(job.events["rank"], 3)).as_py()
