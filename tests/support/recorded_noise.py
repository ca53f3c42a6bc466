"""Noise of real machines for simulated jobs: resampled from recordings of healthy gloo jobs on a loaded machine.

Three things are taken from the recordings, as differences from what is usual there and in ns, so heavy tails stay what they are:

    work      own time of a span of a phase - the median of that rank's spans of the phase
    jitter    how long after the first member another one left the same collective
    transfer  last arrival to first departure of a collective - the median of collectives of as many bytes

Noise comes in bursts, and a machine that is busy holds up all its ranks. So values are kept in cells (recorded rank, recorded step)
and resampled in blocks: all ranks of a job follow one recording from one step of it onwards (over again at its end), and each draws
from the cells of one recorded rank, chosen at random. A rank with the noise of another, busier machine or of another, busier minute
would be slow indeed. The first step is left out: all ranks warm up in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from crossrank.analysis.replay import build_replay
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.simulate.config import JobConfig
from crossrank.simulate.noise import StepNoise, step_noise
from crossrank.simulate.program import Collective, Program, Receive, Work
from tests.support.pipeline import recorded_events, timeline_of

HEALTHY = ("healthy_ddp_w4", "healthy_zero_w4", "healthy_3d_w8", "netns_healthy_ddp_w4", "healthy_ddp_60s_w4__skew200ms_ntpstep")
PHASES = ("dataloader", "forward", "backward", "optimizer")
_LEAST = 0.3  # of a piece of work or a transfer is left, however negative the noise


@dataclass(frozen=True, slots=True)
class Pool:
    """Values by cell."""

    ptr: Int64Array  # [cells + 1]
    value_ns: Float64Array

    def draw(self, cell: Int64Array, chance: Float64Array) -> Float64Array:
        """One value of each cell; of all cells where that one is empty. `chance`: uniform in [0, 1)."""
        low, high = self.ptr[cell], self.ptr[cell + 1]
        empty = high == low
        low, high = np.where(empty, 0, low), np.where(empty, len(self.value_ns), high)
        return self.value_ns[low + np.floor(chance * (high - low)).astype(np.int64)]


@dataclass(frozen=True, slots=True)
class RecordedNoise:
    """A `NoiseSource`. Series k is one recorded rank of recording[k]; its cells are first[k] .. first[k] + length[k] - 1."""

    recording: Int64Array
    first: Int64Array
    length: Int64Array
    pools: dict[str, Pool]

    def __call__(self, config: JobConfig, program: Program, seed: int, step: int) -> StepNoise:
        made_up = step_noise(config, program, seed, step)
        shape = (config.pp, config.dp, config.tp)
        rng = np.random.default_rng([seed, 71])
        mine = np.flatnonzero(self.recording == rng.integers(self.recording.max() + 1))
        start = int(rng.integers(self.length[mine[0]]))
        k = mine[rng.integers(len(mine), size=shape)]
        cell = self.first[k] + (start + step) % self.length[k]
        chance = np.random.default_rng([seed, 72, step]).random((3, *made_up.work_ns.shape))
        work, jitter = made_up.work_ns.copy(), made_up.jitter_ns.copy()
        scale = made_up.transfer_scale.copy()
        for i in program.instructions:
            if isinstance(i, Work) and i.first:
                drawn = self.pools[i.phase].draw(cell[i.stage], chance[0, i.draw])
                work[i.draw] = np.maximum(work[i.draw] + drawn, _LEAST * i.base_ns).astype(np.int64)
            elif isinstance(i, Collective | Receive):
                draws = (i.draw,) if isinstance(i, Receive) else i.draws
                slots = (i.slot,) if isinstance(i, Receive) else i.slots
                for draw, slot in zip(draws, slots, strict=True):
                    here = cell[program.slots[slot].stage]
                    jitter[draw] = self.pools["jitter"].draw(here, chance[1, draw]).astype(np.int64) + 1
                    usual = _usual_transfer_ns(config, program, slot)
                    scale[draw] = np.maximum(1 + self.pools["transfer"].draw(here, chance[2, draw]) / usual, _LEAST)
        return StepNoise(work, jitter, made_up.gap_ns, scale)


def _usual_transfer_ns(config: JobConfig, program: Program, slot: int) -> float:
    c = program.slots[slot].communication
    assert c is not None
    members = {"tp": config.tp, "dp": config.dp, "pp": 2, "world": config.world_size}[c.scope]
    return config.transfer_ns(c.scope, members, c.size_bytes)


@cache
def recorded_noise(recordings: Path) -> RecordedNoise:
    """From all healthy gloo recordings in a folder."""
    recording: list[int] = []
    first: list[int] = []
    length: list[int] = []
    found: dict[str, list[tuple[Int64Array, Float64Array]]] = {name: [] for name in (*PHASES, "jitter", "transfer")}
    cells = 0
    for folder in (recordings / "gloo" / name for name in HEALTHY):
        if not folder.is_dir():
            continue
        timeline = timeline_of(recorded_events(folder), clocks="fit" if "skew" in folder.name else "true")
        graph = build_replay(timeline)
        trace, step = graph.timeline.trace, graph.timeline.step_of
        steps = int(step.max()) + 1
        cell = cells + trace.rank.astype(np.int64) * steps + step
        for name in PHASES:
            spans = np.flatnonzero((trace.name == trace.names.index(name)) & (step > 0))
            own = graph.own_ns[spans].astype(np.float64)
            found[name].append((cell[spans], own - _medians(own, trace.rank[spans])))
        coll = graph.timeline.matches.collectives
        start, end = (t[coll.member] for t in (graph.timeline.start_ns, graph.timeline.end_ns))
        left = np.minimum.reduceat(end, coll.ptr[:-1])
        inside = step[coll.member] > 0
        found["jitter"].append((cell[coll.member[inside]], (end - left[coll.instance])[inside].astype(np.float64)))
        member = coll.member[coll.ptr[:-1]]
        took = (left - np.maximum.reduceat(start, coll.ptr[:-1])).astype(np.float64)
        kept = coll.synchronising & (step[member] > 0) & (np.diff(coll.ptr) > 1)
        found["transfer"].append((cell[member[kept]], took[kept] - _medians(took[kept], trace.size_bytes[member[kept]])))
        ranks = int(trace.rank.max()) + 1
        recording += [max(recording, default=-1) + 1] * ranks
        first += [cells + r * steps + 1 for r in range(ranks)]
        length += [steps - 1] * ranks
        cells += ranks * steps
    return RecordedNoise(
        np.array(recording), np.array(first), np.array(length), {name: _pool(parts, cells) for name, parts in found.items()}
    )


def _medians(value: Float64Array, of: np.ndarray) -> Float64Array:
    """Median of all values of the same `of`, beside each."""
    out = np.empty_like(value)
    for one in np.unique(of).tolist():
        out[of == one] = np.median(value[of == one])
    return out


def _pool(parts: list[tuple[Int64Array, Float64Array]], cells: int) -> Pool:
    cell, value = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    order = np.argsort(cell, kind="stable")
    return Pool(np.searchsorted(cell[order], np.arange(cells + 1)), value[order])
