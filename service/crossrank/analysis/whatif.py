"""What the job would take if some operations took less (or more): replay with changed durations.

A change selects spans (by rank, kind, name, op, group, steps) and says what becomes of their durations:

    scale       times a factor
    cap_ns      no longer than this
    as median   what is usual: own work piece by piece at the median of the same phase in the same role (pipeline stage), transfers
                at the median of the same operation and size
    as ideal    all even: work at the mean of all ranks, steps and roles that do it, transfers at the median of all of the same name:
                the job without stragglers and without imbalance, in which no work vanishes

Own work of a span is its time without waits and communication (lane_work); of a communication only the transfer changes, never
the wait for those who come late: that follows from the rest.

Where the replay infers what waits for what, the unchanged replay gives the recorded times exactly and `replay_error` is zero; where
the senders state it (links), only the least delay after a cause is kept, and the error is what that leaves unexplained. The rest of
a prediction's error is the model's: contention, and work that would be done differently, are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crossrank.analysis.lane_work import NO_OWNER
from crossrank.analysis.replay import (
    ReplayGraph,
    end_of_steps_ns,
    replay_ns,
    stamps_in_steps,
    start_of_steps_ns,
    without_unexplained_delays,
)
from crossrank.errors import BadParameter
from crossrank.model.arrays import BoolArray, Float64Array, Int64Array
from crossrank.model.gates import NO_GATE
from crossrank.model.kinds import KIND_CODE, SYNC, canonical_op
from crossrank.model.timeline import NO_STEP
from crossrank.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Change:
    """One change. Selectors that are None select everything; exactly one of `scale`, `cap_ns`, `becomes` says what happens.

    Raises BadParameter, naming the field, for values that cannot be used.
    """

    rank: int | None = None
    kind: str | None = None  # "*" as well as None: any
    name: str | None = None
    op: str | None = None
    group: str | None = None
    first: int | None = None  # steps, inclusive
    last: int | None = None
    scale: float | None = None
    cap_ns: int | None = None
    becomes: Literal["median", "ideal"] | None = None

    def __post_init__(self) -> None:
        if (self.scale is not None) + (self.cap_ns is not None) + (self.becomes is not None) != 1:
            raise BadParameter("a change needs exactly one of scale, cap_ns and as", field="changes")
        if self.kind not in (None, "*") and self.kind not in KIND_CODE:
            raise BadParameter(f"{self.kind!r} is not an event kind", field="kind")
        if self.scale is not None and not 0 <= self.scale <= 1000:
            raise BadParameter(f"scale must be between 0 and 1000, not {self.scale}", field="scale")
        if self.cap_ns is not None and self.cap_ns < 0:
            raise BadParameter(f"cap_ns must not be negative, not {self.cap_ns}", field="cap_ns")
        if self.becomes not in (None, "median", "ideal"):
            raise BadParameter(f"as must be median or ideal, not {self.becomes!r}", field="as")


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """Duration of one step, recorded and predicted (from its first start to its last end)."""

    step: int
    recorded_ns: int
    predicted_ns: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Durations of all steps together; replay_ns is the replay without a change, replay_error = baseline / replay - 1."""

    baseline_ns: int
    replay_ns: int
    replay_error: float
    predicted_ns: int
    saving_ns: int
    steps: tuple[StepPrediction, ...]


def predict(graph: ReplayGraph, topology: Topology, changes: Sequence[Change]) -> WhatIf:
    """Replays the job with all changes, applied in order (a later one sees what an earlier one left)."""
    graph = without_unexplained_delays(graph)
    weight, transfer = graph.weight_ns.astype(np.float64), graph.transfer_ns.astype(np.float64)
    for change in changes:
        chosen = _selected(graph, change)
        _change_work(graph, topology, change, chosen, weight)
        _change_transfers(graph, change, chosen, transfer)
    removed = graph.weight_ns - np.rint(weight).astype(np.int64)
    predicted = replay_ns(graph, removed, np.rint(transfer).astype(np.int64))
    unchanged = replay_ns(graph)
    base, replayed, changed = (_duration_ns(graph, t) for t in (graph.recorded_ns, unchanged, predicted))
    return WhatIf(base, replayed, base / replayed - 1 if replayed else 0.0, changed, replayed - changed, _steps(graph, predicted))


def _duration_ns(graph: ReplayGraph, time_ns: Int64Array) -> int:
    return end_of_steps_ns(graph, time_ns) - start_of_steps_ns(graph, time_ns)


def _selected(graph: ReplayGraph, change: Change) -> BoolArray:
    trace, step = graph.timeline.trace, graph.timeline.step_of
    chosen: BoolArray = np.ones(len(trace), dtype=np.bool_)
    if change.rank is not None:
        chosen &= trace.rank == change.rank
    if change.kind not in (None, "*"):
        chosen &= trace.kind == KIND_CODE[change.kind]
    for word, words, code in ((change.name, trace.names, trace.name), (change.group, trace.groups, trace.group)):
        if word is not None:
            chosen &= np.isin(code, [i for i, w in enumerate(words) if w == word])
    if change.op is not None:
        chosen &= np.isin(trace.op, [i for i, w in enumerate(trace.ops) if canonical_op(w) == canonical_op(change.op)])
    if change.first is not None:
        chosen &= (step >= change.first) & (step != NO_STEP)
    if change.last is not None:
        chosen &= (step <= change.last) & (step != NO_STEP)
    return chosen


def _change_work(graph: ReplayGraph, topology: Topology, change: Change, chosen: BoolArray, weight: Float64Array) -> None:
    pieces = np.flatnonzero(graph.owner != NO_OWNER)
    span = graph.owner[pieces]
    mine = chosen[span]
    if change.scale is not None:
        weight[pieces[mine]] *= change.scale
    elif change.cap_ns is not None:
        own = np.bincount(span, weight[pieces], minlength=len(chosen))
        weight[pieces[mine]] *= np.minimum(change.cap_ns / np.maximum(own[span[mine]], 1.0), 1.0)
    else:
        order = np.lexsort((graph.recorded_ns[pieces], span))
        pieces, span, mine = pieces[order], span[order], mine[order]
        first = np.flatnonzero(np.diff(span, prepend=-1))
        ordinal = np.arange(len(span)) - np.repeat(first, np.diff(first, append=len(span)))
        trace = graph.timeline.trace
        pieces_of = np.repeat(np.diff(first, append=len(span)), np.diff(first, append=len(span)))
        stage = topology.stage_of(trace.rank[span]) if change.becomes == "median" else np.zeros(len(span), dtype=np.int32)
        alike = _alike(trace.kind[span], trace.name[span], stage, pieces_of, ordinal)
        weight[pieces[mine]] = _typical(weight[pieces], alike, mean=change.becomes == "ideal")[mine]


def _change_transfers(graph: ReplayGraph, change: Change, chosen: BoolArray, transfer: Float64Array) -> None:
    trace = graph.timeline.trace
    ends = np.flatnonzero((graph.gate != NO_GATE) & (graph.transfer_ns > 0))
    rank, is_wait = trace.rank[ends // 2], trace.kind[ends // 2] == SYNC
    mine = chosen[ends // 2] & ~is_wait
    by_gate = np.unique(
        graph.gate[ends[mine]].astype(np.int64) * 2**32 + rank[mine]
    )  # a rank's wait for an operation changes with it
    mine |= is_wait & np.isin(graph.gate[ends].astype(np.int64) * 2**32 + rank, by_gate)
    if change.scale is not None:
        transfer[ends[mine]] *= change.scale
    elif change.cap_ns is not None:
        transfer[ends[mine]] = np.minimum(transfer[ends[mine]], change.cap_ns)
    else:
        span = ends // 2
        alike = _alike(trace.kind[span], trace.name[span], trace.op[span], trace.size_bytes[span])
        transfer[ends[mine]] = _typical(transfer[ends], alike, mean=False)[mine]


def _alike(*columns: np.ndarray) -> Int64Array:
    """Number of the distinct combination in each row."""
    code: Int64Array = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * max(len(values), 1) + place.reshape(-1), return_inverse=True)[1].reshape(-1)
    return code


def _typical(value: Float64Array, alike: Int64Array, *, mean: bool) -> Float64Array:
    """Mean or median of each row's kind."""
    count = np.bincount(alike)
    if mean:
        return (np.bincount(alike, value) / np.maximum(count, 1))[alike]
    ranked = value[np.lexsort((value, alike))]
    first = np.concatenate(([0], np.cumsum(count)[:-1]))
    low, high = first + np.maximum(count - 1, 0) // 2, np.minimum(first + count // 2, max(len(ranked) - 1, 0))
    middle: Float64Array = ((ranked[low] + ranked[high]) / 2)[alike]
    return middle


def _steps(graph: ReplayGraph, predicted: Int64Array) -> tuple[StepPrediction, ...]:
    stamps = graph.order[stamps_in_steps(graph)]
    step = graph.timeline.step_of[stamps // 2]
    if len(step) == 0:
        return ()
    order = np.argsort(step, kind="stable")
    numbers, first = np.unique(step[order], return_index=True)
    spans = [
        np.maximum.reduceat(t[stamps[order]], first) - np.minimum.reduceat(t[stamps[order]], first)
        for t in (graph.recorded_ns, predicted)
    ]
    return tuple(StepPrediction(*row) for row in zip(numbers.tolist(), spans[0].tolist(), spans[1].tolist(), strict=True))
