"""A job's memtable, or several of its segments, made ready for one segment: versions merged where all of them are at hand, sorted by start time.

An identity whose first version is in this memtable has all its versions here: they become one row. If an earlier segment holds
versions too, closed rows replace their halves (that is right whatever the segment holds), but halves stay apart, because which
of them make the first complete pair depends on rows that are not here. The marks of all versions stay with the row, so that
resends are recognised after a restart.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.store.content import CLOSED, fixed_words, forms, identity_keys, one_chunk
from crossrank.store.content import marks as content_marks
from crossrank.store.merge import AMENDS, Plan, apply_plan, column_values, plan

MARKS: pa.DataType = pa.list_(pa.field("element", pa.int32(), nullable=False))


def condense(events: pa.Table, marks: Int32Array) -> pa.Table:
    """The rows of one segment with an extra column `marks` (list of int32), sorted by (start_ns, rank, span_id).

    events: rows of one job in log order, flagged by the identity table; marks [n] their marks.
    """
    amends = column_values(events, "flags") & AMENDS != 0
    if amends.any():
        rows, row_marks = _merged(events, marks, amends)
    else:
        rows, row_marks = events, _lists(marks, np.arange(len(marks) + 1))
    return _sorted(rows, row_marks)


def recondense(rows: pa.Table, *, merged: bool) -> pa.Table:
    """The rows of neighbouring segments of one job as those of one, sorted.

    rows: as `condense` returned them, all rows of every segment. merged: versions of one identity become one row by the rules
    above; not where identities were forgotten, because AMENDS then does not tell which rows are first versions.
    """
    lists, events = one_chunk(rows.column("marks")), rows.drop_columns("marks")
    amends = column_values(events, "flags") & AMENDS != 0
    if not merged or not amends.any():
        return _sorted(events, lists)
    keys = identity_keys(events, 0)
    several = np.isin(keys, np.unique(keys[amends]))
    versions = events.filter(pa.array(several)).combine_chunks()
    version_lists = lists.filter(pa.array(several))
    p = plan(versions, content_marks(versions))
    one = apply_plan(versions, p)
    done = p.whole | (forms(one) == CLOSED) & (p.base == p.tail)
    apart = np.sort(_rows_of(p, ~done))
    ordered = version_lists.take(pa.array(p.order))
    ends = np.append(0, np.cumsum(ordered.value_lengths().to_numpy(zero_copy_only=False))).astype(np.int64)
    joined = _lists(ordered.flatten().to_numpy(zero_copy_only=False), ends[p.ptr]).filter(pa.array(done))
    tables = [events.filter(pa.array(~several)), one.filter(pa.array(done)), versions.take(pa.array(apart))]
    return _sorted(
        pa.concat_tables(tables),
        pa.concat_arrays([lists.filter(pa.array(~several)), joined, version_lists.take(pa.array(apart))]),
    )


def _sorted(rows: pa.Table, row_marks: pa.Array) -> pa.Table:
    rows = rows.append_column(pa.field("marks", MARKS, nullable=False), row_marks)
    order = pa.array(_order(rows))
    columns = [_taken(one_chunk(rows.column(name)), order) for name in rows.column_names]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _taken(column: pa.Array, order: pa.Array) -> pa.Array:
    return column if column.null_count == len(column) else column.take(order)


def _order(rows: pa.Table) -> Int64Array:
    """The rows in order of (start_ns, rank, span_id), those without a start last.

    Senders post their spans nearly in order, and a stable sort of numbers merges such runs; only rows that start in the same
    nanosecond need the other keys.
    """
    if rows.column("start_ns").null_count:
        keys = [("start_ns", "ascending"), ("rank", "ascending"), ("span_id", "ascending")]
        placed: Int64Array = pc.sort_indices(rows, sort_keys=keys).to_numpy(zero_copy_only=False).astype(np.int64)
        return placed
    start = column_values(rows, "start_ns")
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        among = order[tied]
        rank, span = column_values(rows, "rank")[among], fixed_words(rows.column("span_id"), 8)[among, 0]
        order[tied] = among[np.lexsort((span, rank, ordered[tied]))]
    return order


def _merged(events: pa.Table, marks: Int32Array, amends: BoolArray) -> tuple[pa.Table, pa.Array]:
    keys = identity_keys(events, 0)
    several = np.isin(keys, np.unique(keys[amends]))
    single, versions = events.filter(pa.array(~several)), events.filter(pa.array(several)).combine_chunks()
    version_marks = marks[several]
    p = plan(versions, version_marks)
    merged = apply_plan(versions, p)
    done = p.whole | (forms(merged) == CLOSED) & (p.base == p.tail)
    apart = np.sort(_rows_of(p, ~done))
    lists = (
        _lists(marks[~several], np.arange(int((~several).sum()) + 1)),
        _lists(version_marks[p.order], p.ptr).filter(pa.array(done)),
        _lists(version_marks[apart], np.arange(len(apart) + 1)),
    )
    return pa.concat_tables([single, merged.filter(pa.array(done)), versions.take(pa.array(apart))]), pa.concat_arrays(lists)


def _rows_of(p: Plan, groups: BoolArray) -> Int64Array:
    """The rows of the chosen groups."""
    rows: Int64Array = p.order[np.repeat(groups, np.diff(p.ptr))]
    return rows


def _lists(values: Int32Array, ptr: Int64Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), pa.array(values, pa.int32()), type=MARKS)
