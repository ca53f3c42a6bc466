"""Simulates a training job: one call gives the events its ranks would send, their true times and what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.simulate.clocks import Clocks, draw_clocks
from crossrank.simulate.config import JobConfig
from crossrank.simulate.engine import NEVER, run
from crossrank.simulate.faults import Fault, LostEvents, MissingRank
from crossrank.simulate.noise import NoiseSource, Purpose, step_noise, stream
from crossrank.simulate.plan import compile_faults
from crossrank.simulate.program import build_program
from crossrank.simulate.table import Rows, events_of, rows_of
from crossrank.simulate.topology import host_names, lay_out, topology
from crossrank.simulate.truth import describe


@dataclass(frozen=True, slots=True)
class Simulated:
    """One simulated job. Arrays are aligned with the rows of `events`; true times are epoch ns of a perfect clock."""

    config: JobConfig
    faults: tuple[Fault, ...]
    seed: int
    events: pa.Table  # EVENT_SCHEMA, stamped by the hosts' wrong clocks
    true_start_ns: Int64Array
    true_end_ns: Int64Array  # 0 where the span is open
    step_start_ns: Int64Array  # [complete steps] true, first rank
    step_end_ns: Int64Array  # [complete steps] true, last rank
    clocks: Clocks
    topology: dict[str, object]
    truth: dict[str, object]  # what truth.json says, without the costs (see truth.true_cost)


def simulate(
    config: JobConfig, faults: Sequence[Fault] = (), *, seed: int, noise: NoiseSource = step_noise
) -> Simulated:  # fmt: skip
    """Simulates a job. The same arguments give the same bytes; the same seed with other faults gives the same noise.

    Raises BadParameter when a fault names a rank, group or link that the job does not have.
    """
    layout, program = lay_out(config), build_program(config)
    plan = compile_faults(config, layout, faults, seed)
    times = run(config, program, plan, seed, noise)
    rows = rows_of(program, times)
    duration_ns = int(max(rows.start_ns.max(), rows.end_ns.max()))
    clocks = draw_clocks(config, max(duration_ns, config.nominal_ns), seed)
    rows = rows.take(_delivered(rows, faults, seed))
    first, last = times.step_bounds_ns(program)
    complete = last < NEVER
    hosts = host_names(config)
    truth: dict[str, object] = {
        "job": config.job,
        "seed": seed,
        "config": asdict(config),
        "faults": [describe(fault) for fault in faults],
        "clocks": clocks.truth(hosts),
        "step_start_ns": (config.start_ns + first[complete]).tolist(),
        "step_end_ns": (config.start_ns + last[complete]).tolist(),
    }
    return Simulated(
        config=config,
        faults=tuple(faults),
        seed=seed,
        events=events_of(config, layout, program, plan, clocks, rows, seed),
        true_start_ns=config.start_ns + rows.start_ns,
        true_end_ns=np.where(rows.is_open, 0, config.start_ns + rows.end_ns),
        step_start_ns=config.start_ns + first[complete],
        step_end_ns=config.start_ns + last[complete],
        clocks=clocks,
        topology=topology(layout),
        truth=truth,
    )


def _delivered(rows: Rows, faults: Sequence[Fault], seed: int) -> BoolArray:
    """Which events arrive at all. Each loss draws once a row of the whole run, so what is lost depends on the seed only."""
    keep = np.ones(len(rows.rank), np.bool_)
    for number, fault in enumerate(faults):
        if isinstance(fault, MissingRank):
            keep &= rows.rank != fault.rank
        elif isinstance(fault, LostEvents):
            lost = stream(seed, Purpose.LOSS, number).random(len(keep)) < fault.fraction
            keep &= ~(lost & ((rows.rank == fault.rank) if fault.rank is not None else True))
    return keep
