"""One derivation: from a job's events to everything the service knows about them.

    join recordings -> match -> steps -> fit the clocks -> aligned times -> replay order -> repair -> analyses

Each stage is a pure function of the ones before; this module only puts them in order. A derivation is a rebuildable cache: the
same events give the same answers whatever their batching, order or duplication.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.align.moved import moved
from crossrank.align.repair import repair
from crossrank.align.stream import Carried, fit_on
from crossrank.align.violations import count_violations
from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.critical_path import PathIndex, path_index
from crossrank.analysis.delay_map import DelayMap, delay_map
from crossrank.analysis.excess import work_cells
from crossrank.analysis.hangs import Receipts, receipts_of
from crossrank.analysis.lane_work import lane_work
from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.replay import build_replay
from crossrank.analysis.standstill import find_standstill
from crossrank.analysis.steps import StepTable, find_steps
from crossrank.analysis.stragglers import find_stragglers, role_of
from crossrank.analysis.waits import CollectiveTimes, collective_times
from crossrank.limits import Limits
from crossrank.model.clockmap import ClockMap
from crossrank.model.findings import Finding, Straggler
from crossrank.model.progress import reported_progress
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology
from crossrank.model.trace import trace_from_arrow
from crossrank.model.verdicts import Mismatch, Standstill
from crossrank.query import graphs
from crossrank.query.span_index import SpanIndex
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.reconstruct.recordings import join_recordings
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.topology import infer_topology


@dataclass(frozen=True, slots=True)
class Violations:
    """Stamps that lie before something they must follow: as sent, after the clock fit, after the repair."""

    raw: int
    after_fit: int
    after_repair: int


@dataclass(frozen=True, slots=True)
class Derived:
    """Everything derived from one version of one job attempt. complete_to_ns: every rank seen has reported up to here."""

    version: int
    events: int
    truncated: bool
    complete_to_ns: int | None
    topology: Topology
    timeline: Timeline
    violations: Violations
    steps: StepTable
    collectives: CollectiveTimes
    stragglers: tuple[Straggler, ...]
    delays: DelayMap
    findings: tuple[Finding, ...]
    paths: PathIndex
    index: SpanIndex
    mismatches: tuple[Mismatch, ...]
    standstill: Standstill
    receipts: Receipts | None
    joins: dict[str, int] = field(default_factory=dict)  # recordings of one rank joined, and not, by reason
    alignment_version: int = 1  # grows when aligned times told before have moved
    carried: Carried | None = None  # what the clock fit of a long job goes on from


def derive(
    events: pa.Table,
    *,
    job: str,
    attempt: int,
    version: int,
    topology: dict[str, object] | None,
    truncated: bool,
    previous: Derived | None = None,
    names_max: int = Limits().names_per_job,
) -> Derived:
    """Derives everything from identity-merged events of one job attempt.

    topology: what was posted for the job, if anything. truncated: `events` is not all of them. previous: the derivation before,
    whose clock fit goes on and which decides whether aligned times moved. names_max: distinct span names kept apart.
    """
    joined = join_recordings(trace_from_arrow(events, job=job, attempt=attempt, names_max=names_max))
    trace = joined.trace
    matches = match(trace)
    clocks, carried = fit_on(trace, matches, None if previous is None else previous.carried)
    fitted_start = clocks.to_reference(trace.domain, trace.start_ns)
    fitted_end = np.where(trace.is_open, fitted_start, clocks.to_reference(trace.domain, trace.end_ns))
    order = replay(trace, matches)
    start, end = repair(trace, matches, order, fitted_start, fitted_end)
    timeline = Timeline(trace, matches, order, clocks, start, end, assign_steps(trace))
    shape = infer_topology(trace, matches, topology)
    steps = find_steps(timeline, shape)
    times = collective_times(timeline)
    work = lane_work(timeline)
    graph = build_replay(timeline, work)
    graphs.keep(timeline, graph)
    mismatches = find_mismatches(timeline)
    cells = work_cells(graph, graph.timeline, role_of(shape), steps.step)
    stragglers = find_stragglers(timeline, shape, steps, graph=graph, cells=cells)
    return Derived(
        version=version,
        events=events.num_rows,
        truncated=truncated,
        complete_to_ns=_complete_to_ns(timeline),
        topology=shape,
        timeline=timeline,
        violations=Violations(
            raw=count_violations(matches, trace.start_ns, trace.end_ns, trace.is_open),
            after_fit=count_violations(matches, fitted_start, fitted_end, trace.is_open),
            after_repair=count_violations(matches, start, end, trace.is_open),
        ),
        steps=steps,
        collectives=times,
        stragglers=stragglers,
        delays=delay_map(steps, cells),
        findings=find_bottlenecks(timeline, shape, steps, stragglers, graph=graph, mismatches=mismatches),
        paths=path_index(timeline, work),
        index=SpanIndex.of(trace),
        mismatches=mismatches,
        standstill=find_standstill(timeline, shape, reported_progress(events, trace), mismatches),
        receipts=_receipts(events),
        joins=joined.counts,
        alignment_version=_alignment_version(previous, clocks, trace.domains),
        carried=carried,
    )


def _receipts(events: pa.Table) -> Receipts | None:
    said = pc.is_in(events["kind"], pa.array(["mark", "metric"]))
    finished = pc.and_not(pc.is_valid(events["end_ns"]), said)
    return receipts_of(events["received_ns"].to_numpy(), finished.to_numpy())


def _alignment_version(previous: Derived | None, clocks: ClockMap, domains: tuple[str, ...]) -> int:
    if previous is None:
        return 1
    before = previous.timeline
    return previous.alignment_version + int(moved(before.clocks, before.trace.domains, clocks, domains))


def _complete_to_ns(timeline: Timeline) -> int | None:
    """The earliest of the ranks' last stamps; None without spans. Spans are grouped by rank."""
    rank = timeline.trace.rank
    if len(rank) == 0:
        return None
    first = np.flatnonzero(np.diff(rank, prepend=rank[0] - 1))
    return int(np.maximum.reduceat(timeline.end_ns, first).min())
