"""NCCL Inspector logs and Chakra execution traces: every field, both forms of each, and what cannot be known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.internal.encoder import _VarintBytes

from crossrank.errors import BadParameter, UndecodableBody
from crossrank.importers.chakra_messages import _messages
from crossrank.importers.formats import decode_file
from crossrank.importers.source import Source
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded

AT_US = 1_752_867_229_276_385


def read(format_: str, data: bytes, name: str = "x", rank: int | None = None) -> Decoded:
    return decode_file(format_, data, Source(name, rank, 1), Limits())


def rows(format_: str, data: bytes, **options: Any) -> list[dict[str, Any]]:
    return [r | {"attrs": json.loads(r["attrs"] or "{}")} for r in read(format_, data, **options).rows.to_pylist()]


# --- NCCL Inspector ---


def record(perf: dict[str, Any], part: str = "coll_perf", **header: Any) -> dict[str, Any]:
    return {
        "header": {"id": "0xe62dedaa97644a", "rank": 4, "n_ranks": 8, "nnodes": 1, **header},
        "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": AT_US, "hostname": "node1", "pid": 438776},
        part: perf,
    }


COLLECTIVE = {
    "coll": "ReduceScatter",
    "coll_sn": 1231,
    "coll_msg_size_bytes": 2_147_483_648,
    "coll_exec_time_us": 41_057,
    "coll_timing_source": "kernel_gpu",
    "coll_busbw_gbs": 366.13,
}
VERBOSE = {
    **COLLECTIVE,
    "event_trace_ts": {
        "coll_start_ts": AT_US - 41_326,
        "coll_stop_ts": AT_US - 41_321,
        "kernel_events": [{"kernel_start_ts": AT_US - 41_204, "kernel_stop_ts": AT_US - 574}, {"kernel_stop_ts": AT_US - 500}],
    },
}


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(r) for r in records).encode()


def test_an_operation_as_nccl_timed_it():
    (row,) = rows("nccl_inspector", lines(record(COLLECTIVE)), rank=9)
    expected = {
        "rank": 9,
        "host": "node1",
        "kind": "collective",
        "op": "reduce_scatter",
        "group": "0xe62dedaa97644a reduce_scatter",
        "seq": 1231,
        "bytes": 2_147_483_648,
        "end_ns": AT_US * 1000,
        "start_ns": (AT_US - 41_057) * 1000,
    }
    assert {k: row[k] for k in expected} == expected
    assert (row["attrs"]["rank_in_group"], row["attrs"]["group_size"], row["attrs"]["timing"]) == (4, 8, "kernel_gpu")


def test_verbose_records_say_when():
    (row,) = rows("nccl_inspector", lines(record(VERBOSE)), rank=9)
    assert (row["start_ns"], row["end_ns"]) == ((AT_US - 41_326) * 1000, (AT_US - 500) * 1000)


def test_messages_name_their_peer_only_where_ranks_are_global():
    message = {"p2p": "Send", "p2p_sn": 3, "p2p_peer": 5, "p2p_msg_size_bytes": 8, "p2p_exec_time_us": 10}
    data = lines(record(message, "p2p_perf"), record(message, "p2p_perf", n_ranks=2, id="0x2"))
    assert [(r["kind"], r["op"], r["peer"], r["seq"]) for r in rows("nccl_inspector", data)] == [
        ("send", "send", 5, 3),
        ("send", "send", None, 3),
    ]


def test_the_rank_in_the_largest_communicator_is_the_last_resort():
    data = lines(record(COLLECTIVE), record(COLLECTIVE, rank=1, n_ranks=2, id="0x2"))
    decoded = read("nccl_inspector", data, name="node1-pid438776.log")
    assert set(decoded.rows["rank"].to_pylist()) == {4}
    assert decoded.warnings == ["the rank, 4, is that in the largest communicator (8 ranks)"]
    with pytest.raises(BadParameter):
        read("nccl_inspector", lines(record(COLLECTIVE), record(COLLECTIVE, rank=5, id="0x2")))


def test_records_over_several_lines_and_broken_ones():
    text = json.dumps(record(COLLECTIVE), indent=2) + "\n{broken\n" + json.dumps(record({**COLLECTIVE, "coll_sn": 1232})) + "\n7\n"
    decoded = read("nccl_inspector", text.encode(), rank=0)
    assert decoded.rows["seq"].to_pylist() == [1231, 1232]
    assert [(r.index, r.reason) for r in decoded.rejections] == [(1, "bad_json"), (3, "not_an_object")]


@pytest.mark.parametrize("format_", ["nccl_inspector", "chakra"])
@pytest.mark.parametrize("data", [b"", b"{}", b"[1,2]", b"hello", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000])
def test_what_is_none_of_them_is_refused(format_, data):
    with pytest.raises(UndecodableBody):
        read(format_, data, rank=1)


# --- Chakra ---

NODES = [
    {"id": 1, "name": "aten::mm", "type": "COMP_NODE", "start_time_micros": AT_US, "duration_micros": 5, "attr": [("is_cpu_op", "bool_val", True)]},
    {"id": 2, "name": "gemm", "type": "COMP_NODE", "data_deps": [1], "start_time_micros": AT_US + 7, "duration_micros": 50, "attr": [("is_cpu_op", "bool_val", False), ("stream", "int64_val", 7)]},
    {"id": 3, "name": "nccl", "type": "COMM_COLL_NODE", "data_deps": [2], "ctrl_deps": [1], "start_time_micros": AT_US + 60, "duration_micros": 9, "attr": [("comm_type", "int64_val", 2), ("comm_size", "int64_val", 4096), ("pg_name", "string_val", "5"), ("stream", "int64_val", 20)]},
    {"id": 4, "name": "send", "type": "COMM_SEND_NODE", "start_time_micros": AT_US + 70, "duration_micros": 1, "attr": [("comm_dst", "int32_val", 6)]},
    {"id": 5, "name": "untimed", "type": "METADATA_NODE", "attr": []},
]  # fmt: skip


def as_json(node: dict[str, Any]) -> dict[str, Any]:
    return node | {"attr": [{"name": n, field: v} for n, field, v in node["attr"]]}


def camel(node: dict[str, Any]) -> dict[str, Any]:
    """As protobuf's own JSON has it: camel case, 64-bit integers as text."""

    def key(name: str) -> str:
        head, *rest = name.split("_")
        return head + "".join(r.capitalize() for r in rest)

    def value(v: Any) -> Any:
        if isinstance(v, list):
            return [value(x) for x in v]
        if isinstance(v, dict):
            return {key(k): value(x) for k, x in v.items()}
        return str(v) if type(v) is int else v

    return value(as_json(node))


def as_protobuf() -> bytes:
    classes = _messages()
    head = classes["GlobalMetadata"](version="1.1")
    head.attr.add(name="rank", int64_val=3)
    parts = [head]
    for n in NODES:
        node = classes["Node"](id=n["id"], name=n["name"])
        node.type = {"METADATA_NODE": 1, "COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_COLL_NODE": 7}[n["type"]]
        node.data_deps.extend(n.get("data_deps", ()))
        node.ctrl_deps.extend(n.get("ctrl_deps", ()))
        if "start_time_micros" in n:
            node.start_time_micros, node.duration_micros = n["start_time_micros"], n["duration_micros"]
        for name, field, value in n["attr"]:
            setattr(node.attr.add(name=name), field, value)
        parts.append(node)
    return b"".join(_VarintBytes(len(p.SerializeToString())) + p.SerializeToString() for p in parts)


def forms() -> dict[str, bytes]:
    head = {"version": "1.1", "attr": [{"name": "rank", "int64_val": 3}]}
    return {
        "lines": lines(head, *map(as_json, NODES)),
        "protobuf's JSON": "".join(json.dumps(v, indent=2) for v in ({"version": "1.1", "attr": [{"name": "rank", "int64Val": "3"}]}, *map(camel, NODES))).encode(),
        "one object": json.dumps({**head, "nodes": [as_json(n) for n in NODES]}).encode(),
        "protobuf": as_protobuf(),
    }  # fmt: skip


@pytest.mark.parametrize("form", sorted(forms()))
def test_timed_nodes_become_events_with_their_dependencies(form):
    decoded = read("chakra", forms()[form])
    mm, gemm, collective, send = decoded.rows.to_pylist()
    assert [r["kind"] for r in (mm, gemm, collective, send)] == ["other", "compute", "collective", "send"]
    assert (collective["op"], collective["group"], collective["bytes"], collective["lane"]) == ("all_gather", "5", 4096, "cuda:20")
    assert (send["peer"], send["rank"]) == (6, 3)
    assert gemm["links"] == [mm["span_id"]]
    assert collective["links"] == [gemm["span_id"], mm["span_id"]]
    assert (gemm["start_ns"], gemm["end_ns"]) == ((AT_US + 7) * 1000, (AT_US + 57) * 1000)
    assert [(r.index, r.reason) for r in decoded.rejections] == [(4, "missing_start")]


def test_a_graph_without_times_says_what_to_import():
    graph = {"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1, "name": "aten::mm", "ctrl_deps": 0, "attrs": []}]}
    with pytest.raises(UndecodableBody, match="Kineto trace"):
        read("chakra", json.dumps(graph).encode(), rank=0)


def test_a_cut_off_trace_is_refused():
    with pytest.raises(UndecodableBody):
        read("chakra", as_protobuf()[:-3], rank=3)
