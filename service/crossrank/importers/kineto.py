"""Kineto traces (torch.profiler's Chrome JSON), old and new, of any size, to events.

    absolute ns = baseTimeNanoseconds + ts * 1000      ts in microseconds with three decimals, whatever displayTimeUnit says

The base is rounded down to about 91 days, so ranks that started on two sides of an edge have bases 91 days apart: it is always
added. Traces without one have absolute times.

The rank, the base and the groups may stand behind the events, and whether the host's operators count as compute is known only
when all kernels were seen. So the file is read once: rows go to a spill (memory, then a temporary file), what joins spans is
kept in flat arrays, and the rows are completed from the spill when the file has ended.

Edges become `links`: work on the device to its launch (by correlation), a backward operator to its forward one (by fwdbwd arrows).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.errors import UndecodableBody
from crossrank.importers.json_stream import JsonStream, without_number_words
from crossrank.importers.kineto_links import SpanTable
from crossrank.importers.kineto_names import Role, members
from crossrank.importers.kineto_overlong import LATEST_NS
from crossrank.importers.kineto_pieces import COLUMNS, PieceReader
from crossrank.importers.plain_bytes import PlainBytes
from crossrank.importers.rows import int64
from crossrank.importers.source import Recording, Source, settle_rank, stated_topology
from crossrank.limits import Limits
from crossrank.model.decoded import RAW_SCHEMA, Decoded

SPILL_BYTES: Final = 128 << 20
_HEAD: Final = frozenset({"distributedInfo", "host_name", "baseTimeNanoseconds"})
_EARLIEST_NS: Final = 1_000_000_000_000_000_000  # 2001: times before it are no times since the epoch


@dataclass(frozen=True, slots=True)
class Head:
    """What a trace says outside its events."""

    rank: int | None
    host: str | None
    base_ns: int
    world_size: int | None
    groups: dict[str, list[int] | None]
    descs: dict[str, str | None]


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """The spans of one trace. Raises UndecodableBody, BodyTooLarge, BadParameter (no rank, or two)."""
    plain = PlainBytes(file)
    stream = JsonStream(plain, "traceEvents", _HEAD, limits.import_bytes)
    reader = PieceReader(limits)
    table = SpanTable()
    spill = SpooledTemporaryFile(max_size=SPILL_BYTES)  # noqa: SIM115 -- closed with the batches
    try:
        with pa.ipc.new_stream(spill, COLUMNS) as writer:
            for text in stream.pieces():
                piece = reader.read(text)
                if piece is not None:
                    table.add(piece)
                    writer.write_batch(piece.rows)
        head = _head(stream.fields)
        _refuse_other_files(reader, stream, head)
        rank = settle_rank(source, head.rank)
        table.finish(reader.starts, reader.ends)
    except BaseException:
        spill.close()
        raise
    warnings = _warnings(stream, plain, reader, head, table)
    first, last = (table.first_ns + head.base_ns, table.last_ns + head.base_ns) if len(table) else (None, None)
    shape = stated_topology(head.world_size, {name: (ranks, head.descs[name]) for name, ranks in head.groups.items()})
    return Recording(rank, first, last, _completed(spill, table, reader, head, rank, warnings), shape)


def _refuse_other_files(reader: PieceReader, stream: JsonStream, head: Head) -> None:
    if not reader.spans and not stream.found_array and head.rank is None:
        raise UndecodableBody("The file holds no trace events; is it a Kineto trace?")


def _head(fields: dict[str, bytes]) -> Head:
    info = _value(fields, "distributedInfo")
    if isinstance(info, str):
        info = _decoded(info.encode())
    info = info if isinstance(info, dict) else {}
    host = _value(fields, "host_name")
    config = info.get("pg_config")
    groups: dict[str, list[int] | None] = {}
    descs: dict[str, str | None] = {}
    for group in config if isinstance(config, list) else []:
        if isinstance(group, dict) and (name := group.get("pg_name", group.get("uid"))) is not None:
            groups[str(name)] = members(group.get("ranks"))
            descs[str(name)] = group["pg_desc"] if isinstance(group.get("pg_desc"), str) else None
    base = int64(_value(fields, "baseTimeNanoseconds")) or 0
    return Head(
        rank=int64(info.get("rank")),
        host=host if isinstance(host, str) and host else None,
        base_ns=base if 0 <= base <= LATEST_NS else 0,
        world_size=int64(info.get("world_size")),
        groups=groups,
        descs=descs,
    )


def _value(fields: dict[str, bytes], name: str) -> Any:
    return _decoded(fields.get(name, b"null"))


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(without_number_words(text)[0])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _warnings(stream: JsonStream, plain: PlainBytes, reader: PieceReader, head: Head, table: SpanTable) -> list[str]:
    found: list[str] = []
    if stream.truncated or plain.cut_off:
        found.append("the file is cut off: what comes after its last complete event is missing")
    if reader.number_words:
        found.append(f"{reader.number_words} values were inf or nan, which is not JSON; they are null")
    if reader.bad_durations:
        found.append(f"{reader.bad_durations} spans have no usable duration; they count as moments")
    if table.clipped:
        found.append(
            f"{table.clipped} spans of the device end long after what follows them or after the trace; they were shortened"
        )
    if len(table) and table.first_ns + head.base_ns < _EARLIEST_NS:
        found.append("times are not since the epoch: the trace has no baseTimeNanoseconds; it cannot be compared with other ranks")
    return found


def _completed(spill: Any, table: SpanTable, reader: PieceReader, head: Head, rank: int, warnings: list[str]) -> Iterator[Decoded]:
    """The spilled rows with all that was only known at the end."""
    kinds = _kinds(table.roles)
    at = 0
    out = Decoded(RAW_SCHEMA.empty_table(), np.empty(0, dtype=np.int64), reader.rejections, warnings)
    with spill:
        spill.seek(0)
        for batch in pa.ipc.open_stream(spill):
            rows = slice(at, at + len(batch))
            at = rows.stop
            out.rows, out.index = _raw(batch, rows, table, head, rank, kinds), batch.column("index").to_numpy()
            yield out
            out = Decoded(RAW_SCHEMA.empty_table(), np.empty(0, dtype=np.int64))
        if at == 0:
            yield out


def _kinds(roles: np.ndarray) -> pa.Array:
    """The kind of every role in this trace; roles: how many spans have each."""
    has_device = roles[Role.COMPUTE] + roles[Role.COPY] > 0
    has_operations = roles[Role.COLLECTIVE] + roles[Role.SEND] + roles[Role.RECV] > 0
    words = ["other", "step", "compute", "collective", "send", "recv", "copy", "sync"]
    return pa.array([*words, "other" if has_device else "compute", "other" if has_operations else "collective"])


def _raw(batch: pa.RecordBatch, rows: slice, table: SpanTable, head: Head, rank: int, kinds: pa.Array) -> pa.Table:
    """One spilled batch as RAW_SCHEMA."""
    n = len(batch)
    start = batch.column("ts_ns").to_numpy() + np.int64(head.base_ns)
    kind = kinds.take(batch.column("role"))
    group, ranks = _groups(batch, kind, head)
    duration, attrs, flags = table.overlong.apply(
        rows,
        batch.column("dur_ns").to_numpy(),
        batch.column("ts_ns").to_numpy(),
        batch.column("attrs"),
        batch.column("flags"),
    )
    columns = {
        "rank": pa.array(np.full(n, rank, dtype=np.int64)),
        "host": pa.array([head.host] * n, type=pa.string()),
        "lane": batch.column("lane"),
        "name": batch.column("name"),
        "kind": kind,
        "start_ns": pa.array(start),
        "end_ns": pa.array(start + duration),
        "attrs": attrs,
        "flags": flags,
        "group": group,
        "group_ranks": ranks,
        "is_async": pc.and_(pc.equal(batch.column("role"), int(Role.LAUNCH)), pc.equal(kind, "collective")),
        "span_id": table.span_ids(rows),
        "links": table.links(rows),
        **{name: batch.column(name) for name in ("step", "seq", "op", "peer", "bytes", "dtype")},
    }
    return pa.table([columns.get(f.name, pa.nulls(n, f.type)) for f in RAW_SCHEMA], schema=RAW_SCHEMA)


def _groups(batch: pa.RecordBatch, kind: pa.Array, head: Head) -> tuple[pa.Array, pa.Array]:
    """Names and members of groups. A communication that names none belongs to the only group, if there is only one."""
    group = batch.column("group")
    if len(head.groups) == 1:
        communicates = pc.is_in(kind, value_set=pa.array(["collective", "send", "recv"]))
        group = pc.if_else(pc.and_(communicates, pc.is_null(group)), next(iter(head.groups)), group)
    encoded, texts = pc.dictionary_encode(group), pc.dictionary_encode(batch.column("ranks_text"))
    by_name = [head.groups.get(name) for name in encoded.dictionary.to_pylist()]
    by_text = [members(text) for text in texts.dictionary.to_pylist()]
    listed = RAW_SCHEMA.field("group_ranks").type
    named = pa.array(by_name, type=listed).take(encoded.indices)
    return group, pc.coalesce(named, pa.array(by_text, type=listed).take(texts.indices))
