"""A run as events: every span that happened, with what its slot, its rank and its step say about it, as an Arrow table.

Sequence numbers are 1-based and count per group (per group, source and destination for messages): the step number times the
operations a step has, plus the slot's ordinal. A rank that left out a collective is one behind from there on.
Rows are in the order of rank and, on it, of the program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.flags import EventFlag
from crossrank.simulate.clocks import Clocks
from crossrank.simulate.config import JobConfig
from crossrank.simulate.engine import NEVER, Run
from crossrank.simulate.plan import Plan
from crossrank.simulate.program import NO_MICROBATCH, Communication, Program, Slot
from crossrank.simulate.topology import SCOPES, Layout, host_names

_MEMBERS_ALWAYS: Final = 64  # larger groups list their members in the first step only, to keep events small
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Rows:
    """Spans that happened, row-aligned: where each stands in the program and when it truly was (ns since the job's start)."""

    rank: Int32Array
    step: Int32Array
    slot: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array  # 0 where open
    is_open: BoolArray

    def take(self, keep: BoolArray) -> Rows:
        """The rows of a mask."""
        return Rows(self.rank[keep], self.step[keep], self.slot[keep], self.start_ns[keep], self.end_ns[keep], self.is_open[keep])


def rows_of(program: Program, run: Run) -> Rows:
    """All spans of a run that started, by rank and program order."""
    steps, _, replicas, shards = run.start_ns.shape
    here = replicas * shards
    stage_of = np.array([slot.stage for slot in program.slots])
    parts: list[tuple[np.ndarray, ...]] = []
    for stage in range(int(stage_of.max()) + 1):
        slots = np.flatnonzero(stage_of == stage)
        start, end = (a[:, slots].reshape(steps, len(slots), here).transpose(2, 0, 1) for a in (run.start_ns, run.end_ns))
        rank, step, number = np.nonzero(start < NEVER)
        parts.append((rank + stage * here, step, slots[number], start[rank, step, number], end[rank, step, number]))
    rank, step, slot, start, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    is_open = end >= NEVER
    return Rows(rank.astype(np.int32), step.astype(np.int32), slot.astype(np.int32), start, np.where(is_open, 0, end), is_open)


def events_of(config: JobConfig, layout: Layout, program: Program, plan: Plan, clocks: Clocks, rows: Rows, seed: int) -> pa.Table:
    """The events of some rows (EVENT_SCHEMA), stamped by the wrong clocks; `received_ns` is 0 as nobody has received them."""
    n = len(rows.rank)
    host = (rows.rank // config.ranks_per_host).astype(np.int32)
    start = clocks.read(host, rows.start_ns)
    end = np.where(rows.is_open, 0, clocks.read(host, rows.end_ns))
    hosts = host_names(config)
    communication = _communication(layout, program, plan, rows)
    reversed_ = ~rows.is_open & (end < start)
    columns: dict[str, pa.Array] = {
        "job": _words(np.zeros(n, np.int32), (config.job,)),
        "attempt": pa.array(np.zeros(n, np.int32)),
        "rank": pa.array(rows.rank),
        "host": _words(host, hosts),
        "clock": _words(host, hosts),
        "lane": _slot_words(program, rows, lambda s: s.lane),
        "name": _slot_words(program, rows, lambda s: s.name),
        "kind": _slot_words(program, rows, lambda s: s.kind),
        "start_ns": pa.array(start),
        "end_ns": pa.array(end, mask=rows.is_open),
        "step": pa.array(rows.step.astype(np.int64)),
        "is_async": pa.array(np.zeros(n, np.bool_)),
        "trace_id": _trace_ids(config, rows, seed),
        "span_id": _span_ids(program, rows.rank, rows.step, rows.slot, None),
        "parent_span_id": _parents(program, rows),
        "attrs": _attributes(program, rows),
        "flags": pa.array(np.where(reversed_, int(EventFlag.END_BEFORE_START), 0).astype(np.int32)),
        "received_ns": pa.array(np.zeros(n, np.int64)),
        **communication,
    }
    arrays = [columns[f.name] if f.name in columns else pa.nulls(n, f.type) for f in EVENT_SCHEMA]
    return pa.Table.from_arrays([a.cast(f.type) for a, f in zip(arrays, EVENT_SCHEMA, strict=True)], schema=EVENT_SCHEMA)


def _words(codes: Int32Array, words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.where(codes == _NONE, 0, codes), mask=codes == _NONE), pa.array(words, pa.string())
    )


def _slot_words(program: Program, rows: Rows, word: Callable[[Slot], str | None]) -> pa.Array:
    values = [word(slot) for slot in program.slots]
    words = tuple(sorted({v for v in values if v is not None}))
    code = np.array([words.index(v) if v is not None else _NONE for v in values], np.int32)
    return _words(code[rows.slot], words)


def _slot_ints(program: Program, value: Callable[[Communication], int], missing: int) -> Int64Array:
    return np.array([missing if (c := s.communication) is None else value(c) for s in program.slots], np.int64)


def _communication(layout: Layout, program: Program, plan: Plan, rows: Rows) -> dict[str, pa.Array]:
    """Columns that only communication has."""
    stage_ranks = layout.config.dp * layout.config.tp
    scope = _slot_ints(program, lambda c: SCOPES.index(c.scope), _NONE)[rows.slot]
    absent = scope == _NONE
    group = np.where(absent, _NONE, layout.group_of[scope, rows.rank]).astype(np.int32)
    ordinal, per_step = (_slot_ints(program, get, 0)[rows.slot] for get in (attrgetter("ordinal"), attrgetter("per_step")))
    seq = rows.step * per_step + ordinal + 1
    for (step, name, index), who in plan.skip.items():
        behind = (scope == SCOPES.index(name)) & who.reshape(-1)[rows.rank]
        seq[behind & ((rows.step > step) | ((rows.step == step) & (ordinal > index)))] -= 1
    size = _slot_ints(program, lambda c: c.size_bytes, 0)[rows.slot]
    for (step, name, index), wrong in plan.wrong_size.items():
        for rank, size_bytes in wrong:
            hit = (scope == SCOPES.index(name)) & (rows.step == step) & (ordinal == index) & (rows.rank == rank)
            size[hit] = size[hit] // 2 if size_bytes is None else size_bytes
    towards = _slot_ints(program, lambda c: c.towards, 0)[rows.slot]
    peer = (rows.rank + towards * stage_ranks).astype(np.int32)
    return {
        "group": _words(group, layout.groups),
        "seq": pa.array(seq, mask=absent),
        "group_ranks": _members(layout, group, rows.step),
        "op": _slot_words(program, rows, lambda s: s.communication.op if s.communication else None),
        "peer": pa.array(peer, mask=towards == 0),
        "bytes": pa.array(size, mask=absent),
        "dtype": _slot_words(program, rows, lambda s: s.communication.dtype if s.communication else None),
    }


def _members(layout: Layout, group: Int32Array, step: Int32Array) -> pa.Array:
    """Membership lists; large groups only in the first step."""
    length = np.array([len(m) for m in layout.members], np.int64)
    shown = (group != _NONE) & ((length[group] <= _MEMBERS_ALWAYS) | (step == 0))
    flat = np.concatenate([np.array(m, np.int32) for m in layout.members])
    first = np.concatenate(([0], np.cumsum(length)))
    count = np.where(shown, length[group], 0)
    offsets = np.concatenate(([0], np.cumsum(count)))
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], count)
    values = flat[np.repeat(first[:-1][group], count) + within]
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), mask=pa.array(~shown))


def _trace_ids(config: JobConfig, rows: Rows, seed: int) -> pa.Array:
    """One trace a step: eight bytes of the job and seed, eight of the step."""
    job = hashlib.blake2b(f"{config.job}/{seed}".encode(), digest_size=8).digest()
    ids = np.empty(len(rows.step), dtype=np.dtype([("job", "S8"), ("step", ">i8")]))
    ids["job"], ids["step"] = job, rows.step.astype(np.int64) + 1
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(ids.tobytes())])


def _span_ids(
    program: Program, rank: Int32Array, step: Int32Array, slot: Int64Array | Int32Array, absent: BoolArray | None
) -> pa.Array:
    """Unique within a rank and the same whatever faults there are: rank + 1 in the upper half, place in the program below."""
    place = step.astype(np.int64) * len(program.slots) + slot + 1
    ids = (((rank.astype(np.int64) + 1) << 40) | place).astype(">i8")
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(ids), [None, pa.py_buffer(ids.tobytes())])
    return array if absent is None else pc.if_else(pa.array(absent), pa.scalar(None, pa.binary(8)), array)


def _parents(program: Program, rows: Rows) -> pa.Array:
    parent = np.array([_NONE if s.parent is None else s.parent for s in program.slots], np.int64)[rows.slot]
    return _span_ids(program, rows.rank, rows.step, parent, parent == _NONE)


def _attributes(program: Program, rows: Rows) -> pa.Array:
    texts = [_attribute_text(slot) for slot in program.slots]
    return pa.array(texts, pa.string()).take(pa.array(rows.slot))


def _attribute_text(slot: Slot) -> str | None:
    shown: dict[str, object] = {}
    if slot.microbatch != NO_MICROBATCH:
        shown["microbatch"] = slot.microbatch
    if slot.communication is not None and slot.phase is not None:
        shown["phase"] = slot.phase
    return json.dumps(shown, separators=(",", ":")) if shown else None
