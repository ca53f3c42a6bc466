"""Which ranks are late by themselves, in which phase of which steps, and what it costs the job.

A straggler is a rank whose own work exceeds what is expected of it (excess) in a run of steps that chance does not explain
(runs). Waiting is not work, so whoever waits for a straggler, or waits for somebody who waits for it, is never accused. The cost
comes from the replay: what the job would have been shorter by without the excess, after slack and the next slowest rank.

Within a run the excess is taken as one typical extra time per step (a trimmed mean), not as each step's own: what a step had
above it is as much noise as what another had below, and removing only the former would overstate the cost. A pause that comes now
and then has no typical step, so there each step's own excess counts.

cost_error_ns (one standard deviation) holds the noise of the excess, scaled to what of it reaches the end of the job, and the
clocks' error against each other, which hides how far behind the next rank was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossrank.analysis.excess import PhaseCells, noise_ns, usual_step_ns, work_cells
from crossrank.analysis.removal import Lateness, removed_ns
from crossrank.analysis.replay import ReplayGraph, build_replay, end_of_steps_ns, replay_ns, start_of_steps_ns
from crossrank.analysis.runs import Run, adjust, best_runs, hits
from crossrank.analysis.steps import StepTable
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.findings import Cause, Straggler
from crossrank.model.timeline import NO_STEP, Timeline
from crossrank.model.topology import Topology

LEAST_CONFIDENCE = 0.9
_LEAST_SHARE = 0.002  # thresholds below this share of a usual step are not tried, and costs below it are not told
_MORE_RUNS = 4  # further runs looked for in a row that has one
_AGAIN_P = 0.01
_MOST = 64  # candidates replayed


def find_stragglers(
    timeline: Timeline, topology: Topology, steps: StepTable, *, first: int | None = None, last: int | None = None
) -> tuple[Straggler, ...]:
    """Stragglers by cost, most expensive first; () when nothing is beyond chance.

    first, last: the steps asked about, inclusive. All steps are evidence; steps, excess and cost are told of these only.
    """
    del steps  # its bounds are those of the same spans; kept so that callers need not know what the analysis reads
    graph = build_replay(timeline)
    known = np.unique(timeline.step_of[timeline.step_of != NO_STEP])
    if len(known) < 2:
        return ()
    usual_ns = usual_step_ns(timeline, known)
    found = find_lateness(work_cells(graph, timeline, role_of(topology), known), _LEAST_SHARE * usual_ns)
    told = [_priced(late, graph, timeline, topology, first, last) for late in _one_a_phase(found)[:_MOST]]
    least_ns = _LEAST_SHARE * usual_ns
    kept = [s for s in told if s is not None and s.cost_ns > s.cost_error_ns and s.cost_per_step_ns >= least_ns]
    return tuple(sorted(kept, key=lambda s: (-s.cost_ns, s.rank, s.cause.kind, s.cause.name)))


def role_of(topology: Topology) -> dict[int, int]:
    """Role (pipeline stage) of each rank: ranks of one role do the same work."""
    return dict(zip(topology.seen, topology.stage, strict=True))


def find_lateness(cells: list[PhaseCells], least_ns: float) -> list[Lateness]:
    """All rows that are late by more than chance, most certain first."""
    runs = [(c, run) for c in cells for run in best_runs(c.excess_ns, least_ns)]
    looked_at = sum(len(c.ranks) for c in cells)
    p_values = np.ones(max(looked_at, len(runs)))
    p_values[: len(runs)] = [run.p_value for _, run in runs]
    rate = adjust(p_values)[: len(runs)]
    chosen = [i for i in np.argsort(rate, kind="stable").tolist() if rate[i] <= 1 - LEAST_CONFIDENCE]
    return [_lateness(cells=runs[i][0], run=runs[i][1], confidence=1.0 - float(rate[i]), least_ns=least_ns) for i in chosen]


def _lateness(cells: PhaseCells, run: Run, confidence: float, least_ns: float) -> Lateness:
    excess = cells.excess_ns[run.row]
    columns, is_sparse = _affected(excess, run), run.is_sparse
    rest = cells.excess_ns.copy()
    for _ in range(_MORE_RUNS):
        rest[run.row, columns] = np.nan
        more = [r for r in best_runs(rest, least_ns) if r.row == run.row and r.p_value <= _AGAIN_P]
        if not more:
            break
        columns = np.union1d(columns, _affected(rest[run.row], more[0]))
    noise = noise_ns(cells.excess_ns)
    seen = excess[columns]
    if is_sparse:
        return Lateness(cells, run.row, columns, np.maximum(seen, 0.0), noise * len(columns) ** 0.5, True, confidence)
    shift = _trimmed_mean(seen)
    error = len(columns) * max(noise, 1.4826 * float(np.median(np.abs(seen - shift)))) * (1.1 / len(columns) ** 0.5)
    return Lateness(cells, run.row, columns, np.full(len(columns), shift), error, False, confidence)


def _affected(excess: Float64Array, run: Run) -> Int64Array:
    """The steps of a run that are late by at least half of what is typical in it, the run grown or shrunk to fit."""
    half = float(np.median(excess[hits(excess, run)])) / 2
    late = np.nan_to_num(excess, nan=-np.inf) >= half
    first, last = run.first, run.last
    while not run.is_sparse and first > 0 and late[first - 1]:
        first -= 1
    while not run.is_sparse and last + 1 < len(late) and late[last + 1]:
        last += 1
    return first + np.flatnonzero(late[first : last + 1])


def _trimmed_mean(values: Float64Array) -> float:
    cut = len(values) // 5
    return float(np.sort(values)[cut : len(values) - cut].mean())


def _one_a_phase(found: list[Lateness]) -> list[Lateness]:
    """One verdict a rank and phase: the typical reading where it is late too, for it tells a slow phase from pauses."""
    best: dict[tuple[int, str, str], Lateness] = {}
    for late in found:
        key = (int(late.cells.ranks[late.row]), late.cells.kind, late.cells.name)
        held = best.get(key)
        if held is None:
            best[key] = late
        elif late.cells.is_typical != held.cells.is_typical:
            typical, total = (late, held) if late.cells.is_typical else (held, late)
            surer = max(typical.confidence, total.confidence)
            best[key] = replace(typical, confidence=surer) if typical.shift_ns.sum() > total.shift_ns.sum() / 2 else total
    return list(best.values())


def _priced(
    late: Lateness, graph: ReplayGraph, timeline: Timeline, topology: Topology, first: int | None, last: int | None
) -> Straggler | None:
    cells = late.cells
    numbers = cells.steps[late.columns]
    asked = (numbers >= (first if first is not None else numbers[0])) & (numbers <= (last if last is not None else numbers[-1]))
    columns = late.columns[asked]
    if len(columns) == 0:
        return None
    fixed = replay_ns(graph, removed_ns(graph, timeline, late, columns))
    cost = end_of_steps_ns(graph, graph.recorded_ns, last) - end_of_steps_ns(graph, fixed, last)
    excess = float(late.shift_ns[asked].sum())
    rank = int(cells.ranks[late.row])
    noise = late.error_ns * (len(columns) / len(late.columns)) ** 0.5 * min(cost / max(excess, 1.0), 1.0)
    clock = len(columns) * clock_error_ns(timeline, rank)
    own = cells.own_ns[late.row, columns] - cells.excess_ns[late.row, columns]
    return Straggler(
        rank=rank,
        host=topology.hosts.get(rank),
        cause=Cause(cells.kind, cells.name),
        steps=tuple(int(s) for s in cells.steps[columns]),
        cost_ns=int(cost),
        cost_error_ns=round(float(np.hypot(noise, clock))),
        cost_per_step_ns=int(cost) // len(columns),
        excess_ns=round(excess),
        typical_ns=round(float(np.nanmedian(own))),
        confidence=late.confidence,
        span_of_time_ns=end_of_steps_ns(graph, graph.recorded_ns, last) - start_of_steps_ns(graph, graph.recorded_ns, first),
        is_jitter=is_jitter(late),
    )


def is_jitter(late: Lateness) -> bool:
    """Rare long stops rather than a slow phase: few of the steps, or one span among many of a step."""
    if late.is_sparse:
        return True
    return late.cells.usual_spans >= 3 and not late.cells.is_typical


def clock_error_ns(timeline: Timeline, rank: int) -> float:
    """Standard error of the rank's clock against the others of its component; 0 where all ranks share one clock."""
    clocks = timeline.clocks
    mine = np.flatnonzero(timeline.trace.rank == rank)
    if len(mine) == 0 or len(clocks.epochs) < 2:
        return 0.0
    domain = int(timeline.trace.domain[mine[0]])
    return float(np.hypot(clocks.sigma_ns[domain], clocks.bias_floor_ns[domain]))
