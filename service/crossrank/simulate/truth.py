"""What was done to a simulated job, what a good report must find, and what it truly cost.

    cost of a fault = duration of the job - duration of the same job, same noise, without that fault

so costs are exact, waiting that would have happened anyway is not counted, and two faults that hide each other each cost little.
A fault that stops the job has no cost (None): there is no end to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from crossrank.model.arrays import Int64Array
from crossrank.simulate.config import JobConfig
from crossrank.simulate.engine import NEVER, run
from crossrank.simulate.faults import (
    Fault,
    GcPause,
    Hang,
    LostEvents,
    MissingRank,
    SkippedCollective,
    SlowCompute,
    SlowLink,
    SlowLoader,
)
from crossrank.simulate.noise import NoiseSource, step_noise
from crossrank.simulate.plan import compile_faults
from crossrank.simulate.program import build_program
from crossrank.simulate.topology import lay_out


@dataclass(frozen=True, slots=True)
class TrueCost:
    """Costs of the faults of one job. Per-step durations are of complete steps only, from first start to last end."""

    fault_ns: tuple[int | None, ...]  # in the order of the faults: what the job would be shorter by without this one
    total_ns: int | None  # without any
    step_ns: Int64Array  # [complete steps] with all faults
    healthy_step_ns: Int64Array  # [steps] without any


def true_cost(config: JobConfig, faults: Sequence[Fault], seed: int, noise: NoiseSource = step_noise) -> TrueCost:
    """Runs the job with all faults, without each of them, and without any."""
    duration, step_ns = _duration(config, faults, seed, noise)
    healthy, healthy_step_ns = _duration(config, (), seed, noise)
    alone: list[int | None] = []
    for i in range(len(faults)):
        others = [*faults[:i], *faults[i + 1 :]]
        without = healthy if not others else _duration(config, others, seed, noise)[0]
        alone.append(_difference(duration, without))
    return TrueCost(tuple(alone), _difference(duration, healthy), step_ns, healthy_step_ns)


def _duration(config: JobConfig, faults: Sequence[Fault], seed: int, noise: NoiseSource) -> tuple[int | None, Int64Array]:
    """Length of the whole job (None if it never ends) and of each complete step, ns."""
    program = build_program(config)
    first, last = run(config, program, compile_faults(config, lay_out(config), faults, seed), seed, noise).step_bounds_ns(program)
    complete = last < NEVER
    whole = int(last[-1] - first[0]) if complete.all() else None
    return whole, last[complete] - first[complete]


def _difference(with_ns: int | None, without_ns: int | None) -> int | None:
    return None if with_ns is None or without_ns is None else with_ns - without_ns


def describe(fault: Fault) -> dict[str, object]:
    """One fault as told in truth.json: its kind and numbers, and under `expected` what a report should say (None: nothing)."""
    words = "".join("_" + c.lower() if c.isupper() else c for c in type(fault).__name__).lstrip("_")
    return {"fault": words, **asdict(fault), "expected": _expected(fault)}


def _expected(fault: Fault) -> dict[str, object] | None:
    match fault:
        case SlowCompute():
            return _straggler(fault.rank, "compute", fault.phase)
        case GcPause():
            return {"class": "straggler", "rank": fault.rank, "cause": {"kind": "compute"}}
        case SlowLoader():
            return {**_straggler(fault.rank, "data", "dataloader"), "also_class": "data_stall"}
        case SlowLink():
            return {"class": "slow_link", "src": fault.src, "dst": fault.dst, "group": fault.group}
        case Hang():
            return {"class": "hang", "culprit": fault.rank, "step": fault.step}
        case SkippedCollective():
            return {"class": "mismatch", "mismatch": "skipped", "odd_ranks": [fault.rank], "step": fault.step}
        case MissingRank():
            return {"missing": [fault.rank]}
        case LostEvents():
            return None
        case _:
            return {"class": "mismatch", "mismatch": "size", "odd_ranks": [fault.rank], "step": fault.step}


def _straggler(rank: int, kind: str, name: str) -> dict[str, object]:
    return {"class": "straggler", "rank": rank, "cause": {"kind": kind, "name": name}}
