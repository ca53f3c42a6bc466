"""Replay of a job's dependencies with changed durations: what the job would have taken.

Every stamp happens when all it follows from has happened and the time it took after that has passed:

    t(s) = max( t(pred) + weight,                    its lane: own work, or 0 where the lane only waited
                t(launch) + launch_weight,           another lane of the rank that set it going
                t(cause) + delay,                    what the sender stated as its cause (explicit)
                gate(s) + transfer )                 another rank: every member of the collective has started, the message is sent
    gate = max over the starts it needs of t(start)

Each weight is what the recording shows after the latest of the things a stamp follows from, so the unchanged replay gives the
recorded times to the nanosecond: whatever it predicts for a change is due to the change. A cost is a difference of two replays:

    cost = end(recorded) - end(replayed without the excess)

which is what the job would have been shorter by, after all waits behind the excess have shrunk and the next slowest rank has
become the limit. It never counts the same lateness twice and never counts lateness that slack would have absorbed.

A receive whose message lay ready costs no wait; if its sender were late it would have to wait, so the gate keeps the link's usual
latency there. What a replay cannot see: contention (two transfers sharing a link), and work that would have been done meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from crossrank.analysis.explicit import Explicit, explicit_causes, least_delay_ns
from crossrank.analysis.lane_work import NO_OWNER, NO_STAMP, LaneWork, lane_work, own_ns, stamp_times
from crossrank.analysis.lost import with_lost_communications
from crossrank.analysis.release import QUEUE_GAP_NS, Releases, find_releases
from crossrank.analysis.rendezvous import both_arrive, sends_wait
from crossrank.analysis.replay_order import by_time, with_causes
from crossrank.analysis.waits import latest_at_gates
from crossrank.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from crossrank.model.gates import NO_GATE, Gates, gates_of
from crossrank.model.kinds import MARK, METRIC
from crossrank.model.timeline import NO_STEP, Timeline


@dataclass(frozen=True, slots=True)
class ReplayGraph:
    """Dependencies of s present stamps; stamps are numbered as in the trace. Times are relative to `origin_ns`."""

    timeline: Timeline  # with lost communications put back: what the arrays below are about
    origin_ns: int
    order: Int64Array  # [s] stamps, everything a stamp follows from comes before it
    recorded_ns: Int64Array  # [2n]
    pred: Int64Array  # [2n]
    weight_ns: Int64Array  # [2n]
    owner: Int64Array  # [2n] span whose work `weight_ns` is
    launch: Int64Array  # [2n]
    launch_weight_ns: Int64Array  # [2n]
    launch_during: Int64Array  # [2n] stamp whose lane edge was under way when the launch came, NO_STAMP
    opens: Int32Array  # [2n] gate that the stamp helps to open
    gate: Int32Array  # [2n] gate that the stamp waits at
    transfer_ns: Int64Array  # [2n] time after the gate
    gates: int
    explicit: Explicit  # stated causes; the delay after them is `weight_ns` of the start
    own_ns: Int64Array  # [n] working time each span owns, the sum of its weights on its own lane
    is_blocking: BoolArray  # [n] communications for which the program stood still


def build_replay(timeline: Timeline, work: LaneWork | None = None) -> ReplayGraph:
    """The replay graph of a repaired timeline. O(stamps log stamps); constraints the timeline violates are left out.

    work: `lane_work(timeline)`, when it is at hand.
    """
    work = work or lane_work(timeline)
    whole = with_lost_communications(timeline, work)
    if whole is not timeline:
        timeline, work = whole, lane_work(whole)
    time_ns = stamp_times(timeline)
    present = timeline.trace.lane_stamps
    origin = int(time_ns[present].min()) if len(present) else 0
    recorded = time_ns - origin
    releases = find_releases(timeline, work)
    gates = gates_of(timeline.matches, len(timeline.trace))
    explicit = explicit_causes(timeline.trace, recorded, work.pred)
    meet = sends_wait(timeline.trace, timeline.matches.messages, timeline.start_ns, timeline.end_ns)
    opens, gate, opened_ns = _gate_edges(timeline, gates, recorded, releases, meet)
    weight, owner = work.weight_ns.copy(), work.owner.copy()
    held = gate != NO_GATE
    transfer = np.where(held, recorded - opened_ns, 0)
    weight[held], owner[held] = 0, NO_OWNER
    if not meet:
        _receives(timeline, gates, recorded, gate, weight, transfer)
    first = work.pred == NO_STAMP
    weight[first], owner[first] = recorded[first], NO_OWNER
    launched_by = np.where(np.repeat(explicit.rules, 2), NO_STAMP, releases.launched_by)
    launch_weight, launch_during = _launch_edges(work, launched_by, releases.by_lane, recorded, weight, owner)
    stated = 2 * np.flatnonzero(explicit.rules)
    weight[stated] = np.where(work.pred[stated] == NO_STAMP, 0, explicit.delay_ns[stated // 2])
    owner[stated] = NO_OWNER
    order = by_time(timeline, recorded)
    if len(explicit):
        order = with_causes(order, work.pred, launched_by, explicit.ptr, explicit.cause, opens, gate, len(gates))
    return ReplayGraph(
        timeline, origin, order, recorded, work.pred, weight, owner, launched_by, launch_weight, launch_during,
        opens, gate, transfer, len(gates), explicit, _own(work, weight, owner), work.is_blocking,
    )  # fmt: skip


def without_unexplained_delays(graph: ReplayGraph) -> ReplayGraph:
    """The graph with the least delays after stated causes (explicit.least_delay_ns): no longer exact, but free to become shorter.

    Itself where no sender states its causes.
    """
    if not graph.explicit.rules.any():
        return graph
    delay = least_delay_ns(graph.explicit, graph.timeline.trace)
    weight = graph.weight_ns.copy()
    ruled = 2 * np.flatnonzero(graph.explicit.rules)
    ruled = ruled[graph.pred[ruled] != NO_STAMP]
    weight[ruled] = delay[ruled // 2]
    return replace(graph, weight_ns=weight, explicit=replace(graph.explicit, delay_ns=delay))


def replay_ns(graph: ReplayGraph, removed_ns: Int64Array | None = None, transfer_ns: Int64Array | None = None) -> Int64Array:
    """[2n] time of every stamp, relative to the origin, when `removed_ns` [2n] is taken from the own work before each stamp.

    `transfer_ns` [2n] replaces the times after the gates. Nothing changed: exactly the recorded times.
    """
    weight, launch_weight = graph.weight_ns, graph.launch_weight_ns
    if removed_ns is not None:
        weight = weight - removed_ns
        launch_weight = launch_weight - _removed_before_launch(graph, removed_ns)
    return _replay(
        graph.order, graph.pred, weight, graph.launch, launch_weight, graph.opens, graph.gate,
        graph.transfer_ns if transfer_ns is None else transfer_ns, graph.gates,
        graph.explicit.ptr if len(graph.explicit) else graph.explicit.ptr[:0], graph.explicit.cause, graph.explicit.delay_ns,
        graph.recorded_ns,
    )  # fmt: skip


def _removed_before_launch(graph: ReplayGraph, removed_ns: Int64Array) -> Int64Array:
    """A launch in the middle of a piece of work moves by that part of the removed time that lay before it, taken evenly."""
    out = np.zeros_like(removed_ns)
    launched = np.flatnonzero(graph.launch_during != NO_STAMP)
    piece = graph.launch_during[launched]
    touched = removed_ns[piece] != 0
    launched, piece = launched[touched], piece[touched]
    part = graph.launch_weight_ns[launched] / np.maximum(graph.weight_ns[piece], 1)
    out[launched] = np.rint(removed_ns[piece] * np.minimum(part, 1.0)).astype(np.int64)
    return out


def end_of_steps_ns(graph: ReplayGraph, time_ns: Int64Array, last: int | None = None) -> int:
    """Latest stamp of the steps up to `last` (of everything, when there are no steps)."""
    return _bounds_of_steps(graph, time_ns, None, last)[1]


def start_of_steps_ns(graph: ReplayGraph, time_ns: Int64Array, first: int | None = None) -> int:
    """Earliest stamp of the steps from `first` on (of everything, when there are no steps)."""
    return _bounds_of_steps(graph, time_ns, first, None)[0]


def stamps_in_steps(graph: ReplayGraph) -> BoolArray:
    """Mask over `order`: stamps of the work in steps. Metrics and marks only say when something was seen: they are no work.

    A host agent or a client's own thread posts them on lanes that nothing leads to, so no replay could move them.
    """
    spans = graph.order // 2
    inside: BoolArray = (graph.timeline.step_of[spans] != NO_STEP) & ~np.isin(graph.timeline.trace.kind[spans], (METRIC, MARK))
    return inside


def _bounds_of_steps(graph: ReplayGraph, time_ns: Int64Array, first: int | None, last: int | None) -> tuple[int, int]:
    """(earliest, latest) stamp of the work in those steps; of everything where there is none; (0, 0) without stamps."""
    if len(graph.order) == 0:
        return 0, 0
    low, high = NO_STEP + 1 if first is None else first, np.iinfo(np.int64).max if last is None else last
    trace = graph.timeline.trace
    earliest, latest = _bounds(time_ns, graph.timeline.step_of, trace.kind, trace.is_open, low, high)
    if latest < earliest:
        return int(time_ns[graph.order].min()), int(time_ns[graph.order].max())
    return earliest, latest


@njit(cache=True, nogil=True)
def _bounds(time_ns: Int64Array, step_of: Int64Array, kind: Int8Array, is_open: BoolArray, low: int, high: int) -> tuple[int, int]:
    earliest, latest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for i in range(len(kind)):
        if low <= step_of[i] <= high and kind[i] != METRIC and kind[i] != MARK:
            start, end = time_ns[2 * i], time_ns[2 * i if is_open[i] else 2 * i + 1]
            earliest, latest = min(earliest, start, end), max(latest, start, end)
    return earliest, latest


def _own(work: LaneWork, weight: Int64Array, owner: Int64Array) -> Int64Array:
    return own_ns(LaneWork(work.pred, weight, owner, work.is_program, work.is_blocking))


def _gate_edges(
    timeline: Timeline, gates: Gates, recorded: Int64Array, releases: Releases, meet: bool
) -> tuple[Int32Array, Int32Array, Int64Array]:
    """(opens, gate, time the gate opened) per stamp. A wait for a communication waits at its gate too.

    meet: sends wait for their receivers, so both sides open the gate of a message and wait at it.
    """
    n = len(timeline.trace)
    arrive, wait = gates.arrives, gates.waits
    if meet:
        spans, message = both_arrive(timeline.matches.messages)
        arrive, wait = arrive.copy(), wait.copy()
        arrive[spans] = wait[spans] = gates.collectives + message
    dropped = np.zeros(max(len(gates), 1), dtype=np.bool_)
    for kind, i in timeline.order.broken:
        dropped[i if kind == "collective" else gates.collectives + i] = True
    opened = latest_at_gates(arrive, recorded[0::2], max(len(gates), 1))
    gate = np.full(2 * n, NO_GATE, dtype=np.int32)
    gate[1::2] = wait
    waiting = np.flatnonzero(releases.waits_for >= 0)
    gate[2 * waiting + 1] = wait[releases.waits_for[waiting]]
    opens = np.full(2 * n, NO_GATE, dtype=np.int32)
    opens[0::2] = arrive
    ok = gate >= 0
    ok[1::2] &= ~timeline.trace.is_open
    ok[ok] = ~dropped[gate[ok]] & (opened[gate[ok]] <= recorded[ok])
    ok[2 * waiting + 1] &= opened[np.maximum(gate[2 * waiting + 1], 0)] < recorded[2 * waiting + 1]
    gate[~ok] = NO_GATE
    return opens, gate, np.where(ok, opened[np.maximum(gate, 0)], 0)


def _receives(
    timeline: Timeline, gates: Gates, recorded: Int64Array, gate: Int32Array, weight: Int64Array, transfer: Int64Array
) -> None:
    """Messages: the transfer starts when both sides are there; a message that lay ready keeps only its link's latency."""
    messages = timeline.matches.messages
    ends = 2 * messages.recv + 1
    held = gate[ends] == gates.waits[messages.recv]
    held &= gate[ends] != NO_GATE
    send, ends = messages.send[held], ends[held]
    posted, sent, done = recorded[ends - 1], recorded[2 * send], recorded[ends]
    waited = sent > posted
    latency = done - sent
    usual = int(np.median(latency[waited])) if waited.any() else 0
    transfer[ends] = np.where(waited, latency, np.minimum(latency, usual))
    weight[ends] = np.where(waited, np.minimum(latency, usual), done - posted)


def _launch_edges(
    work: LaneWork, launched_by: Int64Array, by_lane: BoolArray, recorded: Int64Array, weight: Int64Array, owner: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Weights of the edges between lanes of a rank, and the work they come out of; where they rule, the own lane's edge becomes 'not before'."""
    launched = np.flatnonzero(launched_by != NO_STAMP)
    source = launched_by[launched]
    launch_weight = np.zeros(len(recorded), dtype=np.int64)
    launch_weight[launched] = recorded[launched] - recorded[source]
    following = np.full(len(recorded), NO_STAMP, dtype=np.int64)
    program = np.flatnonzero(work.is_program & (work.pred != NO_STAMP))
    following[work.pred[program]] = program
    launch_during = np.full(len(recorded), NO_STAMP, dtype=np.int64)
    after = following[source]
    launch_during[launched] = np.where((after != NO_STAMP) & (owner[np.maximum(after, 0)] != NO_OWNER), after, NO_STAMP)
    queued = launched[~by_lane[launched]]
    had_lane = queued[work.pred[queued] != NO_STAMP]
    weight[had_lane] = np.minimum(weight[had_lane], np.minimum(launch_weight[had_lane], QUEUE_GAP_NS))
    owner[queued] = NO_OWNER
    weight[queued[work.pred[queued] == NO_STAMP]] = 0
    return launch_weight, launch_during


@njit(cache=True, nogil=True)
def _replay(
    order: Int64Array,
    pred: Int64Array,
    weight: Int64Array,
    launch: Int64Array,
    launch_weight: Int64Array,
    opens: Int32Array,
    gate: Int32Array,
    transfer: Int64Array,
    gates: int,
    cause_ptr: Int64Array,
    cause: Int64Array,
    delay: Int64Array,
    recorded: Int64Array,
) -> Int64Array:
    """One pass in topological order. Stamps that are not there keep their recorded time."""
    t = recorded.copy()
    opened = np.zeros(gates + 1, dtype=np.int64)
    for s in order:
        at = weight[s]
        if pred[s] >= 0:
            at += t[pred[s]]
        if launch[s] >= 0:
            at = max(at, t[launch[s]] + launch_weight[s])
        if len(cause_ptr) and s % 2 == 0:
            for k in range(cause_ptr[s // 2], cause_ptr[s // 2 + 1]):
                at = max(at, t[cause[k]] + delay[s // 2])
        if gate[s] >= 0:
            at = max(at, opened[gate[s]] + transfer[s])
        t[s] = at
        if opens[s] >= 0:
            opened[opens[s]] = max(opened[opens[s]], at)
    return t
