"""Whatever a file holds, an importer answers with events or with a fault that names it; never with a crash."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank import importers
from crossrank.errors import CrossrankError
from crossrank.importers.formats import decode_file
from crossrank.importers.source import Source
from crossrank.ingest.admit import admit
from crossrank.ingest.reasons import REASONS
from crossrank.limits import Limits
from crossrank.model.post import Post

TRACE = json.dumps(
    {
        "baseTimeNanoseconds": 1_711_964_646_000_000_000,
        "distributedInfo": {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "dp", "ranks": [0, 1]}]},
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 5.5, "dur": 1.25, "args": {"External id": 1}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 6.5, "dur": 1, "args": {"correlation": 7}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": 7.5, "dur": 1, "args": {"correlation": 7, "Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 3}},
            {"ph": "s", "id": 1, "cat": "fwdbwd", "pid": 1, "tid": 2, "ts": 5.5},
            {"ph": "f", "id": 1, "cat": "fwdbwd", "pid": 1, "tid": 2, "ts": 6.5},
        ],
        "traceName": "x",
    }
).encode()  # fmt: skip
DUMP = {
    "version": "2.9",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 5, "last_completed_collective": 4}},
    "entries": [
        {"record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 5, "p2p_seq_id": 0, "profiling_name": "nccl:all_reduce",
         "time_created_ns": 7, "input_sizes": [[2, 3]], "input_dtypes": ["Float"], "output_sizes": [[2, 3]], "output_dtypes": ["Float"],
         "state": "scheduled", "retired": False, "frames": [{"name": "f", "filename": "g", "line": 3}]}
    ],
}  # fmt: skip
LOG = {
    "header": {"id": "0x1", "rank": 0, "n_ranks": 2, "nnodes": 1},
    "metadata": {"dump_timestamp_us": 1_752_867_229_276_385, "hostname": "h", "pid": 3},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 8, "coll_exec_time_us": 5, "event_trace_ts": {"coll_start_ts": 1, "kernel_events": [{"kernel_stop_ts": 5}]}},
}  # fmt: skip
NODE = {
    "id": 3,
    "name": "x",
    "type": "COMM_COLL_NODE",
    "data_deps": [1],
    "start_time_micros": 9,
    "duration_micros": 4,
    "attr": [{"name": "comm_type", "int64_val": 0}],
}
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["name", "ranks", "x"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def survives(format_: str, data: bytes) -> None:
    """The file is imported and admitted, or refused."""
    try:
        decoded = decode_file(format_, data, Source("rank1", None, 5), Limits())
    except CrossrankError:
        return
    admitted = admit(decoded, Post("import", "", "", "j", 1, b""), Limits())
    indices = sorted([*decoded.index.tolist(), *(r.index for r in decoded.rejections)])
    assert indices == list(range(len(indices)))  # every record is an event or a rejection
    assert len(admitted.events) + len(admitted.rejections) == len(indices)


@given(st.lists(st.tuples(st.integers(0, len(TRACE) - 1), st.binary(max_size=3), st.integers(0, 5)), min_size=1, max_size=4))
def test_a_trace_with_any_bytes_changed(changes):
    data = bytearray(TRACE)
    for at, put, cut in changes:
        data[at : at + cut] = put
    survives("kineto", bytes(data))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key, part in inner for p in places(part, (*path, key))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return copy


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        ("kineto", json.loads(TRACE)),
        ("flight_recorder", DUMP),
        ("nccl_inspector", LOG),
        ("chakra", {"version": "1", "nodes": [NODE]}),
    ],
    ids=["kineto", "flight_recorder", "nccl_inspector", "chakra"],
)
@given(data=st.data())
def test_any_value_in_any_place(format_, value, data):
    path = data.draw(st.sampled_from(places(value)))
    survives(format_, json.dumps(changed(value, path, data.draw(VALUES))).encode())


@given(st.binary(max_size=200))
def test_any_bytes_as_an_execution_trace(data):
    survives("chakra", data)


def test_every_reason_an_importer_gives_is_declared():
    given_: set[str] = set()
    for path in Path(importers.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).rpartition(".")[2] in ("reject", "Rejection")
                and len(node.args) > 1
            ):
                given_ |= {c.value for c in ast.walk(node.args[1]) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    assert given_ - set(REASONS) == set()
    assert given_
