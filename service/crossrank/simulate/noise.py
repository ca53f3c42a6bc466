"""The chance in a simulated job, drawn so that faults cannot change it (common random numbers).

Every step has a generator of its own, seeded by (seed, purpose, step), and every instruction of the program a fixed place in
what it draws. So a run with a fault and a run without it see the same noise span by span, and the difference of their times is
what the fault cost, exactly. The first steps are also the same however many steps follow.

Anything with the signature of `step_noise` can take its place in `simulate` and `true_cost` (a `NoiseSource`): noise resampled
from recordings, say. It must keep that promise: the same arguments, the same noise, whatever the faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.simulate.config import JobConfig
from crossrank.simulate.program import Program, Work


class Purpose(IntEnum):
    """What a stream of random numbers is for; part of its seed, so a value is never reused."""

    STEP = 1
    START = 2
    CLOCKS = 3
    PAUSES = 4
    LOSS = 5
    DELIVERY = 6


def stream(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """The generator of one purpose; streams of different keys are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *key)))


@dataclass(frozen=True, slots=True)
class StepNoise:
    """Noise of one step; arrays are [draws, dp, tp]."""

    work_ns: Int64Array  # duration of each piece of compute, 0 for other instructions
    jitter_ns: Int64Array  # return after the common end of a communication
    gap_ns: Int64Array  # idle time before a span
    transfer_scale: Float64Array  # relative length of a transfer


NoiseSource = Callable[[JobConfig, Program, int, int], StepNoise]


def work_base_ns(program: Program) -> Float64Array:
    """Mean duration of each draw's piece of compute, [draws]; 0 for other instructions."""
    base = np.zeros(program.draws)
    for instruction in program.instructions:
        if isinstance(instruction, Work):
            base[instruction.draw] = instruction.base_ns
    return base


def step_noise(config: JobConfig, program: Program, seed: int, step: int) -> StepNoise:
    """Draws the noise of one step."""
    base_ns = work_base_ns(program)
    rng = stream(seed, Purpose.STEP, step)
    shape = (len(base_ns), config.dp, config.tp)
    spread, scale = rng.standard_normal((2, *shape))
    gap, tail = rng.standard_exponential((2, *shape))
    chance = rng.random(shape)
    work = base_ns[:, None, None] * (
        np.exp(config.compute_noise * spread) + np.where(chance < config.hiccup_probability, config.hiccup * tail, 0.0)
    )
    jitter = config.jitter_median_ns * np.exp(config.jitter_sigma * spread)
    jitter += np.where(chance < config.tail_probability, config.tail_ns * tail, 0.0)
    return StepNoise(
        work_ns=np.rint(work).astype(np.int64),
        jitter_ns=np.rint(jitter).astype(np.int64) + 1,
        gap_ns=np.rint(config.gap_ns * gap).astype(np.int64) + 500,
        transfer_scale=np.exp(config.transfer_noise * scale),
    )
