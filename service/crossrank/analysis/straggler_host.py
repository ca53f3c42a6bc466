"""Pattern: several ranks of one host are slow together, because of what they share: its power, cooling, memory, disk, neighbours.

Conditions  hosts are known, and the spans of a phase on one host are longer than on the hosts whose ranks have the same role
            (stage). The rows compared are (host, stage); what counts is the *typical* span of a row, so one slow rank among several
            moves nothing: it stays a finding of its own. Most ranks of the row, and two at least, must be slow themselves.
            A run of such steps must be beyond chance, corrected for all hosts and phases (analysis.runs).
Cost        one replay without the excess of all slow ranks of the host together, in all phases that are slow there. Taken away one
            by one they would cost next to nothing: each hides behind the others.
Evidence    the ranks, the phases, the steps. Findings of single ranks that this explains are taken back: one cause, one finding.
Doubt       where a stage has fewer than three hosts, its hosts are compared with their own other steps (analysis.excess): a host that
            is slow all the time cannot be told then. Only hosts are known: which ranks share a switch or a power supply is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.excess import usual_step_ns, work_cells
from crossrank.analysis.lateness import Lateness, find_lateness
from crossrank.analysis.removal import removed_ns
from crossrank.analysis.replay import ReplayGraph, end_of_steps_ns, replay_ns
from crossrank.analysis.stragglers import LEAST_SHARE, asked_columns, clock_error_ns, most_replays
from crossrank.model.arrays import Int64Array
from crossrank.model.findings import Cause, Straggler
from crossrank.model.topology import Topology

_LEAST_RANKS: Final = 2
_FEW_SPANS: Final = 3  # with fewer spans in a cell there is no typical one, and their mean is judged
_LARGEST_OWN: Final = 3.0  # a rank with this times the excess of its host is slow for a reason of its own


@dataclass(frozen=True, slots=True)
class StragglerHost:
    """A host whose ranks are late together. excess_ns: of one of its ranks, in all steps and phases."""

    host: str
    ranks: tuple[int, ...]
    causes: tuple[Cause, ...]  # the one with most excess first
    steps: tuple[int, ...]
    excess_ns: int
    cost_ns: int
    cost_error_ns: int
    confidence: float


@dataclass(frozen=True, slots=True)
class _Late:
    """One phase of one (host, stage) row, and the ranks in it that are slow."""

    late: Lateness
    ranks: tuple[int, ...]


def find_straggler_hosts(
    graph: ReplayGraph, topology: Topology, steps: Int64Array, first: int | None, last: int | None
) -> list[StragglerHost]:
    """Hosts by cost, most expensive first; [] where fewer than two hosts are known, or none has several ranks."""
    hosts = sorted(set(topology.hosts.values()))
    if len(hosts) < 2 or len(topology.hosts) < len(hosts) + 1 or len(steps) < 2:
        return []
    stages = max(topology.stage) + 1
    place = {host: i for i, host in enumerate(hosts)}
    row_of = np.full(max(topology.seen) + 1, -1, dtype=np.int64)
    for rank, stage in zip(topology.seen, topology.stage, strict=True):
        if rank in topology.hosts:
            row_of[rank] = place[topology.hosts[rank]] * stages + stage
    rows = np.unique(row_of[row_of >= 0])
    stage_of = {int(row): int(row) % stages for row in rows}
    least_ns = LEAST_SHARE * usual_step_ns(graph.timeline, steps)
    cells = work_cells(graph, graph.timeline, stage_of, steps, row_of)
    cells = [c for c in cells if c.is_typical or c.usual_spans < _FEW_SPANS]
    by_host: dict[int, list[_Late]] = {}
    for late in find_lateness(cells, least_ns):
        ranks = _slow_ranks(graph, late)
        whole = int((row_of == late.cells.rows[late.row]).sum())
        if not late.is_sparse and len(ranks) >= _LEAST_RANKS and 2 * len(ranks) > whole:
            by_host.setdefault(int(late.cells.rows[late.row]) // stages, []).append(_Late(late, ranks))
    found = [_priced(hosts[h], lates, graph, first, last) for h, lates in list(by_host.items())[: most_replays(graph)]]
    kept = [f for f in found if f is not None and f.cost_ns > f.cost_error_ns and f.cost_ns >= least_ns * len(f.steps)]
    return sorted(kept, key=lambda f: (-f.cost_ns, f.host))


def explained(straggler: Straggler, hosts: list[StragglerHost]) -> bool:
    """Whether a host's finding says what this rank's would: the same phase in mostly the same steps, and no more of it."""
    for host in hosts:
        common = len(set(straggler.steps) & set(host.steps))
        if straggler.rank in host.ranks and straggler.cause in host.causes and 2 * common >= len(straggler.steps):
            return straggler.excess_ns <= _LARGEST_OWN * max(host.excess_ns, 1)
    return False


def _slow_ranks(graph: ReplayGraph, late: Lateness) -> tuple[int, ...]:
    """Ranks of the row whose own typical span in the affected steps has at least half of the row's excess."""
    cells, trace = late.cells, graph.timeline.trace
    spans = cells.spans[cells.span_row == late.row]
    inside = np.isin(graph.timeline.step_of[spans], cells.steps[late.columns])
    spans = spans[inside]
    expected = float(np.nanmedian((cells.own_ns - cells.excess_ns)[late.row, late.columns])) / cells.usual_spans
    limit = expected + float(late.shift_ns.mean()) / cells.usual_spans / 2
    rank = trace.rank[spans]
    return tuple(r for r in np.unique(rank).tolist() if float(np.median(graph.own_ns[spans[rank == r]])) > limit)


def _priced(host: str, lates: list[_Late], graph: ReplayGraph, first: int | None, last: int | None) -> StragglerHost | None:
    lates = sorted(lates, key=lambda one: -float(one.late.shift_ns.sum()))
    main = lates[0].late
    asked = [asked_columns(one.late, first, last) for one in lates]
    if not asked[0].any():
        return None
    removed = np.zeros_like(graph.weight_ns)
    for one, inside in zip(lates, asked, strict=True):
        removed += removed_ns(graph, graph.timeline, one.late, one.late.columns[inside])
    ranks = tuple(sorted({r for one in lates for r in one.ranks}))
    cost = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, replay_ns(graph, removed), last)
    shifts = [float(one.late.shift_ns[inside].sum()) for one, inside in zip(lates, asked, strict=True)]
    reaches = min(cost / max(sum(shifts), 1.0), 1.0)
    noise = sum(one.late.error_ns**2 * inside.mean() for one, inside in zip(lates, asked, strict=True)) ** 0.5 * reaches
    clock = float(asked[0].sum()) * clock_error_ns(graph.timeline, ranks[0])
    return StragglerHost(
        host=host,
        ranks=ranks,
        causes=tuple(dict.fromkeys(Cause(one.late.cells.kind, one.late.cells.name) for one in lates)),
        steps=tuple(main.cells.steps[main.columns[asked[0]]].tolist()),
        excess_ns=round(sum(shifts) / len(ranks)),
        cost_ns=cost,
        cost_error_ns=round(float(np.hypot(noise, clock))),
        confidence=max(one.late.confidence for one in lates),
    )
