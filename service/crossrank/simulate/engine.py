"""Runs a program step by step in true time, all ranks of a stage at once.

Physics:
- a collective ends, on each member, at `last member's start + transfer + that member's own jitter`, so no member ends before
  every member has started;
- a receive ends at `max(own start, send start + latency + bytes / bandwidth) + jitter`;
- sends are buffered and return at once; everything else takes its drawn time.

What hangs gets the time NEVER. Sums and maxima carry it on by themselves: a collective with a member that never comes never
ends, and so forth. A span that starts at NEVER or later does not exist, one that only ends then stays open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.simulate.config import JobConfig
from crossrank.simulate.noise import NoiseSource, Purpose, StepNoise, step_noise, stream
from crossrank.simulate.plan import Plan, Slowdown
from crossrank.simulate.program import Begin, Collective, End, Join, Program, Receive, Send, Work

NEVER: Final = 1 << 60  # far beyond any job, far below overflow: even all later spans added to it stay below 2**62
_SEND_NS: Final = 5_000
_START_SPREAD_NS: Final = 200_000
_AXIS: Final = {"tp": 1, "dp": 0}  # of an array [dp, tp]


@dataclass(frozen=True, slots=True)
class Run:
    """True times of all spans relative to the start of the job, [steps, slots, dp, tp]; NEVER or more: does not happen."""

    start_ns: Int64Array
    end_ns: Int64Array
    ended_ns: Int64Array  # [pp, dp, tp] when each rank was done

    def step_bounds_ns(self, program: Program) -> tuple[Int64Array, Int64Array]:
        """First start and last end of each step over all ranks, [steps] each."""
        steps = [i for i, slot in enumerate(program.slots) if slot.kind == "step"]
        return self.start_ns[:, steps].min(axis=(1, 2, 3)), self.end_ns[:, steps].max(axis=(1, 2, 3))


def run(config: JobConfig, program: Program, plan: Plan, seed: int, noise: NoiseSource = step_noise) -> Run:
    """Computes the true times of a whole job."""
    engine = _Engine(config, program, plan, seed)
    for step in range(config.steps):
        engine.step(step, noise(config, program, seed, step))
    return Run(engine.start_ns, engine.end_ns, engine.now_ns)


class _Engine:
    """The clocks of all ranks' lanes while the program runs."""

    def __init__(self, config: JobConfig, program: Program, plan: Plan, seed: int) -> None:
        self.config, self.program, self.plan = config, program, plan
        shape = (config.pp, config.dp, config.tp)
        self.now_ns: Int64Array = stream(seed, Purpose.START).integers(0, _START_SPREAD_NS, shape)  # main lane
        self.comm_ns: Int64Array = self.now_ns.copy()  # comm lane
        self.broken: dict[str, BoolArray] = {scope: np.zeros(shape, np.bool_) for scope in ("tp", "dp", "world")}
        spans = (config.steps, len(program.slots), config.dp, config.tp)
        self.start_ns: Int64Array = np.full(spans, NEVER, np.int64)
        self.end_ns: Int64Array = np.full(spans, NEVER, np.int64)

    def step(self, step: int, noise: StepNoise) -> None:
        """One step of all stages."""
        start, end, now = self.start_ns[step], self.end_ns[step], self.now_ns
        for i in self.program.instructions:
            match i:
                case Work():
                    self._work(i, step, noise.work_ns[i.draw])
                case Begin():
                    now[i.stage] += noise.gap_ns[i.draw]
                    start[i.slot] = now[i.stage]
                case End():
                    end[i.slot] = now[i.stage]
                case Collective():
                    self._collective(i, step, noise)
                case Send():
                    start[i.slot] = now[i.stage] + noise.gap_ns[i.draw]
                    now[i.stage] = start[i.slot] + _SEND_NS
                    end[i.slot] = now[i.stage]
                case Receive():
                    self._receive(i, step, noise)
                case Join():
                    start[i.slot] = now[i.stage] + noise.gap_ns[i.draw]
                    now[i.stage] = np.maximum(start[i.slot], self.comm_ns[i.stage]) + noise.gap_ns[i.draw]
                    end[i.slot] = now[i.stage]

    def _work(self, i: Work, step: int, work_ns: Int64Array) -> None:
        factor = self.plan.factor.get((step, i.phase))
        if factor is not None:
            work_ns = np.rint(work_ns * factor[i.stage]).astype(np.int64)
        self.now_ns[i.stage] += work_ns
        if not i.first:
            return
        added = self.plan.added_ns.get((step, i.phase, i.microbatch))
        if added is not None:
            self.now_ns[i.stage] += added[i.stage]
        if i.microbatch <= 0:
            self._stop(step, i.phase, i.stage)

    def _stop(self, step: int, where: str, stage: int | slice) -> None:
        stop = self.plan.stop.get((step, where))
        if stop is not None:
            self.now_ns[stage][stop[stage]] = NEVER

    def _collective(self, i: Collective, step: int, noise: StepNoise) -> None:
        stage: int | slice = slice(None) if i.stage is None else i.stage
        slots, draws = (list(i.slots), list(i.draws)) if i.stage is None else (i.slots[0], i.draws[0])
        if i.ordinal == 0 and i.scope in ("dp", "world"):
            self._stop(step, "gradients" if i.scope == "dp" else "grad_norm", stage)
        axis: tuple[int, ...] = (0, 1, 2) if i.stage is None else (_AXIS[i.scope],)
        start = self.now_ns[stage] + noise.gap_ns[draws]
        if i.in_background:
            start = np.maximum(start, self.comm_ns[stage])
        transfer = self._transfer_ns(i, step, noise.transfer_scale[draws], axis)
        end = start.max(axis=axis, keepdims=True) + transfer + noise.jitter_ns[draws]
        end[self.broken[i.scope][stage]] = NEVER
        skip = self.plan.skip.get((step, i.scope, i.ordinal))
        if skip is not None:
            left_out = skip[stage]
            hit = np.broadcast_to(left_out.any(axis=axis, keepdims=True), left_out.shape)
            self.broken[i.scope][stage] |= hit
            end = np.where(hit, NEVER, end)
            start, after = np.where(left_out, NEVER, start), np.where(left_out, self.now_ns[stage], end)
        else:
            after = end
        self.start_ns[step][slots], self.end_ns[step][slots] = start, end
        lane = self.comm_ns if i.in_background else self.now_ns
        lane[stage] = after

    def _transfer_ns(self, i: Collective, step: int, scale: np.ndarray, axis: tuple[int, ...]) -> Int64Array:
        """One duration a group: the noise of its first member, the worst slowdown of its members."""
        communication = self.program.slots[i.slots[0]].communication
        assert communication is not None
        members = {"tp": self.config.tp, "dp": self.config.dp, "world": self.config.world_size}[i.scope]
        first = scale[tuple(slice(0, 1) if a in axis else slice(None) for a in range(scale.ndim))]
        duration = self.config.transfer_ns(i.scope, members, communication.size_bytes) * first
        slow = self.plan.transfer.get((step, i.scope))
        if slow is not None:
            stage = slice(None) if i.stage is None else i.stage
            duration = duration * slow.factor[stage].max(axis=axis, keepdims=True) + slow.extra_ns[stage].max(
                axis=axis, keepdims=True
            )
        return np.rint(duration).astype(np.int64)

    def _receive(self, i: Receive, step: int, noise: StepNoise) -> None:
        slot = self.program.slots[i.sent]
        communication = slot.communication
        assert communication is not None
        duration = self.config.transfer_ns("pp", 2, communication.size_bytes) * noise.transfer_scale[i.draw]
        slow: Slowdown | None = self.plan.message.get((step, communication.towards))
        if slow is not None:
            duration = duration * slow.factor[slot.stage] + slow.extra_ns[slot.stage]
        start = self.now_ns[i.stage] + noise.gap_ns[i.draw]
        arrival = self.start_ns[step, i.sent] + np.rint(duration).astype(np.int64)
        end = np.maximum(start, arrival) + noise.jitter_ns[i.draw] // 2 + 1
        self.start_ns[step, i.slot], self.end_ns[step, i.slot] = start, end
        self.now_ns[i.stage] = end
