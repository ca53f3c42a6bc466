"""Which links and groups are slow: transfer times against their peers, over steps.

A *link* is an ordered pair of ranks with messages between them. Two things show that it is slow: receives that waited for their
message last longer after it was sent (transfer), and sends stand in the way of their own program (a blocking send owns its time,
see lane_work). A *group* is slow when its collectives last longer after the last arrival. Time spent waiting for somebody to
arrive never counts: that is the late rank's.

Peers of a link are the links between the same two stages; peers of a group are groups of the same size, over as many hosts, that
run the same operation on as many bytes. Transfers are differences between two clocks, so a link whose excess per message is not
larger than the bound between the two clocks is not accused: the clocks might be what is slow. Neither is one that is slow in steps
here and there: that is how ends look whose machine holds them up now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.calibration import OF_GROUPS, OF_LINKS
from crossrank.analysis.excess import PhaseCells, cells_of, usual_step_ns
from crossrank.analysis.lateness import LEAST_CONFIDENCE, Lateness, late_phases
from crossrank.analysis.removal import removed_ns
from crossrank.analysis.replay import ReplayGraph, end_of_steps_ns, replay_ns
from crossrank.analysis.stragglers import (
    LEAST_SHARE,
    asked_columns,
    clock_error_ns,
    cost_error_ns,
    hidden_share,
    most_replays,
    role_of,
)
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.gates import NO_GATE
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.model.topology import Topology


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A link (`ranks` = source, destination) or a group (`ranks` = members) whose transfers are longer than those of its peers."""

    ranks: tuple[int, ...]
    group: str | None  # None for a link
    op: str
    steps: tuple[int, ...]
    excess_ns: int
    per_transfer_ns: int  # excess of one message or operation
    cost_ns: int
    cost_error_ns: int
    confidence: float


def find_slow_links(
    graph: ReplayGraph, timeline: Timeline, topology: Topology, steps: Int64Array, first: int | None, last: int | None,
    *, least_confidence: float = LEAST_CONFIDENCE,
) -> list[SlowLink]:  # fmt: skip
    """Slow links and groups, most expensive first."""
    least_ns = LEAST_SHARE * usual_step_ns(timeline, steps)
    links = _link_cells(graph, timeline, topology, steps, least_ns)
    by_link: dict[int, list[Lateness]] = {}
    for late in _lasting(late_phases(links, least_ns, least_confidence, OF_LINKS)):
        by_link.setdefault(int(late.cells.rows[late.row]), []).append(late)
    found = [_link(lates, graph, timeline, first, last) for lates in list(by_link.values())[: most_replays(graph)]]
    keys, groups = _group_cells(graph, timeline, topology, steps, least_ns)
    by_group: dict[int, list[Lateness]] = {}
    for late in _lasting(late_phases(groups, least_ns, least_confidence, OF_GROUPS)):
        by_group.setdefault(keys[int(late.cells.rows[late.row])][0], []).append(late)
    found += [_group(group, lates, graph, timeline, first, last) for group, lates in list(by_group.items())[: most_replays(graph)]]
    told = [f for f in found if f is not None and f.cost_ns > f.cost_error_ns and f.cost_ns >= least_ns * len(f.steps)]
    return sorted(told, key=lambda f: (-f.cost_ns, f.ranks, f.group or ""))


def _lasting(found: list[Lateness]) -> list[Lateness]:
    """Those that are slow in a run of steps. Now and then a transfer is long because a machine held up one of its ends."""
    return [late for late in found if not late.is_sparse]


def _link_code(topology: Topology, source: np.ndarray, destination: np.ndarray) -> Int64Array:
    code: Int64Array = source.astype(np.int64) * (max(topology.seen) + 1) + destination
    return code


def _link_cells(graph: ReplayGraph, timeline: Timeline, topology: Topology, steps: Int64Array, least_ns: float) -> list[PhaseCells]:
    messages, trace = timeline.matches.messages, timeline.trace
    if len(messages) == 0:
        return []
    role, width = role_of(topology), max(topology.seen) + 1
    code = _link_code(topology, trace.rank[messages.send], trace.rank[messages.recv])
    roles = {c: role[c // width] * width + role[c % width] for c in np.unique(code).tolist()}
    cells: list[PhaseCells] = []
    end = 2 * messages.recv + 1
    waited = (graph.gate[end] != NO_GATE) & (graph.recorded_ns[2 * messages.send] > graph.recorded_ns[2 * messages.recv])
    transfer = np.zeros(len(trace), dtype=np.int64)
    transfer[messages.recv] = graph.transfer_ns[end]
    for kind, spans, value, usable in (
        ("recv", messages.recv, transfer, waited),
        ("send", messages.send, graph.own_ns, np.ones(len(messages), dtype=np.bool_)),
    ):
        step = timeline.step_of[spans]
        kept = usable & (step != NO_STEP) & ~trace.is_open[spans]
        if kept.any():
            cells += cells_of(kind, kind, spans[kept], value, code[kept], step[kept], roles, steps, least_ns)
    return cells


def _group_cells(
    graph: ReplayGraph, timeline: Timeline, topology: Topology, steps: Int64Array, least_ns: float
) -> tuple[list[tuple[int, int]], list[PhaseCells]]:
    """Cells of (group, operation and size); one span stands for an instance, with the transfer of its first finisher."""
    coll, trace = timeline.matches.collectives, timeline.trace
    if len(coll) == 0:
        return [], []
    ends = 2 * coll.member + 1
    held = graph.gate[ends] != NO_GATE
    transfer = np.where(held, graph.transfer_ns[ends], np.iinfo(np.int64).max)
    first_end = np.minimum.reduceat(transfer, coll.ptr[:-1])
    span = coll.member[coll.ptr[:-1]]
    value = np.zeros(len(trace), dtype=np.int64)
    value[span] = first_end
    kept = coll.synchronising & np.logical_or.reduceat(held, coll.ptr[:-1]) & (timeline.step_of[span] != NO_STEP)
    kept &= np.diff(coll.ptr) >= 2
    kind_of = np.unique(np.stack((coll.op[kept], trace.size_bytes[span[kept]]), axis=1), axis=0, return_inverse=True)
    pairs, row = np.unique(np.stack((coll.group[kept], kind_of[1].reshape(-1)), axis=1), axis=0, return_inverse=True)
    keys = [(int(g), int(k)) for g, k in pairs.tolist()]
    shape = {g: _shape(trace.group_ranks[g], topology) for g in {g for g, _ in keys}}
    roles: dict[tuple[int, int, int], int] = {}
    role = {i: roles.setdefault((k, *shape[g]), len(roles)) for i, (g, k) in enumerate(keys)}
    span = span[kept]
    if len(span) == 0:
        return keys, []
    return keys, cells_of(
        "collective",
        "collective",
        span,
        value,
        row.reshape(-1),
        timeline.step_of[span],
        role,
        steps,
        least_ns,
        lonely_together=False,
    )


def _shape(members: tuple[int, ...], topology: Topology) -> tuple[int, int]:
    return len(members), len({topology.hosts.get(r, str(r)) for r in members})


def _link(lates: list[Lateness], graph: ReplayGraph, timeline: Timeline, first: int | None, last: int | None) -> SlowLink | None:
    """Both signs of one slow link are one cause: they are taken away together."""
    removed, transfer = np.zeros_like(graph.weight_ns), graph.transfer_ns.copy()
    main = max(lates, key=lambda late: float(late.shift_ns.sum()))
    asked = asked_columns(main, first, last)
    if not asked.any():
        return None
    for late in lates:
        columns = late.columns[asked_columns(late, first, last)]
        if late.cells.kind == "send":
            removed += removed_ns(graph, timeline, late, columns)
        else:
            _shorten(transfer, graph, timeline, late, columns)
    span = int(main.cells.spans[main.cells.span_row == main.row][0])
    source, destination = int(timeline.trace.rank[span]), int(timeline.trace.peer[span])
    if main.cells.kind == "recv":
        source, destination = destination, source
    per_transfer = float(main.shift_ns.mean()) / main.cells.usual_spans
    if main.cells.kind == "recv" and per_transfer <= _bound_ns(timeline, (source, destination)):
        return None
    if main.cells.kind == "send" and not _delivered_late(graph, timeline, main, per_transfer):
        return None
    cost = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, replay_ns(graph, removed, transfer), last)
    return _told((source, destination), None, "send", main, asked, cost, per_transfer, timeline)


def _delivered_late(graph: ReplayGraph, timeline: Timeline, late: Lateness, per_transfer: float) -> bool:
    """Whether messages of a send that stands in the way also arrive late.

    If not, the sender was slow, not the link; if no receiver ever waited for them, nobody can tell.
    """
    messages = timeline.matches.messages
    cells = late.cells
    mine = cells.spans[cells.span_row == late.row]
    mine = mine[np.isin(timeline.step_of[mine], cells.steps[late.columns])]
    posted, sent = graph.recorded_ns[2 * messages.recv], graph.recorded_ns[2 * messages.send]
    waited = (graph.gate[2 * messages.recv + 1] != NO_GATE) & (sent > posted)
    latency = graph.transfer_ns[2 * messages.recv + 1]
    here = waited & np.isin(messages.send, mine)
    elsewhere = waited & np.isin(messages.send, cells.spans) & ~here
    if not here.any() or not elsewhere.any():
        return False
    return bool(np.median(latency[here]) - np.median(latency[elsewhere]) > per_transfer / 2)


def _group(
    group: int, lates: list[Lateness], graph: ReplayGraph, timeline: Timeline, first: int | None, last: int | None
) -> SlowLink | None:
    """All operations of a slow group are slow for one reason."""
    trace = timeline.trace
    main = max(lates, key=lambda late: float(late.shift_ns.sum()))
    asked = asked_columns(main, first, last)
    members = tuple(np.unique(trace.rank[trace.group == group]).tolist())
    per_transfer = float(main.shift_ns.mean()) / main.cells.usual_spans
    if not asked.any() or per_transfer <= _bound_ns(timeline, members):
        return None
    transfer = graph.transfer_ns.copy()
    for late in lates:
        _shorten(transfer, graph, timeline, late, late.columns[asked_columns(late, first, last)])
    cost = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, replay_ns(graph, None, transfer), last)
    op = trace.ops[trace.op[main.cells.spans[main.cells.span_row == main.row][0]]]
    return _told(members, trace.groups[group], op, main, asked, cost, per_transfer, timeline)


def _shorten(transfer: Int64Array, graph: ReplayGraph, timeline: Timeline, late: Lateness, columns: Int64Array) -> None:
    """Takes the shift of each affected cell from its transfers, in proportion to what each has over the usual one."""
    cells = late.cells
    spans = cells.spans[cells.span_row == late.row]
    place = np.searchsorted(cells.steps, timeline.step_of[spans])
    chosen = np.isin(place, columns)
    spans, place = spans[chosen], place[chosen]
    expected = (cells.own_ns - cells.excess_ns)[late.row, place] / cells.usual_spans
    value = graph.transfer_ns[2 * spans + 1].astype(np.float64)
    over = np.maximum(value - expected, 0.0)
    shift = np.zeros(len(cells.steps))
    shift[late.columns] = late.shift_ns
    total = np.bincount(place, over, minlength=len(cells.steps))
    take = np.rint(over * np.minimum(shift / np.maximum(total, 1.0), 1.0)[place]).astype(np.int64)
    by_gate = np.zeros(graph.gates, dtype=np.int64)
    by_gate[graph.gate[2 * spans + 1]] = take
    held = np.flatnonzero(graph.gate != NO_GATE)
    transfer[held] = np.maximum(transfer[held] - by_gate[graph.gate[held]], np.minimum(transfer[held], 0))


def _bound_ns(timeline: Timeline, ranks: tuple[int, ...]) -> int:
    """Largest clock bound between any two of the ranks."""
    mine: BoolArray = np.isin(timeline.trace.rank, ranks)
    domains = np.unique(timeline.trace.domain[mine])
    return timeline.clocks.pairs.widest(domains)


def _told(
    ranks: tuple[int, ...], group: str | None, op: str, late: Lateness, asked: BoolArray, cost: int, per_transfer: float,
    timeline: Timeline,
) -> SlowLink:  # fmt: skip
    clock = max(clock_error_ns(timeline, r) for r in ranks)
    steps = late.cells.steps[late.columns[asked]]
    error = float(np.hypot(cost_error_ns(late, asked, cost, clock), cost * hidden_share(timeline, steps)))
    return SlowLink(
        ranks=ranks,
        group=group,
        op=op,
        steps=tuple(steps.tolist()),
        excess_ns=round(float(late.shift_ns[asked].sum())),
        per_transfer_ns=round(per_transfer),
        cost_ns=cost,
        cost_error_ns=round(error),
        confidence=late.confidence,
    )
