"""Faults compiled to arrays: what each instruction of each step has to add, scale, stop or leave out.

Arrays are [pp, dp, tp] (one entry a rank) and kept under small keys, so that a step without faults looks nothing up in vain and
the engine stays free of fault kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from crossrank.errors import BadParameter
from crossrank.model.arrays import BoolArray, Float64Array, Int64Array
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import (
    Fault,
    GcPause,
    Hang,
    SkippedCollective,
    SlowCompute,
    SlowLink,
    SlowLoader,
    WrongSize,
    in_steps,
)
from crossrank.simulate.noise import Purpose, stream
from crossrank.simulate.program import NO_MICROBATCH
from crossrank.simulate.topology import Layout

_Key = TypeVar("_Key")


@dataclass(slots=True)
class Slowdown:
    """Per rank: a transfer takes `factor` times as long and `extra_ns` more."""

    factor: Float64Array
    extra_ns: Int64Array


@dataclass(slots=True)
class Plan:
    """All timing faults of a job by where they act."""

    added_ns: dict[tuple[int, str, int], Int64Array] = field(default_factory=dict)  # (step, phase, microbatch)
    factor: dict[tuple[int, str], Float64Array] = field(default_factory=dict)  # (step, phase)
    transfer: dict[tuple[int, str], Slowdown] = field(default_factory=dict)  # (step, scope)
    message: dict[tuple[int, int], Slowdown] = field(default_factory=dict)  # (step, direction), per sender
    stop: dict[tuple[int, str], BoolArray] = field(default_factory=dict)  # (step, where)
    skip: dict[tuple[int, str, int], BoolArray] = field(default_factory=dict)  # (step, scope, ordinal)
    wrong_size: dict[tuple[int, str, int], list[tuple[int, int | None]]] = field(default_factory=dict)  # -> (rank, size)


def compile_faults(config: JobConfig, layout: Layout, faults: Sequence[Fault], seed: int) -> Plan:
    """Compiles the timing faults; faults of delivery are not its business. Raises BadParameter for what does not exist."""
    plan = Plan()
    for number, fault in enumerate(faults):
        rank = getattr(fault, "rank", None)
        if rank is not None and not 0 <= rank < config.world_size:
            raise BadParameter(f"fault names rank {rank}, but the ranks are 0 to {config.world_size - 1}", field="rank")
        match fault:
            case SlowCompute():
                _slow_compute(plan, config, layout, fault)
            case SlowLoader():
                for step in _steps(config, fault.steps):
                    _add(plan, layout, (step, "dataloader", NO_MICROBATCH), fault.rank, fault.extra_ns)
            case SlowLink():
                _slow_link(plan, config, layout, fault)
            case GcPause():
                _pauses(plan, config, layout, fault, seed, number)
            case Hang():
                _mark(plan.stop, layout, (fault.step, fault.where), fault.rank)
            case SkippedCollective():
                _mark(plan.skip, layout, (fault.step, fault.scope, fault.index), fault.rank)
            case WrongSize():
                plan.wrong_size.setdefault((fault.step, fault.scope, fault.index), []).append((fault.rank, fault.size_bytes))
    return plan


def _steps(config: JobConfig, steps: tuple[int, int] | None) -> Iterable[int]:
    return (step for step in range(config.steps) if in_steps(steps, step))


def _add(plan: Plan, layout: Layout, key: tuple[int, str, int], rank: int, extra_ns: int) -> None:
    plan.added_ns.setdefault(key, np.zeros(layout.shape, np.int64))[layout.place(rank)] += extra_ns


def _mark(table: dict[_Key, BoolArray], layout: Layout, key: _Key, rank: int) -> None:
    table.setdefault(key, np.zeros(layout.shape, np.bool_))[layout.place(rank)] = True


def _slowdown(table: dict[_Key, Slowdown], layout: Layout, key: _Key) -> Slowdown:
    return table.setdefault(key, Slowdown(np.ones(layout.shape), np.zeros(layout.shape, np.int64)))


def _slow_compute(plan: Plan, config: JobConfig, layout: Layout, fault: SlowCompute) -> None:
    microbatches = (NO_MICROBATCH,) if fault.phase == "optimizer" else tuple(range(config.microbatches))
    for step in _steps(config, fault.steps):
        for microbatch in microbatches:
            _add(plan, layout, (step, fault.phase, microbatch), fault.rank, fault.extra_ns)
        if fault.factor != 1.0:
            plan.factor.setdefault((step, fault.phase), np.ones(layout.shape))[layout.place(fault.rank)] *= fault.factor


def _slow_link(plan: Plan, config: JobConfig, layout: Layout, fault: SlowLink) -> None:
    if fault.group is not None:
        scope, number = layout.scope_of(fault.group), layout.groups.index(fault.group)
        if scope == "pp":
            raise BadParameter("a pipeline group has no collectives: name src and dst of the slow link", field="group")
        for step in _steps(config, fault.steps):
            slowdown = _slowdown(plan.transfer, layout, (step, scope))
            for rank in layout.members[number]:
                slowdown.factor[layout.place(rank)] *= fault.factor
                slowdown.extra_ns[layout.place(rank)] += fault.extra_ns
        return
    stage_ranks = config.dp * config.tp
    if fault.src is None or fault.dst is None or abs(fault.dst - fault.src) != stage_ranks:
        raise BadParameter(f"src and dst of a slow link must be neighbours in a pipeline, {stage_ranks} ranks apart", field="src")
    for step in _steps(config, fault.steps):
        slowdown = _slowdown(plan.message, layout, (step, 1 if fault.dst > fault.src else -1))
        slowdown.factor[layout.place(fault.src)] *= fault.factor
        slowdown.extra_ns[layout.place(fault.src)] += fault.extra_ns


def _pauses(plan: Plan, config: JobConfig, layout: Layout, fault: GcPause, seed: int, number: int) -> None:
    """Which steps, phases and microbatches a rank pauses in; drawn for all steps whatever the range, so the range only filters."""
    rng = stream(seed, Purpose.PAUSES, number)
    chance, microbatch, backward = (
        rng.random(config.steps),
        rng.integers(config.microbatches, size=config.steps),
        rng.random(config.steps),
    )
    for step in _steps(config, fault.steps):
        if chance[step] < fault.probability:
            phase = "backward" if backward[step] < 0.5 else "forward"
            _add(plan, layout, (step, phase, int(microbatch[step])), fault.rank, fault.pause_ns)
