"""Which ranks are late by themselves, in which phase of which steps, and what it costs the job.

A straggler is a rank whose own work exceeds what is expected of it (excess) in a run of steps that chance does not explain
(runs). Waiting is not work, so whoever waits for a straggler, or waits for somebody who waits for it, is never accused. The cost
comes from the replay: what the job would have been shorter by without the excess, after slack and the next slowest rank.

cost_error_ns (one standard deviation) holds the noise of the excess, scaled to what of it reaches the end of the job, the clocks'
error against each other, which hides how far behind the next rank was, and what lost events hide of the excess.
"""

from __future__ import annotations

import numpy as np

from crossrank.analysis.excess import PhaseCells, usual_step_ns, work_cells
from crossrank.analysis.lateness import LEAST_CONFIDENCE, Lateness, is_jitter, late_phases
from crossrank.analysis.removal import removed_ns
from crossrank.analysis.replay import ReplayGraph, build_replay, end_of_steps_ns, replay_ns, start_of_steps_ns
from crossrank.analysis.steps import StepTable
from crossrank.model.findings import Cause, Straggler
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology

LEAST_SHARE = 0.002  # thresholds below this share of a usual step are not tried, and costs below it are not told
_REPLAYED_STAMPS = 60_000_000  # all replays of one answer together, a few seconds


def find_stragglers(
    timeline: Timeline, topology: Topology, steps: StepTable,
    *, first: int | None = None, last: int | None = None, graph: ReplayGraph | None = None,
    cells: list[PhaseCells] | None = None, least_confidence: float = LEAST_CONFIDENCE,
) -> tuple[Straggler, ...]:  # fmt: skip
    """Stragglers by cost, most expensive first; () when nothing is beyond chance.

    first, last: the steps asked about, inclusive. All steps are evidence; steps, excess and cost are told of these only.
    graph, cells: `build_replay` of this timeline and `work_cells` of all its steps, when they have been made already.
    least_confidence: nothing below it is told.
    """
    if len(steps) < 2:
        return ()
    graph = graph or build_replay(timeline)
    timeline = graph.timeline
    least_ns = LEAST_SHARE * usual_step_ns(timeline, steps.step)
    cells = work_cells(graph, timeline, role_of(topology), steps.step) if cells is None else cells
    found = late_phases(cells, least_ns, least_confidence)
    priced = [_priced(late, graph, timeline, topology, first, last) for late in found[: most_replays(graph)]]
    kept = [s for s in priced if s is not None and s.cost_ns > s.cost_error_ns and s.cost_ns >= least_ns * _stretch(s)]
    return tuple(sorted(kept, key=lambda s: (-s.cost_ns, s.rank, s.cause.kind, s.cause.name)))


def most_replays(graph: ReplayGraph) -> int:
    """How many candidates are costed, those with most excess first: between 8 and 64, by the size of the job."""
    return int(np.clip(_REPLAYED_STAMPS // max(len(graph.order), 1), 8, 64))


def _stretch(s: Straggler) -> float:
    """Steps over which a cost must be worth telling: those affected; for pauses all in between, and more of them."""
    return 2.5 * (s.steps[-1] - s.steps[0] + 1) if s.is_jitter else float(len(s.steps))


def role_of(topology: Topology) -> dict[int, int]:
    """Role (pipeline stage) of each rank: ranks of one role do the same work."""
    return dict(zip(topology.seen, topology.stage, strict=True))


def asked_columns(late: Lateness, first: int | None, last: int | None) -> np.ndarray:
    """Mask over the affected columns: those in the steps asked about."""
    numbers = late.cells.steps[late.columns]
    inside: np.ndarray = np.ones(len(numbers), dtype=np.bool_)
    if first is not None:
        inside &= numbers >= first
    if last is not None:
        inside &= numbers <= last
    return inside


def _priced(
    late: Lateness, graph: ReplayGraph, timeline: Timeline, topology: Topology, first: int | None, last: int | None
) -> Straggler | None:
    asked = asked_columns(late, first, last)
    columns, cells = late.columns[asked], late.cells
    if len(columns) == 0:
        return None
    end_ns = end_of_steps_ns(graph, graph.recorded_ns, last)
    removed = removed_ns(graph, timeline, late, columns)
    cost = end_ns - end_of_steps_ns(graph, replay_ns(graph, removed), last)
    error = cost_error_ns(late, asked, cost, clock_error_ns(timeline, rank_of(late)))
    unseen = cost * _unseen_share(late, columns, asked, int(removed.sum()))
    error = round(float(np.hypot(error, unseen + cost * hidden_share(timeline, cells.steps[columns]))))
    rank = rank_of(late)
    expected = cells.own_ns[late.row, columns] - cells.excess_ns[late.row, columns]
    return Straggler(
        rank=rank,
        host=topology.hosts.get(rank),
        cause=Cause(cells.kind, cells.name),
        steps=tuple(cells.steps[columns].tolist()),
        cost_ns=cost,
        cost_error_ns=error,
        cost_per_step_ns=cost // len(columns),
        excess_ns=round(float(late.shift_ns[asked].sum())),
        typical_ns=round(float(np.nanmedian(expected))),
        confidence=late.confidence,
        span_of_time_ns=end_ns - start_of_steps_ns(graph, graph.recorded_ns, first),
        is_jitter=is_jitter(late),
    )


def rank_of(late: Lateness) -> int:
    """The rank that is late."""
    return int(late.cells.rows[late.row])


def _unseen_share(late: Lateness, columns: np.ndarray, asked: np.ndarray, removed: int) -> float:
    """How much more excess there must have been than could be taken away, where events were lost; relative to what was.

    A step inside the run whose phase nobody saw was as late as the others, one at its ends may have been; a piece merged with a
    lost neighbour hides some of it.
    """
    if is_jitter(late):
        return 0.0
    unseen = np.isnan(late.cells.own_ns[late.row])
    first, last = int(columns[0]), int(columns[-1])
    while first > 0 and unseen[first - 1]:
        first -= 1
    while last + 1 < len(unseen) and unseen[last + 1]:
        last += 1
    wanted = float(late.shift_ns[asked].mean()) * (len(columns) + int(unseen[first : last + 1].sum()))
    return max(wanted - removed, 0.0) / max(removed, 1)


def hidden_share(timeline: Timeline, steps: np.ndarray) -> float:
    """Standard error of a cost over these steps, as a share of it, for what lost events and clock steps may hide.

    Where in its lane a clock was stepped is known to the piece of work only, so one step of the job may lose its whole saving to it.
    """
    hidden = _gaps(timeline, steps) + _clock_steps(timeline, steps)
    return min(hidden**0.5 / max(len(steps), 1), 0.5)


def _clock_steps(timeline: Timeline, steps: np.ndarray) -> int:
    """Steps of the clocks during these steps of the job."""
    at_ns = [(d, step.t_ns) for d, found in enumerate(timeline.clocks.steps) for step in found]
    if not at_ns:
        return 0
    domain = np.array([d for d, _ in at_ns], dtype=np.int32)
    local_ns = np.array([t for _, t in at_ns], dtype=np.int64)
    inside = np.isin(timeline.step_of, steps)
    during_ns = timeline.clocks.to_reference(domain, local_ns)
    first_ns, last_ns = timeline.start_ns[inside].min(initial=np.iinfo(np.int64).max), timeline.end_ns[inside].max(initial=0)
    return int(((during_ns >= first_ns) & (during_ns <= last_ns)).sum())


def _gaps(timeline: Timeline, steps: np.ndarray) -> int:
    """Steps with a collective that a member is still missing from: its wait counts as work there and may hide the whole saving.

    One at least where anything was lost: not every gap can be seen.
    """
    coll = timeline.matches.collectives
    gaps = timeline.step_of[coll.member[coll.ptr[:-1]][~coll.complete]]
    lost = len(gaps) > 0 or bool(timeline.matches.unmatched) or len(timeline.order.stamps) < len(timeline.trace.lane_stamps)
    return max(int(np.isin(steps, gaps).sum()), int(lost))


def cost_error_ns(late: Lateness, asked: np.ndarray, cost_ns: int, clock_ns: float) -> int:
    """One standard deviation of a cost: the noise of the excess, as far as it reaches the end, and the clocks in every step."""
    reaches = min(cost_ns / max(float(late.shift_ns[asked].sum()), 1.0), 1.0)
    noise = late.error_ns * (asked.sum() / len(asked)) ** 0.5 * reaches
    return round(float(np.hypot(noise, asked.sum() * clock_ns)))


def clock_error_ns(timeline: Timeline, rank: int) -> float:
    """Standard error of the rank's clock against the others of its component; 0 where all ranks share one clock."""
    clocks = timeline.clocks
    mine = np.flatnonzero(timeline.trace.rank == rank)
    if len(mine) == 0 or len(clocks.epochs) < 2:
        return 0.0
    domain = int(timeline.trace.domain[mine[0]])
    return float(np.hypot(clocks.sigma_ns[domain], clocks.bias_floor_ns[domain]))
