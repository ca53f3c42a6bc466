"""NCCL Inspector logs (the profiler plugin that ships with NCCL): one JSON object an operation, as NCCL itself timed it.

    end = dump_timestamp_us, start = end - exec_time       without verbose output: the log is written soon after the operation
    start = coll_start_ts, end = last kernel_stop_ts       with NCCL_INSPECTOR_DUMP_VERBOSE=1, all by the host's clock

`rank` in the log is the rank in the communicator. The global rank comes from the user or the file's name; without either it is
the rank in the largest communicator of the log, which is all ranks wherever there is one. An operation is named by (communicator,
operation, serial number), and serial numbers count each operation by itself, so a group here is a communicator and an operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from crossrank.errors import BadParameter, UndecodableBody
from crossrank.importers.json_objects import json_objects
from crossrank.importers.plain_bytes import read_plain
from crossrank.importers.rows import Rows, int64, span_id
from crossrank.importers.source import Recording, Source, rank_in_name
from crossrank.limits import Limits
from crossrank.model.kinds import canonical_op

_MESSAGES: Final = {"send": "send", "recv": "recv"}


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """The operations of one process. Raises UndecodableBody, BodyTooLarge, BadParameter (no rank)."""
    records = [_record(value) for value in json_objects(read_plain(file, limits.body_bytes))]
    usable = [r for r in records if isinstance(r, dict)]
    if not usable:
        raise UndecodableBody(
            "The file holds no record of NCCL Inspector (objects with header, metadata and coll_perf or p2p_perf)"
        )
    rows = Rows(limits)
    rank = _rank(source, usable, rows)
    widest = max(int64(r["header"].get("n_ranks")) or 0 for r in usable)
    for index, record in enumerate(records):
        if isinstance(record, str):
            rows.reject(index, record, rank=rank)
        else:
            _add(rows, index, record, rank, widest)
    return rows.recording(rank)


def _record(value: Any) -> dict[str, Any] | str:
    """The record, or the reason why it is none."""
    if value is None:
        return "bad_json"
    whole = isinstance(value, dict) and all(isinstance(value.get(part), dict) for part in ("header", "metadata"))
    return value if whole and any(isinstance(value.get(part), dict) for part in ("coll_perf", "p2p_perf")) else "not_an_object"


def _rank(source: Source, records: list[dict[str, Any]], rows: Rows) -> int:
    named = source.rank if source.rank is not None else rank_in_name(source.name, ends_in_rank=False)
    if named is not None:
        return named
    widest = max(int64(r["header"].get("n_ranks")) or 0 for r in records)
    ranks = {int64(r["header"].get("rank")) for r in records if int64(r["header"].get("n_ranks")) == widest}
    rank = next(iter(ranks), None)
    if rank is None or len(ranks) != 1 or widest < 1:
        raise BadParameter(
            f"{source.name}: the log says ranks in communicators only; give it with --rank N or ?rank=N", field="rank"
        )
    rows.warnings.append(f"the rank, {rank}, is that in the largest communicator ({widest} ranks)")
    return rank


def _add(rows: Rows, index: int, record: Mapping[str, Any], rank: int, widest: int) -> None:
    header, metadata = record["header"], record["metadata"]
    is_message = isinstance(record.get("p2p_perf"), dict)
    part = "p2p" if is_message else "coll"
    perf = record[f"{part}_perf"]
    name = str(perf.get(part) or "unnamed")
    op = canonical_op(name)
    number = int64(perf.get(f"{part}_sn"))
    peer = int64(perf.get("p2p_peer")) if int64(header.get("n_ranks")) == widest else None
    start, end = _times(perf, metadata, part)
    communicator = str(header.get("id"))
    rows.add(
        index,
        rank=rank,
        host=metadata.get("hostname") if isinstance(metadata.get("hostname"), str) else None,
        lane="nccl",
        name=name,
        kind=_MESSAGES.get(op, "collective"),
        op=op,
        group=communicator if is_message else f"{communicator} {op}",
        seq=number,
        peer=peer if is_message else None,
        bytes=int64(perf.get(f"{part}_msg_size_bytes")),
        start_ns=start,
        end_ns=end,
        span_id=span_id("nccl_inspector", communicator, op, number, peer, metadata.get("pid"), end),
        attrs={
            "communicator": header.get("comm_name"),
            "rank_in_group": header.get("rank"),
            "group_size": header.get("n_ranks"),
            "nodes": header.get("nnodes"),
            "timing": perf.get(f"{part}_timing_source"),
            "exec_time_us": perf.get(f"{part}_exec_time_us"),
            "algbw_gbs": perf.get(f"{part}_algobw_gbs"),
            "busbw_gbs": perf.get(f"{part}_busbw_gbs"),
            "algorithm": perf.get(f"{part}_algo"),
            "protocol": perf.get(f"{part}_proto"),
        },
    )


def _times(perf: Mapping[str, Any], metadata: Mapping[str, Any], part: str) -> tuple[int | None, int | None]:
    """Start and end in ns; None where the record does not say."""
    traced = perf.get("event_trace_ts")
    if isinstance(traced, dict):
        kernels = traced.get("kernel_events")
        stops = [int64(k.get("kernel_stop_ts")) for k in kernels if isinstance(k, dict)] if isinstance(kernels, list) else []
        start, end = int64(traced.get(f"{part}_start_ts")), max((s for s in stops if s is not None), default=None)
        if start and end and end >= start:
            return _ns(start), _ns(end)
    end, length = int64(metadata.get("dump_timestamp_us")), perf.get(f"{part}_exec_time_us")
    if end is None or not isinstance(length, int | float) or not 0 <= length < 1e12:
        return None, _ns(end)
    return _ns(end - round(length)), _ns(end)


def _ns(microseconds: int | None) -> int | None:
    return microseconds * 1000 if microseconds is not None and 0 <= microseconds < 2**63 // 1000 else None
