"""One row per identity out of all the versions that were received, independent of the order they are given in.

Versions of one identity (job, attempt, rank, span_id) are put in order of receipt: by `received_ns`, ties by content. Then

    closed rows exist        the last closed one wins (a closed form says more than any half, whichever came first)
    else a joined row exists it wins: it was made of the first complete pair
    else open and end halves the first complete pair is joined: the last open and the last end half up to where both are there
    else only one kind       the last one

A joined row has the columns of the open half, nulls filled from the end half, the two `attrs` objects merged with the end's
values winning, and no START_MISSING. CONFLICT stays set where the versions that count really disagree.

Rows that need this are few (a resend with other content, a pair split across requests), so `merge_amended` touches only
identities with a row marked AMENDS: the second and later versions of an identity always are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numba
import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.flags import EventFlag
from crossrank.store.content import CLOSED, OPEN, fixed_words, forms, marks, member_of, one_chunk, raw_values, valid_rows

AMENDS: Final = int(EventFlag.AMENDS)
CONFLICT: Final = int(EventFlag.CONFLICT)
JOINED: Final = int(EventFlag.JOINED)
_START_MISSING: Final = int(EventFlag.START_MISSING)
_END_BEFORE_START: Final = int(EventFlag.END_BEFORE_START)
_FORM_JOINED: Final = 4  # a row that the store joined earlier


@dataclass(frozen=True, slots=True)
class Plan:
    """How n rows become g merged rows. `order` [n] lists rows by identity, then receipt; group k is order[ptr[k]:ptr[k+1]]."""

    order: Int64Array
    ptr: Int64Array  # [g+1]
    base: Int64Array  # [g] the row that gives the columns
    tail: Int64Array  # [g] the end half joined to it, or the row itself where nothing is joined
    conflict: BoolArray  # [g] the versions that count disagree
    whole: BoolArray  # [g] contains the first version ever received, so nothing of this identity is stored elsewhere


@numba.njit(cache=True, nogil=True)
def _fold(order: Any, ptr: Any, form: Any, flags: Any, mark: Any, base: Any, tail: Any, conflict: Any, whole: Any) -> None:
    for g in range(len(ptr) - 1):
        closed, joined, opened, ended = -1, -1, -1, -1
        closed_clash, half_clash = False, False
        for k in range(ptr[g], ptr[g + 1]):
            r = order[k]
            flagged = flags[r] & CONFLICT != 0
            if flags[r] & AMENDS == 0:
                whole[g] = True
            if form[r] == CLOSED:
                closed_clash |= flagged or (closed >= 0 and mark[r] != mark[closed])
                closed = r
                continue
            half_clash |= flagged
            if form[r] == _FORM_JOINED:
                joined = r if joined < 0 else joined
                continue
            last = opened if form[r] == OPEN else ended
            half_clash |= last >= 0 and mark[r] != mark[last]
            if opened < 0 or ended < 0:
                if form[r] == OPEN:
                    opened = r
                else:
                    ended = r
        if closed >= 0:
            base[g] = closed
        elif joined >= 0:
            base[g] = joined
        else:
            base[g] = opened if opened >= 0 else ended
        pair = closed < 0 and joined < 0 and opened >= 0 and ended >= 0
        tail[g] = ended if pair else base[g]
        conflict[g] = closed_clash if closed >= 0 else half_clash


def plan(events: pa.Table, mark: Int32Array) -> Plan:
    """Groups rows by identity and decides for each group; `mark` [n] as in `content`."""
    flags, received = column_values(events, "flags"), column_values(events, "received_ns")
    span, member = fixed_words(events.column("span_id"), 8)[:, 0], member_of(events)
    job = one_chunk(events.column("job")).dictionary_encode() if len(events) else None
    words = (
        job.indices.to_numpy(zero_copy_only=False) if job is not None and len(job.dictionary) > 1 else np.zeros(len(span), np.int32)
    )
    order = np.lexsort((mark, received, span, member, words)).astype(np.int64)
    s, m, w = span[order], member[order], words[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (s[1:] != s[:-1]) | (m[1:] != m[:-1]) | (w[1:] != w[:-1])
    ptr = np.append(np.flatnonzero(first), len(order)).astype(np.int64)
    groups = len(ptr) - 1
    form = np.where(flags & JOINED != 0, _FORM_JOINED, forms(events)).astype(np.int32)
    base, tail = np.empty(groups, np.int64), np.empty(groups, np.int64)
    conflict, whole = np.zeros(groups, np.bool_), np.zeros(groups, np.bool_)
    _fold(order, ptr, form, flags, mark, base, tail, conflict, whole)
    return Plan(order, ptr, base, tail, conflict, whole)


def merge(events: pa.Table) -> pa.Table:
    """One row per identity of any table of the event schema; store marks AMENDS and JOINED are cleared.

    The result does not depend on the order of the rows, and is itself in order of (job, attempt, rank, span_id).
    """
    p = plan(events, marks(events))
    return cleared(apply_plan(events, p))


def cleared(events: pa.Table) -> pa.Table:
    """Without the flags that only the store needs, so that answers do not show how events were delivered."""
    flags = column_values(events, "flags")
    if not (flags & (AMENDS | JOINED)).any():
        return events
    return replaced(events, "flags", pa.array(flags & ~(AMENDS | JOINED), pa.int32()))


def apply_plan(events: pa.Table, p: Plan) -> pa.Table:
    """The merged rows [g] of a plan. AMENDS stays where an earlier version is stored elsewhere; JOINED marks joined pairs."""
    joined = p.tail != p.base
    flags = column_values(events, "flags")
    merged = _joined_columns(events, p.base, p.tail) if joined.any() else events.take(pa.array(p.base))
    out = flags[p.base] | np.where(joined, flags[p.tail], 0)
    out &= ~(AMENDS | CONFLICT) & np.where(joined, ~_START_MISSING, ~0)
    out |= np.where(joined, JOINED, 0) | np.where(p.conflict, CONFLICT, 0) | np.where(p.whole, 0, AMENDS)
    if joined.any():
        reversed_ = joined & (column_values(merged, "end_ns") < column_values(merged, "start_ns"))
        out |= np.where(reversed_, _END_BEFORE_START, 0)
        received = column_values(events, "received_ns")
        merged = replaced(merged, "received_ns", pa.array(np.maximum(received[p.base], received[p.tail])))
    return replaced(merged, "flags", pa.array(out.astype(np.int32)))


def column_values(events: pa.Table, name: str) -> Int64Array:
    """[n] an integer column as int64, 0 where null."""
    column = one_chunk(events.column(name))
    values = raw_values(column).astype(np.int64)
    if column.null_count:
        values[~valid_rows(column)] = 0
    return values


def replaced(events: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with the values of one column exchanged."""
    at = events.schema.get_field_index(name)
    return events.set_column(at, events.schema.field(at), values)


def _joined_columns(events: pa.Table, base: Int64Array, tail: Int64Array) -> pa.Table:
    """Columns of the base rows, where null those of the tail rows."""
    columns = []
    for field in events.schema:
        column = one_chunk(events.column(field.name))
        rows = base
        if column.null_count:
            rows = np.where(valid_rows(column)[base], base, tail)
        columns.append(column.take(pa.array(rows)))
    merged = pa.Table.from_arrays(columns, schema=events.schema)
    return replaced(
        merged, "attrs", _merged_attrs(one_chunk(events.column("attrs")), one_chunk(merged.column("attrs")), base, tail)
    )


def _merged_attrs(attrs: pa.Array, merged: pa.Array, base: Int64Array, tail: Int64Array) -> pa.Array:
    """The attrs of joined rows: both objects in one, keys sorted, the tail's values winning. Values are not reinterpreted."""
    valid = valid_rows(attrs)
    both = np.flatnonzero((base != tail) & valid[base] & valid[tail])
    if not len(both):
        return merged
    texts = merged.to_pylist()
    ours, theirs = attrs.take(pa.array(base[both])).to_pylist(), attrs.take(pa.array(tail[both])).to_pylist()
    for place, ours_text, theirs_text in zip(both.tolist(), ours, theirs, strict=True):
        if ours_text != theirs_text:
            texts[place] = _merged_objects(ours_text, theirs_text)
    return pa.array(texts, pa.string())


def _merged_objects(ours: str, theirs: str) -> str:
    kept = dict[str, msgspec.Raw]
    both = {**msgspec.json.decode(ours, type=kept), **msgspec.json.decode(theirs, type=kept)}
    return msgspec.json.encode(both, order="deterministic").decode()
