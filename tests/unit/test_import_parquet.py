"""Parquet from anywhere: our own export comes back identical, recorded jobs come with their dependencies, hostile files end a child."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossrank.errors import UndecodableBody
from crossrank.importers import whatif
from crossrank.importers.formats import decode_file
from crossrank.importers.source import Source
from crossrank.importers.untrusted_parquet import parquet_batches
from crossrank.ingest.admit import admit
from crossrank.limits import Limits
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.decoded import Decoded
from crossrank.model.post import Post
from crossrank.model.trace import trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import ndjson
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

ORIGIN = whatif.ORIGIN_NS


def read(format_: str, table: pa.Table | bytes, limits: Limits | None = None) -> Decoded:
    data = table
    if isinstance(table, pa.Table):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        data = sink.getvalue()
    return decode_file(format_, data, Source("x.parquet", None, 1), limits or Limits())


def admitted(decoded: Decoded) -> pa.Table:
    return admit(decoded, Post("import", "", "", "j", 1, b""), Limits()).events


# --- our own export ---


def test_an_export_comes_back_identical(tmp_path):
    config = JobConfig(dp=2, tp=2, pp=2, steps=3)
    with InProcess(tmp_path / "data") as service:
        service.post("/v1/events", ndjson(simulate(config, seed=3).events), "application/x-ndjson")
        (job,) = [entry["job"] for entry in service.get("/v1/jobs")["jobs"]]
        service.derive(job)
        exported = service.request("GET", f"/v1/jobs/{job}/export", params={"format": "parquet"}).content
        answer = service.request("POST", "/v1/import", params={"format": "crossrank", "job": "again"}, content=exported)
        assert answer.json()["rejected"] == 0
        service.derive("again")
        second = service.request("GET", "/v1/jobs/again/export", params={"format": "parquet"}).content
    first_table, second_table = (pq.read_table(io.BytesIO(data)).drop(["job", "received_ns"]) for data in (exported, second))
    assert len(first_table) > 500
    assert second_table.equals(first_table)


def test_an_export_without_what_an_event_needs_is_refused():
    with pytest.raises(UndecodableBody, match="no column lane, name"):
        read("crossrank", pa.table({"rank": [1], "start_ns": [5], "end_ns": [6], "span_id": [b"12345678"]}))


def test_odd_columns_of_an_export():
    events = {"rank": [1, 2], "lane": ["a", "a"], "name": ["x", "y"], "start_ns": [5, 6], "end_ns": [7, None]}
    ids = pa.array([b"12345678", b"12345679"], type=pa.binary(8))
    decoded = read("crossrank", pa.table({**events, "span_id": ids, "attrs": ['{"b": 1, "a": [2]}', "[1]"], "foreign": [1, 2]}))
    assert decoded.rows["attrs"].to_pylist() == ['{"a":[2],"b":1}']
    assert [(r.index, r.reason) for r in decoded.rejections] == [(1, "not_an_object")]
    with pytest.raises(UndecodableBody, match="rank"):
        read("crossrank", pa.table({**events, "span_id": ids, "rank": ["a", "b"]}))


# --- hostile files ---


def test_what_is_no_parquet_is_refused():
    sink = io.BytesIO()
    pq.write_table(pa.table({"rank": list(range(10_000))}), sink)
    whole = sink.getvalue()
    rng = np.random.default_rng(1)
    for data in (b"", b"PAR1", b"hello", whole[:-10], whole[: len(whole) // 2], b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1"):
        with pytest.raises(UndecodableBody, match="cannot be read"):
            list(parquet_batches(io.BytesIO(data), ["rank"], 10**6))
    for _ in range(5):  # any flipped byte: refused or read, never a crash of ours
        broken = bytearray(whole)
        broken[int(rng.integers(len(whole)))] ^= int(rng.integers(1, 256))
        try:
            rows = sum(len(b) for b in parquet_batches(io.BytesIO(bytes(broken)), ["rank"], 10**6))
        except UndecodableBody:
            continue
        assert rows in (0, 10_000)


def test_more_rows_than_allowed_are_refused():
    sink = io.BytesIO()
    pq.write_table(pa.table({"rank": pa.nulls(2_000_000, pa.int64())}), sink)
    with pytest.raises(UndecodableBody, match="2000000 rows"):
        list(parquet_batches(sink, ["rank"], 1_000_000))


# --- recorded jobs ---


def operation(optype: str, start: float, duration: float, **changes: Any) -> dict[str, Any]:
    row = {"dp_rank": 0, "stage": 0, "rank": 0, "step": 7, "optype": optype, "start_ts": start, "duration": duration}
    return {**row, "seq_id": 0, "mc": -1, "mb_id": -1, "gmc": -1, **changes}


def two_stages() -> pa.Table:
    first, last = {"gmc": 0, "mc": 0}, {"gmc": 1, "mc": 0, "stage": 1, "rank": 1}
    return pa.Table.from_pylist(
        [
            operation("params-all-gather", 0.0, 0.5),
            operation("forward-compute", 0.5, 1.0, **first),
            operation("forward-send", 1.5, 0.25),
            operation("forward-recv", 0.0, 1.75, stage=1, rank=1),
            operation("forward-compute", 1.75, 1.0, **last),
            operation("backward-compute", 2.75, 1.0, **last),
            operation("backward-send", 3.75, 0.25, stage=1, rank=1),
            operation("backward-recv", 1.75, 2.25),
            operation("backward-compute", 4.0, 1.0, **first),
            operation("embedding-grads-all-reduce", 5.0, 0.5),
            operation("embedding-grads-all-reduce", 4.5, 1.0, stage=1, rank=1),
            operation("optimizer-clip-main-grad", 5.5, 0.25),
            operation("optimizer-clip-main-grad", 5.5, 0.25, stage=1, rank=1),
            operation("optimizer", 5.75, 0.25),
            operation("optimizer", 5.75, 0.5, stage=1, rank=1),
            operation("forward-compute", 0.0, 1.0, step=9, **first),
            operation("gc", float("nan"), 1.0),
        ]
    )


def test_a_recorded_step_becomes_events_with_its_dependencies():
    decoded = read("whatif", two_stages())
    assert [(r.index, r.reason) for r in decoded.rejections] == [(16, "out_of_range")]
    rows = decoded.rows.to_pylist()
    name = {r["span_id"]: (r["rank"], r["name"]) for r in rows}
    edges = {((r["rank"], r["name"]), name[link]) for r in rows for link in r["links"] or [] if r["step"] == 7}
    assert edges == {
        ((0, "params-all-gather"), (0, "step-begin")),
        ((0, "forward-compute"), (0, "params-all-gather")),
        ((0, "forward-send"), (0, "forward-compute")),
        ((1, "forward-recv"), (1, "step-begin")),
        ((1, "forward-compute"), (1, "forward-recv")),
        ((1, "backward-compute"), (1, "forward-compute")),
        ((1, "backward-send"), (1, "backward-compute")),
        ((0, "backward-recv"), (0, "step-begin")),
        ((0, "backward-compute"), (0, "backward-recv")),
        ((0, "backward-compute"), (0, "forward-compute")),
        *(((r, "embedding-grads-all-reduce"), (r, "backward-compute")) for r in (0, 1)),
        ((0, "embedding-grads-all-reduce"), (0, "params-all-gather")),
        *(((r, "optimizer-clip-main-grad"), (r, "embedding-grads-all-reduce")) for r in (0, 1)),
        *(((r, "optimizer"), (r, "optimizer-clip-main-grad")) for r in (0, 1)),
        *(((r, "optimizer"), (r, "backward-compute")) for r in (0, 1)),
        *(((r, "step"), (r, "step-begin")) for r in (0, 1)),
    }
    (begins,) = [r for r in rows if (r["name"], r["step"], r["rank"]) == ("step-begin", 9, 0)]
    assert [name[link] for link in begins["links"]] == [(0, "optimizer")]
    by_name = {(r["rank"], r["name"], r["step"]): r for r in rows}
    assert (by_name[0, "forward-send", 7]["peer"], by_name[1, "forward-recv", 7]["peer"]) == (1, 0)
    assert by_name[0, "embedding-grads-all-reduce", 7]["group_ranks"] == [0, 1]
    assert by_name[0, "params-all-gather", 7]["group_ranks"] == [0]
    assert by_name[0, "forward-compute", 7]["start_ns"] == ORIGIN + 500_000_000
    assert by_name[0, "forward-compute", 9]["start_ns"] == ORIGIN + 6_250_000_000  # behind all of the step before
    assert (by_name[1, "step", 7]["start_ns"], by_name[1, "step", 7]["end_ns"]) == (ORIGIN, ORIGIN + 6_250_000_000)
    trace = trace_from_arrow(admitted(decoded), job="j", attempt=0)
    found = match(trace)
    assert found.unmatched == {}
    assert len(found.messages.send) == 2


def test_recorded_jobs_match_completely(recordings):
    path = recordings / "whatif" / "trace-ST.parquet"
    if not path.exists():
        pytest.skip("this recording is not in the committed sample")
    truth = pq.read_table(path)
    decoded = read("whatif", path.read_bytes())
    rows = decoded.rows.filter(pa.array([not name.startswith("step") for name in decoded.rows["name"].to_pylist()]))
    assert len(rows) == len(truth)
    assert rows["name"].to_pylist() == truth["optype"].cast(pa.string()).to_pylist()
    length = rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy()
    cut = truth["duration"].to_numpy().astype(np.float64) * 1e9 - length
    assert cut.min() >= -1
    assert cut.max() <= 50_000  # ends that float32 seconds have put after the start of what waits for them
    found = match(trace_from_arrow(admitted(decoded), job="j", attempt=0))
    assert found.unmatched == {}
    assert len(found.messages.send) == truth["optype"].cast(pa.string()).to_pylist().count("forward-send") * 2
    ends = found.collectives
    assert (np.diff(ends.ptr) == ends.expected).all()


def test_a_table_of_something_else_is_refused():
    with pytest.raises(UndecodableBody, match="no column"):
        read("whatif", pa.table({"a": [1]}))
    with pytest.raises(UndecodableBody):
        read("whatif", two_stages().set_column(2, "rank", pa.array(["x"] * 17)))


def test_an_empty_export_holds_nothing():
    empty = pa.table({f.name: pa.nulls(0, f.type) for f in EVENT_SCHEMA if not pa.types.is_dictionary(f.type)})
    assert len(read("crossrank", empty.append_column("x", pa.nulls(0))).rows) == 0
