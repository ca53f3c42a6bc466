"""One simulated run as a torch profiler and a flight recorder would have recorded it: a trace and a dump of every rank."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from crossrank.importers.formats import decode_file
from crossrank.importers.source import Source
from crossrank.ingest.admit import admit
from crossrank.limits import Limits
from crossrank.model.post import Post

AT_NS = 1_780_000_000_000_000_000
CALL_NS = 30_000  # from the entry of the dump to the call, and from there to the operation
_TORCH = {"float32": "Float", "float16": "Half", "bfloat16": "BFloat16"}
COMM = ("collective", "send", "recv")


def rows_by_rank(events: pa.Table) -> dict[int, list[dict[str, Any]]]:
    """Steps and communications of each rank, in order of time."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(events.to_pylist(), key=lambda r: (r["rank"], r["start_ns"])):
        if row["kind"] in (*COMM, "step", "compute"):
            found.setdefault(row["rank"], []).append(row)
    return found


def trace_file(
    rows: Iterable[Mapping[str, Any]], rank: int, *, seq: bool = False, calls: bool = True, groups: bool = True
) -> bytes:
    """A trace with kernels on streams. seq: they have their number; calls: they link to the call; groups: they name their group."""
    events: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        at, length = row["start_ns"], row["end_ns"] - row["start_ns"]
        if row["kind"] == "step":
            events.append(_span("user_annotation", f"ProfilerStep#{row['step']}", at - 4 * CALL_NS, length, 7, 7))
        elif row["kind"] == "compute":
            events.append(_span("kernel", row["name"], at, length, 0, 7))
        else:
            args: dict[str, Any] = {"Collective name": row["op"], "correlation": number}
            args |= {"In msg nelems": (row["bytes"] or 0) // 4, "Out msg nelems": (row["bytes"] or 0) // 4, "dtype": "Float"}
            args |= {"Dst Rank" if row["op"] == "send" else "Src Rank": row["peer"]} if row["kind"] != "collective" else {}
            args |= {"Process Group Name": row["group"], "Process Group Ranks": str(row["group_ranks"])} if groups else {}
            args |= {"Seq": row["seq"]} if seq else {}
            events.append(_span("kernel", f"ncclDevKernel_{row['op']}", at, length, 0, row["lane"], args))
            if calls:
                call = {"correlation": number}
                events.append(_span("cuda_runtime", "cudaLaunchKernelExC", at - CALL_NS, CALL_NS // 2, 7, 7, call))
    return json.dumps({"baseTimeNanoseconds": 0, "distributedInfo": {"rank": rank}, "traceEvents": events}).encode()


def _span(
    category: str, name: str, at_ns: int, length_ns: int, pid: int, tid: object, args: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    times = {"ts": f"{at_ns // 1000}.{at_ns % 1000:03d}", "dur": f"{length_ns // 1000}.{length_ns % 1000:03d}"}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": dict(args or {})}


def dump_file(
    rows: Iterable[Mapping[str, Any]], *, ahead_ns: int = 2 * CALL_NS, completed: bool = False, last: int | None = None
) -> bytes:
    """A dump. ahead_ns: enqueued so long before the operation ran; completed: with the times of completion; last: ring buffer."""
    entries = []
    for number, row in enumerate(r for r in rows if r["kind"] in COMM):
        members = list(row["group_ranks"])
        title = f"nccl:{row['op']}"
        if row["kind"] != "collective":
            here, there = members.index(row["rank"]), members.index(row["peer"])
            title += f" {here}->{there}" if row["kind"] == "send" else f" {here}<-{there}"
        entries.append(
            {
                "record_id": number,
                "process_group": [row["group"], "simulated"],
                "collective_seq_id" if row["kind"] == "collective" else "p2p_seq_id": row["seq"],
                "is_p2p": row["kind"] != "collective",
                "profiling_name": title,
                "input_sizes": [[(row["bytes"] or 0) // 4]],
                "output_sizes": [[(row["bytes"] or 0) // 4]],
                "input_dtypes": ["Float"],
                "output_dtypes": ["Float"],
                "time_created_ns": row["start_ns"] - ahead_ns,
                "time_discovered_completed_ns": row["end_ns"] + 1_000_000 if completed else None,
                "state": "completed" if completed else "scheduled",
                "retired": True,
            }
        )
    of_group = {r["group"]: r["group_ranks"] for r in rows if r["kind"] in COMM}
    config = {name: {"name": name, "ranks": str(list(ranks))} for name, ranks in of_group.items()}
    return json.dumps({"version": "2.9", "entries": entries[-last if last else 0 :], "pg_config": config, "pg_status": {}}).encode()


def imported(files: Iterable[tuple[str, bytes, int]]) -> pa.Table:
    """Files (format, content, rank) as events, the way an import admits them."""
    limits = Limits()
    post = Post(route="events", job="both", content_type="", content_encoding="", body=b"", received_ns=AT_NS)
    tables = [
        admit(decode_file(format_, body, Source(f"rank{rank}", rank, AT_NS), limits), post, limits).events
        for format_, body, rank in files
    ]
    return pa.concat_tables(tables).unify_dictionaries()
