"""Kineto traces small enough to read: every oddity of the format, with the events that must come out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard

from crossrank.errors import BadParameter, BodyTooLarge, UndecodableBody
from crossrank.importers import json_stream
from crossrank.importers.formats import decode_file
from crossrank.importers.kineto_names import is_communication_kernel
from crossrank.importers.kineto_overlong import LATEST_NS
from crossrank.importers.source import Source
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded

BASE = 1_711_964_646_000_000_000
NCCL = {
    "Collective name": "allreduce",
    "In msg nelems": 100,
    "Out msg nelems": 100,
    "Group size": 2,
    "dtype": "BFloat16",
    "Process Group Name": "3",
    "Process Group Ranks": "[1, 4]",
    "Seq": 17,
}


def span(
    name: str, ts: object = "5.000", dur: object = "1.500", cat: str = "cpu_op", pid: object = 10, tid: object = 11, **args: Any
) -> str:
    head = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
    return json.dumps(head)[:-1] + f', "ts": {ts}, "dur": {dur}, "args": {json.dumps(args)}}}'


def trace(*events: str, before: str = '"baseTimeNanoseconds": 1711964646000000000', after: str = "", rank: object = 3) -> bytes:
    info = f', "distributedInfo": {{"rank": {json.dumps(rank)}, "world_size": 8}}' if rank is not None else ""
    return ("{" + before + info + ', "traceEvents": [' + ",\n".join(events) + "]" + (f", {after}" if after else "") + "}").encode()


def read(data: bytes, name: str = "trace.json", rank: int | None = None, limits: Limits | None = None) -> Decoded:
    return decode_file("kineto", data, Source(name, rank, 1), limits or Limits())


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    return [row | {"attrs": json.loads(row["attrs"] or "{}")} for row in read(data, **options).rows.to_pylist()]


def only(data: bytes) -> dict[str, Any]:
    (row,) = rows(data)
    return row


def test_times_are_exact_nanoseconds_after_the_base():
    row = only(trace(span("aten::mm", "4458676522690.655", "156.777")))
    assert (row["start_ns"], row["end_ns"]) == (BASE + 4_458_676_522_690_655, BASE + 4_458_676_522_690_655 + 156_777)


def test_an_absolute_time_of_an_old_trace_keeps_every_digit():
    row = only(trace(span("aten::mm", "1682725898236567", "68.0"), before='"schemaVersion": 1'))
    assert (row["start_ns"], row["end_ns"]) == (1_682_725_898_236_567_000, 1_682_725_898_236_635_000)


def test_bases_91_days_apart_align():
    """Two ranks started on two sides of an edge of the base: the same moment has stamps 91 days apart."""
    period = 7_889_238_000_000_000
    early = only(trace(span("x", f"{period // 1000 + 12}.345"), rank=0))
    late = only(trace(span("x", "12.345"), before=f'"baseTimeNanoseconds": {BASE + period}', rank=1))
    assert early["start_ns"] == late["start_ns"]


@pytest.mark.parametrize("number", ["5", "5.0", "5.000", "5e0", '"5"', "0.005e3"])
def test_spellings_of_a_time(number):
    assert only(trace(span("x", number)))["start_ns"] == BASE + 5_000


def test_what_stands_behind_the_events_counts_as_well():
    after = '"distributedInfo": {"rank": 6, "pg_config": [{"pg_name": "3", "ranks": "[1, 4, 9]"}]}, "baseTimeNanoseconds": 1711964646000000000'
    row = only(
        trace(span("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", cat="kernel", **NCCL), before='"a": 1', rank=None, after=after)
    )
    assert (row["rank"], row["start_ns"], row["group_ranks"]) == (6, BASE + 5_000, [1, 4, 9])


@pytest.mark.parametrize("rank", [3, "3"])
def test_the_rank_of_the_file(rank):
    assert only(trace(span("x"), rank=rank))["rank"] == 3


def test_a_trace_without_a_rank_says_how_to_give_it():
    with pytest.raises(BadParameter, match="--rank N") as fault:
        read(trace(span("x"), rank=None))
    assert fault.value.detail == {"field": "rank"}
    assert rows(trace(span("x"), rank=None), rank=5)[0]["rank"] == 5
    assert rows(trace(span("x"), rank=None), name="rank7.json.gz")[0]["rank"] == 7
    with pytest.raises(BadParameter, match="--rank N"):
        read(trace(span("x"), rank=None), name="worker_1074.pt.trace.json")  # a process, not a rank
    with pytest.raises(BadParameter, match="rank 4 was given, the file says rank 3"):
        read(trace(span("x")), rank=4)


def test_communication_on_the_device_and_its_launch_on_the_host():
    data = trace(
        span("record_param_comms", **NCCL),
        span("nccl:all_reduce", cat="user_annotation"),
        span("c10d::allreduce_"),
        span("aten::mm"),
        span("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)", cat="kernel", pid=0, tid=20, **NCCL),
        span("sm80_gemm", cat="kernel", pid=0, tid=7),
        span("Memcpy HtoD", cat="gpu_memcpy", pid=0, tid=7),
        span("Memset", cat="gpu_memset", pid=0, tid=7),
        span("nccl:all_reduce", cat="gpu_user_annotation", pid=0, tid=20),
        span("Stream Sync", cat="cuda_sync", pid=0, tid=7),
        span("cudaDeviceSynchronize", cat="cuda_runtime"),
        span("cudaLaunchKernel", cat="cuda_runtime"),
    )
    found = rows(data)
    assert [r["kind"] for r in found] == [*["other"] * 4, "collective", "compute", "copy", "copy", "other", "sync", "sync", "other"]
    device = found[4]
    expected = {
        "op": "all_reduce",
        "group": "3",
        "seq": 17,
        "group_ranks": [1, 4],
        "bytes": 200,
        "dtype": "BFloat16",
        "lane": "cuda:0:20",
    }
    assert {name: device[name] for name in expected} == expected
    assert not device["is_async"]
    assert len({r["lane"] for r in found}) == 5  # what lies over a stream is on a lane of its own


def test_without_a_device_the_host_does_the_work():
    found = rows(
        trace(span("record_param_comms", **NCCL), span("aten::mm"), span("record_param_comms", **{"Collective name": "wait"}))
    )
    assert [(r["kind"], r["is_async"]) for r in found] == [("collective", True), ("compute", False), ("other", False)]


def test_gloo_operations_are_the_operation_itself():
    config = '"distributedInfo": {"rank": 3, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}]}'
    annotation = {"cat": "user_annotation", "tid": 99, "Input Dims": [[8, 4]], "Input type": ["float"]}
    found = rows(trace(span("gloo:all_reduce", **annotation), span("gloo:send", **annotation), rank=None, before=config))
    assert [(r["kind"], r["op"], r["group"], r["bytes"], r["is_async"]) for r in found] == [
        ("collective", "all_reduce", "0", 128, False),
        ("send", "send", "0", 128, False),
    ]


@pytest.mark.parametrize(
    ("name", "args", "kind", "op", "peer"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", {}, "collective", "all_reduce", None),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage)", {}, "collective", "all_gather", None),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", {}, "collective", "reduce_scatter", None),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", {}, "collective", "all_reduce", None),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgs)", {"Collective name": "_allgather_base"}, "collective", "all_gather", None),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgs)", {}, "collective", None, None),
        (
            "ncclDevKernel_SendRecv(ncclDevKernelArgs)",
            {"Collective name": "send", "Dst Rank": 12, "Src Rank": 3},
            "send",
            "send",
            12,
        ),
        (
            "ncclDevKernel_SendRecv(ncclDevKernelArgs)",
            {"Collective name": "recv", "Dst Rank": 3, "Src Rank": 12},
            "recv",
            "recv",
            12,
        ),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgs)", {"Collective name": "all_to_allv"}, "collective", "all_to_all", None),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgs)", {}, "collective", "send_recv", None),
        ("volta_sgemm_128x64_nn", {}, "compute", None, None),
    ],
)
def test_kernels_by_name_and_arguments(name, args, kind, op, peer):
    row = only(trace(span(name, cat="kernel", pid=0, tid=20, **args)))
    assert (row["kind"], row["op"], row["peer"]) == (kind, op, peer)


def test_kernels_of_others_are_not_taken_for_communication():
    assert not is_communication_kernel("my_ncclKernel")
    assert not is_communication_kernel("void at::native::reduce_kernel")


def test_steps_are_those_of_the_host():
    found = rows(
        trace(span("ProfilerStep#551", cat="user_annotation"), span("ProfilerStep#551", cat="gpu_user_annotation", pid=0, tid=7))
    )
    assert [(r["kind"], r["step"]) for r in found] == [("step", 551), ("other", None)]


def test_work_is_linked_to_its_launch_and_backward_to_forward():
    arrows = [
        '{"ph": "s", "id": 9, "pid": 10, "tid": 11, "ts": 1.000, "cat": "fwdbwd", "name": "fwdbwd"}',
        '{"ph": "f", "id": 9, "pid": 10, "tid": 12, "ts": 8.000, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}',
        '{"ph": "s", "id": 10, "pid": 10, "tid": 11, "ts": 99.000, "cat": "fwdbwd", "name": "fwdbwd"}',
    ]
    data = trace(
        span("gemm", "6.0", cat="kernel", pid=0, tid=7, correlation=77),  # before its launch in the file
        span("aten::linear", "1.000"),
        span("aten::addmm", "1.000", "0.5"),
        span("cudaLaunchKernel", "2.0", cat="cuda_runtime", correlation=77),
        *arrows,
        span("AddmmBackward0", "8.0", tid=12),
        span("orphan", "9.0", cat="kernel", pid=0, tid=7, correlation=78),
    )
    found = {r["name"]: r for r in rows(data)}
    assert found["gemm"]["links"] == [found["cudaLaunchKernel"]["span_id"]]
    assert found["AddmmBackward0"]["links"] == [found["aten::addmm"]["span_id"]]
    assert [name for name, r in found.items() if r["links"]] == ["gemm", "AddmmBackward0"]


def test_overlapping_and_equal_spans_are_all_kept():
    """Programmatic dependent launch overlaps kernels on one stream; one viewer after the other has dropped them."""
    data = trace(*[span("k", ts, "100.0", cat="kernel", pid=0, tid=7) for ts in ("10.0", "90.0", "90.0", "90.0")])
    found = rows(data)
    assert len({r["span_id"] for r in found}) == 4
    assert [r["span_id"] for r in found] == [r["span_id"] for r in rows(data)]


def test_ids_do_not_depend_on_how_the_file_is_cut_into_pieces(monkeypatch):
    events = [span(f"op{i % 7}", f"{i // 3}.{i % 3:03}", cat="kernel", pid=0, tid=7) for i in range(500)]
    whole = read(trace(*events)).rows
    monkeypatch.setattr(json_stream, "PIECE_BYTES", 1000)
    assert read(trace(*events)).rows.combine_chunks().equals(whole.combine_chunks())


def test_a_clock_that_was_not_read_is_quarantined():
    decoded = read(trace(span("k", "0", cat="kernel"), span("k", "5.0", cat="kernel"), span("k", "0.000", cat="kernel")))
    assert [(r.index, r.reason) for r in decoded.rejections] == [(0, "start_zero"), (2, "start_zero")]
    assert decoded.index.tolist() == [1]


def test_bare_inf_and_nan_load_as_null_with_a_warning():
    element = span("Memcpy", cat="gpu_memcpy", note='inf or nan, \\ "inf"').replace(
        '"args": {', '"args": {"bandwidth": inf, "x": -nan, '
    )
    decoded = read(trace(span("a"), element, span("b", dur="nan")))
    attrs = json.loads(decoded.rows["attrs"][1].as_py())
    assert (attrs["bandwidth"], attrs["x"], attrs["note"]) == (None, None, 'inf or nan, \\ "inf"')
    assert decoded.warnings == [
        "3 values were inf or nan, which is not JSON; they are null",
        "1 spans have no usable duration; they count as moments",
    ]
    assert len(decoded.rows) == 3


@pytest.mark.parametrize("cut", ["element", "list", "gzip"])
def test_a_trace_that_is_cut_off_keeps_its_complete_events(cut):
    data = trace(*[span("a", f"{i}.5") for i in range(1, 2000)])
    if cut == "element":
        data = data[: len(data) // 2]
    elif cut == "list":
        data = data[: data.rindex(b"]")] + b","
    else:
        data = gzip.compress(data)[:-3000]
    decoded = read(data)
    assert any("cut off" in w for w in decoded.warnings)
    assert 500 < len(decoded.rows) <= 1999
    assert decoded.rows["start_ns"].to_pylist() == [BASE + i * 1000 + 500 for i in range(1, len(decoded.rows) + 1)]


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, zstandard.ZstdCompressor().compress, lambda d: gzip.compress(d[:50]) + gzip.compress(d[50:])],
    ids=["plain", "gzip", "zstd", "gzip members"],
)
def test_compressed_files(pack: Callable[[bytes], bytes]):
    assert only(pack(trace(span("x"))))["name"] == "x"


def test_bad_elements_are_refused_one_by_one():
    decoded = read(trace(span("a"), '{"ph": "X", "cat": 3}', "7", '{"ph": "X"}', span("b"), '{"ph": oops}', span("c", "[1]")))
    assert decoded.rows["name"].to_pylist() == ["a", "b"]
    assert [(r.index, r.reason) for r in sorted(decoded.rejections, key=lambda r: r.index)] == [
        (1, "bad_type"),
        (2, "bad_type"),
        (3, "bad_type"),
        (5, "bad_json"),
        (6, "bad_type"),
    ]
    assert decoded.index.tolist() == [0, 4]


def test_hostile_arguments_are_bounded():
    deep = "[" * 500 + "]" * 500
    many = {f"key{i}": i for i in range(300)}
    data = trace(
        span("a", x="y" * 10_000),
        span("b", **many),
        span("c", x=1).replace('"args": {', f'"args": {{"deep": {deep}, '),
        span("k" * 5000),
    )
    found = rows(data)
    assert len(found[0]["attrs"]["x"]) == Limits().value_bytes
    assert len(found[1]["attrs"]) == Limits().attrs_per_event
    assert found[2]["attrs"] == {"cut": "nested too deeply"}
    assert [r["flags"] for r in found] == [4, 4, 4, 0]  # names are cut by the admission


@pytest.mark.parametrize("data", [b"", b"7", b"hello", b'{"a": 1}', b'{"distributedInfo": 3', gzip.compress(b"x")[:10]])
def test_what_is_no_trace_is_refused(data):
    with pytest.raises(UndecodableBody):
        read(data, rank=1)


def test_a_list_of_events_is_a_trace_too():
    assert [r["name"] for r in rows(("[" + span("a") + "," + span("b") + "]").encode(), rank=0)] == ["a", "b"]


def test_a_file_beyond_the_limit_is_refused():
    data = trace(*[span("a", f"{i}.5") for i in range(1, 100)])
    with pytest.raises(BodyTooLarge, match="in clear"):
        read(data, limits=Limits(import_bytes=1000))
    with pytest.raises(BodyTooLarge, match="events"):
        read(data, limits=Limits(events_per_body=10))


def test_relative_times_are_said_to_be_so():
    decoded = read(trace(span("a"), before='"x": 1'))
    assert any("since the epoch" in w for w in decoded.warnings)


def test_numbers_are_read_exactly():
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**62, 2000) >> rng.integers(0, 60, 2000)
    found = rows(
        trace(*[span("a", f"{v // 1000}.{v % 1000:03}", f"{v % 7}.25") for v in values.tolist() if 0 < v < LATEST_NS], rank=0)
    )
    wanted = [v for v in values.tolist() if 0 < v < LATEST_NS]
    assert [r["start_ns"] - BASE for r in found] == wanted
    assert [r["end_ns"] - r["start_ns"] for r in found] == [v % 7 * 1000 + 250 for v in wanted]


def test_a_file_of_many_fields_is_read_in_one_pass():
    fields = ", ".join(f'"f{i}": {i}' for i in range(200_000))
    assert only(trace(span("a"), before=fields + ', "baseTimeNanoseconds": 1711964646000000000'))["start_ns"] == BASE + 5_000
