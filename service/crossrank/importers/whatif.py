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

`links` hold what no lane shows: a compute waits for its receive, a send for its compute, the first forward compute for the
parameters. A chunk at an end of the pipeline (`gmc` lowest or highest) receives or sends nothing there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from crossrank.errors import UndecodableBody
from crossrank.importers.rows import Rows, span_id
from crossrank.importers.source import Recording, Source
from crossrank.importers.untrusted_parquet import parquet_batches
from crossrank.limits import Limits
from crossrank.model.arrays import Int64Array

ORIGIN_NS: Final = 1_500_000_000_000_000_000
COLUMNS: Final = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
_INTEGERS: Final = tuple(c for c in COLUMNS if c not in ("optype", "start_ts", "duration"))
_COMPUTE: Final = frozenset({"forward-compute", "backward-compute", "optimizer", "gc"})
_COLLECTIVES: Final = {
    "params-all-gather": ("all_gather", "dp"),
    "grads-reduce-scatter": ("reduce_scatter", "dp"),
    "separate-grads-all-reduce": ("all_reduce", "dp-separate"),
    "optimizer-clip-main-grad": ("all_reduce", "all"),
    "embedding-grads-all-reduce": ("all_reduce", "embedding"),
    "layernorm-grads-all-reduce": ("all_reduce", "worker"),
}
_LONGEST_S: Final = 1e6


@dataclass(frozen=True, slots=True)
class _Operation:
    """One row, in whole nanoseconds from ORIGIN_NS."""

    index: int
    dp: int
    stage: int
    rank: int
    step: int
    optype: str
    start_ns: int
    end_ns: int
    seq: int
    chunk: int  # position of the model chunk in the model; -1 where the row has none
    args: Mapping[str, int]

    @property
    def id(self) -> bytes:
        return span_id("whatif", self.rank, self.step, self.optype, self.seq, self.index)


class _Job:
    """All operations and the shape of the job: which worker is where."""

    def __init__(self, operations: list[_Operation]) -> None:
        self.operations = operations
        self.rank_at = {(o.dp, o.stage): o.rank for o in operations}
        self.stages = sorted({o.stage for o in operations})
        self.chunks = (min((o.chunk for o in operations if o.chunk >= 0), default=-1), max(o.chunk for o in operations))
        self.kinds: dict[tuple[int, int, str], list[_Operation]] = defaultdict(list)  # (rank, step, optype), in order of start
        for o in operations:
            self.kinds[o.rank, o.step, o.optype].append(o)
        for run in self.kinds.values():
            run.sort(key=lambda o: (o.start_ns, o.seq))
        self.place = {o.index: place for run in self.kinds.values() for place, o in enumerate(run)}
        self._groups: dict[tuple[int, int, str], tuple[str, list[int]]] = {}

    def neighbour(self, o: _Operation) -> int | None:
        """The other rank of a message; None at an end of a pipeline that does not go round."""
        forward, sends = o.optype.startswith("forward"), o.optype.endswith("send")
        place = self.stages.index(o.stage) + (1 if forward == sends else -1)
        virtual = self.chunks[1] + 1 > len(self.stages)
        if not virtual and not 0 <= place < len(self.stages):
            return None
        return self.rank_at.get((o.dp, self.stages[place % len(self.stages)]))

    def group(self, o: _Operation, over: str) -> tuple[str, list[int]]:
        """Name and ranks of the group of a collective."""
        key = (o.dp, o.stage, over)
        if key not in self._groups:
            self._groups[key] = self._members(o, over)
        return self._groups[key]

    def _members(self, o: _Operation, over: str) -> tuple[str, list[int]]:
        dps = sorted({dp for dp, stage in self.rank_at if stage == o.stage})
        if over in ("dp", "dp-separate"):
            return f"{over}-stage{o.stage}", [self.rank_at[dp, o.stage] for dp in dps]
        if over == "all":
            return "all", sorted(set(self.rank_at.values()))
        if over == "embedding":
            ends = {self.stages[0], self.stages[-1]}
            return f"embedding-dp{o.dp}", sorted({r for (dp, stage), r in self.rank_at.items() if dp == o.dp and stage in ends})
        return f"worker-{o.rank}", [o.rank]

    def causes(self) -> dict[bytes, list[bytes]]:
        """For each operation by id: those it waits for that are on other lanes."""
        found: dict[bytes, list[bytes]] = defaultdict(list)
        low, high = self.chunks
        for (rank, step, optype), run in self.kinds.items():
            if optype not in ("forward-compute", "backward-compute"):
                continue
            direction = optype.partition("-")[0]
            first, last = (low, high) if direction == "forward" else (high, low)
            _pair(self.kinds.get((rank, step, f"{direction}-recv"), []), [o for o in run if o.chunk != first], found)
            _pair([o for o in run if o.chunk != last], self.kinds.get((rank, step, f"{direction}-send"), []), found)
            if direction == "forward":
                for gather in self.kinds.get((rank, step, "params-all-gather"), [])[:1]:
                    found[run[0].id].append(gather.id)
        return found


def _pair(causes: Sequence[_Operation], effects: Sequence[_Operation], found: dict[bytes, list[bytes]]) -> None:
    """The n-th waits for the n-th, when there are as many; else nobody knows which are the extra ones."""
    if len(causes) == len(effects):
        for cause, effect in zip(causes, effects, strict=True):
            found[effect.id].append(cause.id)


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """The events of one recorded job. Raises UndecodableBody."""
    table = _table(file, source, limits)
    rows = Rows(limits)
    operations = _operations(table, rows)
    if operations:
        job = _Job(operations)
        causes = job.causes()
        for o in operations:
            rows.add(o.index, links=causes.get(o.id), **_columns(o, job))
        _add_steps(rows, job, len(table))
    return rows.recording(None)


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


def _operations(table: pa.Table, rows: Rows) -> list[_Operation]:
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
    start_ns, end_ns = _laid_end_to_end(np.array(columns["step"], dtype=np.int64), start[kept], length[kept])
    return [
        _Operation(
            index=int(kept[i]),
            dp=columns["dp_rank"][i],
            stage=columns["stage"][i],
            rank=columns["rank"][i],
            step=columns["step"][i],
            optype=columns["optype"][i],
            start_ns=int(start_ns[i]),
            end_ns=int(end_ns[i]),
            seq=columns["seq_id"][i],
            chunk=columns["gmc"][i],
            args={n: columns[n][i] for n in ("dp_rank", "stage", "mc", "mb_id", "gmc")},
        )
        for i in range(len(kept))
    ]


def _laid_end_to_end(step: Int64Array, start_s: np.ndarray, length_s: np.ndarray) -> tuple[Int64Array, Int64Array]:
    """Start and end of every operation, each step beginning where the one before ended."""
    begin = np.rint(start_s * 1e9).astype(np.int64)
    end = begin + np.rint(length_s * 1e9).astype(np.int64)
    steps, place = np.unique(step, return_inverse=True)
    span = np.zeros(len(steps), dtype=np.int64)
    np.maximum.at(span, place, end)
    base = ORIGIN_NS + np.concatenate((np.zeros(1, np.int64), np.cumsum(span)[:-1]))
    return base[place] + begin, base[place] + end


def _columns(o: _Operation, job: _Job) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "rank": o.rank,
        "name": o.optype,
        "lane": "compute" if o.optype in _COMPUTE else o.optype if o.optype.endswith(("send", "recv")) else "dp",
        "kind": "compute" if o.optype in _COMPUTE else "other",
        "start_ns": o.start_ns,
        "end_ns": o.end_ns,
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


def _add_steps(rows: Rows, job: _Job, first_index: int) -> None:
    """One span a worker and step: from the step's beginning to the end of the worker's last operation."""
    begin: dict[int, int] = {}
    end: dict[tuple[int, int], int] = {}
    for o in job.operations:
        begin[o.step] = min(begin.get(o.step, o.start_ns), o.start_ns)
        end[o.rank, o.step] = max(end.get((o.rank, o.step), 0), o.end_ns)
    for place, ((rank, step), end_ns) in enumerate(sorted(end.items())):
        rows.add(
            first_index + place,
            rank=rank,
            name="step",
            lane="step",
            kind="step",
            step=step,
            start_ns=begin[step],
            end_ns=end_ns,
            span_id=span_id("whatif", rank, step),
        )
