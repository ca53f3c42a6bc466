"""From decoded columns to admitted events: every bound checked, every default filled, in one place for all formats.

An event that breaks a rule is left out with a reason; the rest is kept. An event that is merely doubtful (end before start, a
name cut to its limit) is kept and flagged. All of it is done on whole columns; Python touches single rows only where something
is wrong with them, and distinct words only once.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.ingest import reasons
from crossrank.ingest.content_id import with_content_ids
from crossrank.ingest.kind_columns import kind_and_op
from crossrank.ingest.verdicts import Verdicts
from crossrank.ingest.words import Words, one_chunk
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.decoded import Decoded
from crossrank.model.flags import EventFlag
from crossrank.model.post import Admitted, Post

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_RANGED: Final = {
    "attempt": _INT32_MAX,
    "rank": _INT32_MAX,
    "peer": _INT32_MAX,
    "step": _INT64_MAX,
    "seq": _INT64_MAX,
    "bytes": _INT64_MAX,
}
_IDENTIFYING: Final = ("host", "clock", "lane", "kind", "group", "op", "dtype")
DEFAULT_LANE: Final = "main"
DEFAULT_NAME: Final = "unnamed"


def admit(decoded: Decoded, post: Post, limits: Limits) -> Admitted:
    """The events that pass, as EVENT_SCHEMA in request order, and the rejections of those that do not, by place."""
    rows = decoded.rows
    verdicts = Verdicts(len(rows))
    flags = _int64(rows, "flags").astype(np.int32)  # a copy: bits are added below
    warnings = list(decoded.warnings)
    job = Words.of(rows.column("job")).filled(post.job)
    _check_job(job, verdicts, limits)
    _check_numbers(rows, verdicts)
    _check_times(rows, verdicts, flags)
    words = {name: Words.of(rows.column(name)).cleaned() for name in _IDENTIFYING}
    for name, word in words.items():
        verdicts.mark(word.longer_than(limits.name_bytes), reasons.TOO_LONG, name)
    title = Words.of(rows.column("name")).cleaned().filled(DEFAULT_NAME)
    flags[title.longer_than(limits.name_bytes)] |= int(EventFlag.TRUNCATED)
    kind, op, attrs = kind_and_op(words["kind"], words["op"], title, rows)
    verdicts.mark(_open_without_id(rows, kind), reasons.MISSING_SPAN_ID)
    columns: dict[str, pa.Array] = {f.name: rows.column(f.name) for f in EVENT_SCHEMA if f.name in rows.column_names}
    columns |= {
        "job": job.array(),
        "name": title.cut_to(limits.name_bytes).array(),
        "host": words["host"].array(),
        "clock": _clock(words["clock"], words["host"], rows).array(),
        "lane": words["lane"].filled(DEFAULT_LANE).array(),
        "group": words["group"].array(),
        "dtype": words["dtype"].array(),
        "kind": kind.array(),
        "op": op.array(),
        "attrs": attrs,
        "attempt": _filled(rows, "attempt", 0),
        "end_ns": _moments_closed(rows, kind),
        "is_async": _filled(rows, "is_async", False),
        "group_ranks": _bounded_members(rows.column("group_ranks"), flags, limits),
        "value": _finite(rows.column("value")),
        "flags": pa.array(flags),
        "received_ns": pa.array(np.full(len(rows), post.received_ns, dtype=np.int64)),
    }
    kept = verdicts.kept
    all_kept = bool(kept.all())
    events = pa.table([_as(columns[f.name], f.type, kept, all_kept=all_kept) for f in EVENT_SCHEMA], schema=EVENT_SCHEMA)
    rejections = sorted([*decoded.rejections, *verdicts.rejections(decoded.index, job, rows)], key=lambda r: r.index)
    cut = int(np.count_nonzero(flags[kept] & int(EventFlag.TRUNCATED)))
    if cut:
        warnings.append(f"{cut} events had a name, key, value or list cut to its limit")
    return Admitted(events=with_content_ids(events), rejections=tuple(rejections), warnings=tuple(warnings))


def _as(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, kept: BoolArray, *, all_kept: bool) -> pa.Array:
    """The kept rows of a column as one array of its final type; values that do not fit are only in rows not kept."""
    array = one_chunk(column)
    if not all_kept:
        array = array.filter(pa.array(kept))
    return array if array.type == kind else array.cast(kind)


def _int64(rows: pa.Table, name: str) -> Int64Array:
    column = one_chunk(rows.column(name))
    if column.null_count:
        column = pc.fill_null(column, 0)
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _null(rows: pa.Table, name: str) -> BoolArray:
    column = one_chunk(rows.column(name))
    if column.null_count == 0:
        return np.zeros(len(column), np.bool_)
    if column.null_count == len(column):
        return np.ones(len(column), np.bool_)
    return pc.is_null(column).to_numpy(zero_copy_only=False)


def _filled(rows: pa.Table, name: str, value: Any) -> pa.Array:
    column = one_chunk(rows.column(name))
    return pc.fill_null(column, value) if column.null_count else column


def _check_job(job: Words, verdicts: Verdicts, limits: Limits) -> None:
    if not job.is_full:
        verdicts.mark(job.codes < 0, reasons.MISSING_JOB)
    bad = [bool(not word or len(word.encode()) > limits.job_bytes or _CONTROL.search(word)) for word in job.words]
    verdicts.mark(job.where(bad), reasons.BAD_JOB)


def _check_numbers(rows: pa.Table, verdicts: Verdicts) -> None:
    verdicts.mark(_null(rows, "rank"), reasons.MISSING_RANK)
    for name, most in _RANGED.items():
        if rows.column(name).null_count == len(rows):
            continue
        value = _int64(rows, name)
        if int(value.min()) < 0 or int(value.max()) > most:
            verdicts.mark((value < 0) | (value > most), reasons.OUT_OF_RANGE, name)
    members = one_chunk(rows.column("group_ranks"))
    if members.null_count < len(members):
        flat = members.flatten()
        value = pc.fill_null(flat, -1).to_numpy(zero_copy_only=False)
        bad = (value < 0) | (value > _INT32_MAX)
        if bad.any():
            mask = np.zeros(len(rows), dtype=np.bool_)
            mask[pc.list_parent_indices(members).to_numpy()[bad]] = True
            verdicts.mark(mask, reasons.OUT_OF_RANGE, "group_ranks")


def _check_times(rows: pa.Table, verdicts: Verdicts, flags: np.ndarray) -> None:
    start, end = _int64(rows, "start_ns"), _int64(rows, "end_ns")
    no_start, no_end = _null(rows, "start_ns"), _null(rows, "end_ns")
    verdicts.mark(no_start & no_end, reasons.MISSING_START)
    if len(rows) and int(start.min()) > 0 and int(end.min()) > 0 and bool((end >= start).all()):
        return  # all have both, in order
    verdicts.mark(~no_start & (start == 0), reasons.START_ZERO)
    verdicts.mark((~no_start & (start < 0)) | (~no_end & (end <= 0)), reasons.TIME_RANGE)
    flags[no_start] |= int(EventFlag.START_MISSING)
    flags[~no_start & ~no_end & (end < start)] |= int(EventFlag.END_BEFORE_START)


def _is_moment(kind: Words) -> BoolArray:
    return kind.where([word in ("mark", "metric") for word in kind.words])


def _open_without_id(rows: pa.Table, kind: Words) -> BoolArray:
    if not any(rows.column(name).null_count for name in ("start_ns", "end_ns")):
        return np.zeros(len(rows), np.bool_)
    half = _null(rows, "start_ns") | (_null(rows, "end_ns") & ~_is_moment(kind))
    return half & _null(rows, "span_id")


def _moments_closed(rows: pa.Table, kind: Words) -> pa.Array:
    """A mark or a metric without an end is a moment, not a span that hangs."""
    end = one_chunk(rows.column("end_ns"))
    if not end.null_count:
        return end
    closing = _is_moment(kind) & _null(rows, "end_ns")
    return pc.if_else(pa.array(closing), one_chunk(rows.column("start_ns")), end) if closing.any() else end


def _clock(clock: Words, host: Words, rows: pa.Table) -> Words:
    """The clock domain: as given, else the host (its ranks share a clock), else the rank by itself."""
    clock = clock.else_from(host)
    if clock.is_full:
        return clock
    ranks, inverse = np.unique(_int64(rows, "rank"), return_inverse=True)
    own = Words(codes=inverse.astype(np.int32), words=tuple(f"rank:{rank}" for rank in ranks.tolist()))
    return clock.else_from(own)


def _bounded_members(column: pa.ChunkedArray, flags: np.ndarray, limits: Limits) -> pa.Array:
    """Membership lists; one above the limit is dropped whole, since half a list would name a smaller group."""
    members = one_chunk(column)
    if members.null_count == len(members):
        return members
    long = pc.fill_null(pc.greater(pc.list_value_length(members), limits.group_ranks), False)
    if pc.any(long).as_py():
        flags[long.to_numpy(zero_copy_only=False)] |= int(EventFlag.TRUNCATED)
        members = pc.if_else(long, pa.nulls(len(members), members.type), members)
    return members


def _finite(column: pa.ChunkedArray) -> pa.Array:
    values = one_chunk(column)
    return values if values.null_count == len(values) else pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
