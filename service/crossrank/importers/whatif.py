"""Recorded LLM jobs in the per-operation Parquet of ByteDance's straggler study, to events with their dependencies.

One row is one operation of one worker (a data-parallel rank of one pipeline stage; its tensor-parallel peers are folded in) in
one step, with float seconds from the step's own beginning. The steps are laid end to end from ORIGIN_NS, each as long as its last
optimizer needs, since when they really ran is not recorded.

    forward-compute, backward-compute, optimizer, gc     compute, on one lane
    forward-/backward-send, -recv                        messages between neighbouring stages of one data-parallel rank; each of the
                                                         four kinds has a lane. The n-th send of a stage meets the n-th receive
                                                         of the next (forward) or previous (backward) one
    params-all-gather, grads-reduce-scatter              collectives over the data-parallel ranks of a stage
    embedding-grads-all-reduce                           between the first and the last stage of a data-parallel rank
    separate-grads-all-reduce, optimizer-clip-main-grad  over the data-parallel ranks of a stage; over all workers
    layernorm-grads-all-reduce                           within the worker

    step-begin                                           barrier of no length: all workers begin a step together, as the recording
                                                         takes for granted when it counts from the step's own beginning

`links` hold all that an operation waits for (importers.whatif_causes). Times were float32 seconds, so an operation may seem to end
a little after one that waits for it begins; its end is cut there, if that takes less than CUT_NS away. All stamps are of one
clock, `recording`: whoever made the file has aligned them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from crossrank.errors import UndecodableBody
from crossrank.importers.rows import Rows, span_id
from crossrank.importers.source import Recording, Source
from crossrank.importers.untrusted_parquet import parquet_batches
from crossrank.importers.whatif_causes import causes_of
from crossrank.importers.whatif_job import COMPUTE, Job, Operation
from crossrank.limits import Limits
from crossrank.model.arrays import Int64Array

ORIGIN_NS: Final = 1_500_000_000_000_000_000
COLUMNS: Final = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
_INTEGERS: Final = tuple(c for c in COLUMNS if c not in ("optype", "start_ts", "duration"))
CLOCK: Final = "recording"
CUT_NS: Final = 1_000_000
_COLLECTIVES: Final = {
    "params-all-gather": ("all_gather", "dp"),
    "grads-reduce-scatter": ("reduce_scatter", "dp"),
    "separate-grads-all-reduce": ("all_reduce", "dp-separate"),
    "optimizer-clip-main-grad": ("all_reduce", "all"),
    "embedding-grads-all-reduce": ("all_reduce", "embedding"),
    "layernorm-grads-all-reduce": ("all_reduce", "worker"),
}
_LONGEST_S: Final = 1e6


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """The events of one recorded job. Raises UndecodableBody."""
    table = _table(file, source, limits)
    rows = Rows(limits)
    operations = _operations(table, rows)
    if operations:
        job = Job(operations)
        causes = causes_of(job)
        end_ns = _cut_ends(operations, causes)
        for o in operations:
            links = [c.id for c in causes[o.index]] or [_barrier_id(o.rank, o.step)]
            rows.add(o.index, links=links, **_columns(o, job, end_ns[o.index]))
        _add_steps(rows, job, len(table))
    return rows.recording(None)


def _cut_ends(operations: list[Operation], causes: Mapping[int, Sequence[Operation]]) -> dict[int, int]:
    """End of every operation by index, not after the start of one that waits for it unless by CUT_NS and more."""
    end = {o.index: o.end_ns for o in operations}
    for o in operations:
        for cause in causes[o.index]:
            if cause.end_ns - o.start_ns < CUT_NS:
                end[cause.index] = max(min(end[cause.index], o.start_ns), cause.start_ns)
    return end


def _table(file: BinaryIO, source: Source, limits: Limits) -> pa.Table:
    batches = list(parquet_batches(file, COLUMNS, min(limits.events_per_body, 10_000_000)))
    table = pa.Table.from_batches(batches) if batches else pa.table({})
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise UndecodableBody(f"{source.name} is no recording of operations: it has no column {', '.join(missing)}")
    try:
        wanted = [(n, pa.int64()) for n in _INTEGERS] + [
            ("optype", pa.string()),
            ("start_ts", pa.float64()),
            ("duration", pa.float64()),
        ]
        return table.select([n for n, _ in wanted]).cast(pa.schema(wanted))
    except pa.ArrowException as fault:
        raise UndecodableBody(f"{source.name}: {str(fault)[:200]}") from fault


def _operations(table: pa.Table, rows: Rows) -> list[Operation]:
    """Rows with usable values, on one time axis; the others are refused."""
    usable = np.ones(len(table), dtype=np.bool_)
    for name in COLUMNS:
        usable &= table[name].is_valid().to_numpy()
    start, length = (table[n].fill_null(0).to_numpy() for n in ("start_ts", "duration"))
    usable &= np.isfinite(start) & np.isfinite(length) & (start >= 0) & (length >= 0) & (start + length < _LONGEST_S)
    for name in ("rank", "step"):
        value = table[name].fill_null(0).to_numpy()
        usable &= (value >= 0) & (value < 2**31)
    for row in np.flatnonzero(~usable).tolist():
        rows.reject(row, "out_of_range")
    kept = np.flatnonzero(usable)
    columns = {n: table[n].take(pa.array(kept)).to_pylist() for n in (*_INTEGERS, "optype")}
    begin_ns, start_ns, end_ns = _laid_end_to_end(np.array(columns["step"], dtype=np.int64), start[kept], length[kept])
    return [
        Operation(
            index=int(kept[i]),
            dp=columns["dp_rank"][i],
            stage=columns["stage"][i],
            rank=columns["rank"][i],
            step=columns["step"][i],
            optype=columns["optype"][i],
            begin_ns=int(begin_ns[i]),
            start_ns=int(start_ns[i]),
            end_ns=int(end_ns[i]),
            seq=columns["seq_id"][i],
            chunk=columns["gmc"][i],
            args={n: columns[n][i] for n in ("dp_rank", "stage", "mc", "mb_id", "gmc")},
        )
        for i in range(len(kept))
    ]


def _laid_end_to_end(step: Int64Array, start_s: np.ndarray, length_s: np.ndarray) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Beginning of its step, start and end of every operation, each step beginning where the one before ended."""
    begin = np.rint(start_s * 1e9).astype(np.int64)
    end = begin + np.rint(length_s * 1e9).astype(np.int64)
    steps, place = np.unique(step, return_inverse=True)
    span = np.zeros(len(steps), dtype=np.int64)
    np.maximum.at(span, place, end)
    base = ORIGIN_NS + np.concatenate((np.zeros(1, np.int64), np.cumsum(span)[:-1]))
    return base[place], base[place] + begin, base[place] + end


def _columns(o: Operation, job: Job, end_ns: int) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "rank": o.rank,
        "name": o.optype,
        "clock": CLOCK,
        "lane": o.lane,
        "kind": "compute" if o.optype in COMPUTE else "other",
        "start_ns": o.start_ns,
        "end_ns": end_ns,
        "step": o.step,
        "span_id": o.id,
        "attrs": o.args,
    }
    if o.optype in _COLLECTIVES:
        op, over = _COLLECTIVES[o.optype]
        group, ranks = job.group(o, over)
        number = o.step * 1000 + o.seq
        columns |= {"kind": "collective", "op": op, "group": f"{group}:{o.optype}", "group_ranks": ranks, "seq": number}
    elif o.optype.endswith(("send", "recv")):
        kind = o.optype.rpartition("-")[2]
        columns |= {"kind": kind, "op": kind, "peer": job.neighbour(o), "group": f"pp-dp{o.dp}:{o.optype.partition('-')[0]}"}
        columns["seq"] = o.step * 100_000 + job.place[o.index]
    return columns


def _add_steps(rows: Rows, job: Job, first_index: int) -> None:
    """Per worker and step: the barrier at its beginning, and a span from there to the end of the worker's last computation."""
    begin = {o.step: o.begin_ns for o in job.operations}
    last: dict[tuple[int, int], Operation] = {}
    for o in job.operations:
        held = last.get((o.rank, o.step))
        if held is None or (o.end_ns, o.index) > (held.end_ns, held.index):
            last[o.rank, o.step] = o
    computed: dict[tuple[int, int], int] = {}
    for o in job.operations:
        if o.lane == "compute":
            computed[o.rank, o.step] = max(computed.get((o.rank, o.step), 0), o.end_ns)
    before: dict[int, bytes] = {}
    ranks_in: dict[int, list[int]] = {}
    for rank, step in sorted(last):
        ranks_in.setdefault(step, []).append(rank)
    for place, ((rank, step), o) in enumerate(sorted(last.items(), key=lambda item: (item[0][1], item[0][0]))):
        rows.add(
            first_index + 2 * place,
            rank=rank,
            name="step-begin",
            clock=CLOCK,
            lane="step",
            kind="collective",
            op="barrier",
            group="step",
            group_ranks=ranks_in[step],
            seq=step,
            step=step,
            start_ns=begin[step],
            end_ns=begin[step],
            span_id=_barrier_id(rank, step),
            links=[before[rank]] if rank in before else None,
        )
        rows.add(
            first_index + 2 * place + 1,
            rank=rank,
            name="step",
            clock=CLOCK,
            lane="compute",
            kind="step",
            step=step,
            start_ns=begin[step],
            end_ns=computed.get((rank, step), o.end_ns),
            span_id=span_id("whatif", rank, step),
            links=[_barrier_id(rank, step)],
        )
        before[rank] = o.id


def _barrier_id(rank: int, step: int) -> bytes:
    return span_id("whatif", "begin", rank, step)
