"""The wrong clocks of the hosts: what a host's clock shows at a true time.

    clock(t) = start + t + offset + drift x t + wander(t) + slew(t) + (step, once t has reached the moment it happens)

with t in ns since the true start of the job. Wander is a random walk of the frequency plus a slow swing (temperature); a slew
runs at 500 ppm for two seconds, as a time daemon does to catch up. All float work happens on t (small), the epoch is added as
int64 at the end, so stamps are exact to the nanosecond and equal from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.model.arrays import Float64Array, Int32Array, Int64Array
from crossrank.simulate.config import JobConfig
from crossrank.simulate.noise import Purpose, stream

_GRID_NS: Final = 50_000_000
_SINE_PERIOD_NS: Final = 120e9
_SLEW_PPM: Final = 500.0
_SLEW_NS: Final = 2e9
_MIDDLE: Final = (0.35, 0.65)  # of the job's nominal duration: where steps and slews happen


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of H hosts."""

    start_ns: int  # true epoch time of t = 0
    offset_ns: Int64Array  # [H]
    drift_ppm: Float64Array  # [H]
    wander_ns: Float64Array  # [H, knots] at multiples of the grid: wander and slew
    step_at_ns: Int64Array  # [H] true time since the start; 0 where there is none
    step_ns: Int64Array  # [H] 0 where there is none

    def read(self, host: Int32Array, since_ns: Int64Array) -> Int64Array:
        """What the hosts' clocks show at true times since the start; both [n], epoch ns out."""
        t = since_ns.astype(np.float64)
        knot = np.minimum(since_ns // _GRID_NS, self.wander_ns.shape[1] - 2)
        share = (t - knot * float(_GRID_NS)) / _GRID_NS
        wander = self.wander_ns[host, knot] * (1 - share) + self.wander_ns[host, knot + 1] * share
        wrong = np.rint(self.drift_ppm[host] * 1e-6 * t + wander).astype(np.int64)
        stepped = np.where(since_ns >= self.step_at_ns[host], self.step_ns[host], 0)
        return self.start_ns + since_ns + self.offset_ns[host] + wrong + stepped

    def truth(self, hosts: tuple[str, ...]) -> list[dict[str, object]]:
        """The clocks as told in truth.json; `offset_ns` is that of the clock: positive means it is ahead of true time."""
        rows: list[dict[str, object]] = []
        for h, name in enumerate(hosts):
            row: dict[str, object] = {
                "clock": name,
                "offset_ns": int(self.offset_ns[h]),
                "drift_ppm": round(float(self.drift_ppm[h]), 6),
            }
            size = int(self.step_ns[h])
            row["steps"] = [{"true_ns": self.start_ns + int(self.step_at_ns[h]), "size_ns": size}] if size else []
            rows.append(row)
        return rows


def draw_clocks(config: JobConfig, duration_ns: int, seed: int) -> Clocks:
    """Draws the clocks of a job of some duration. A longer duration only continues them, it changes nothing before."""
    c, hosts = config.clocks, config.hosts
    rng = stream(seed, Purpose.CLOCKS)
    offset = rng.integers(-c.offset_ns, c.offset_ns, hosts, endpoint=True)
    drift = rng.uniform(-c.drift_ppm, c.drift_ppm, hosts)
    phase = rng.uniform(0.0, 2 * np.pi, hosts)
    middle = rng.uniform(*_MIDDLE, hosts) * config.nominal_ns
    size = np.rint(rng.choice((-1.0, 1.0), hosts) * rng.uniform(*c.step_ns, hosts)).astype(np.int64)
    slew_sign = rng.choice((-1.0, 1.0), hosts)
    order = rng.permutation(hosts)
    steps, slews = round(c.step_fraction * hosts), round(c.slew_fraction * hosts)
    steps_here, slews_here = np.isin(np.arange(hosts), order[:steps]), np.isin(np.arange(hosts), order[steps : steps + slews])
    grid = np.arange(duration_ns // _GRID_NS + 3) * float(_GRID_NS)
    walk = rng.standard_normal((len(grid), hosts)) * (c.wander_ppm * 1e-6 * np.sqrt(_GRID_NS / 1e9))
    frequency = np.cumsum(walk, axis=0)
    wander = np.zeros((hosts, len(grid)))
    wander[:, 1:] = np.cumsum((frequency[1:] + frequency[:-1]) / 2 * _GRID_NS, axis=0).T
    omega = 2 * np.pi / _SINE_PERIOD_NS
    wander += c.sine_ppm * 1e-6 / omega * (np.sin(omega * grid + phase[:, None]) - np.sin(phase)[:, None])
    slew = slew_sign[:, None] * _SLEW_PPM * 1e-6 * np.clip(grid - middle[:, None], 0.0, _SLEW_NS)
    wander += np.where(slews_here[:, None], slew, 0.0)
    return Clocks(
        start_ns=config.start_ns,
        offset_ns=offset,
        drift_ppm=drift,
        wander_ns=wander,
        step_at_ns=np.where(steps_here, np.rint(middle).astype(np.int64), 0),
        step_ns=np.where(steps_here, size, 0),
    )
