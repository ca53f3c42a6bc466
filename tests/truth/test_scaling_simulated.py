"""Scaling against what the simulator's configuration makes it: serial part, transfers that grow with the group, one rank with more to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crossrank.analysis.breakdown import breakdown
from crossrank.analysis.scaling import PARTS, Measured, Scaling, measure, scaling
from crossrank.analysis.steps import find_steps
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import Fault, SlowCompute
from crossrank.simulate.job import simulate
from tests.support.pipeline import timeline_of, topology_of, with_true_stamps

BASE = JobConfig(tp=1, pp=1, steps=10, microbatches=2, hiccup_probability=0.0)
SIZES = (2, 4, 8, 16)


def measured(config: JobConfig, faults: tuple[Fault, ...] = (), seed: int = 3) -> Measured:
    config = replace(config, job=f"n{config.dp}")
    timeline = timeline_of(with_true_stamps(simulate(config, faults, seed=seed)), clocks="true")
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    found = measure(config.job, topology.world_size, steps, breakdown(timeline, steps))
    assert found is not None
    return found


def divided(n: int) -> JobConfig:
    """The same work for all sizes; what is not divided are loader and optimizer, communication is next to nothing."""
    quiet = replace(BASE, network_gbs=10_000.0, gradient_bytes=1 << 20, compute_noise=0.001, tail_probability=0.0)
    return replace(quiet, dp=n, forward_ns=192_000_000 // n, backward_ns=384_000_000 // n)


def test_a_job_that_is_divided_has_the_serial_part_that_was_put_in():
    found = scaling([measured(divided(n)) for n in SIZES])
    assert found.mode == "strong"
    assert found.amdahl is not None
    serial = BASE.loader_ns + BASE.optimizer_ns
    parallel = 2 * (192_000_000 + 384_000_000)
    assert found.amdahl.serial_ns == pytest.approx(serial, rel=0.07)  # latency of communication is not divided either
    assert found.amdahl.parallel_ns == pytest.approx(parallel, rel=0.02)
    assert found.amdahl.serial_fraction == pytest.approx(serial / (serial + parallel), rel=0.07)
    assert found.amdahl.residual is not None
    assert found.amdahl.residual < 0.02
    last = found.points[-1]
    assert last.efficiency == pytest.approx((serial / 8 + parallel / 16) / (serial + parallel / 16), rel=0.02)
    assert last.speedup == pytest.approx(last.efficiency * 8)


def test_transfers_that_grow_with_the_group_are_the_loss_of_weak_scaling():
    found = scaling([measured(replace(BASE, dp=n)) for n in SIZES])
    assert found.mode == "weak"
    last = found.points[-1]
    grew = 3.5 * BASE.gradient_bytes * 2 * ((1 - 1 / 16) - (1 - 1 / 2)) / BASE.network_gbs
    assert last.shares is not None
    assert last.shares["communication"] * last.loss_ns == pytest.approx(grew, rel=0.1)
    assert max(last.shares, key=lambda name: last.shares[name] if last.shares else 0) == "communication"
    assert abs(last.shares["work"]) < 0.1


def test_a_rank_with_more_to_do_is_imbalance():
    jobs = [measured(replace(BASE, dp=n)) for n in (4, 8)]
    slow = measured(replace(BASE, dp=16), (SlowCompute(rank=7, phase="forward", extra_ns=10_000_000),))
    last = scaling([*jobs, slow]).points[-1]
    assert last.shares is not None
    assert last.shares["imbalance"] * last.loss_ns == pytest.approx(2 * 10_000_000 * 15 / 16, rel=0.1)


@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_the_parts_add_up_to_the_loss_and_the_step(mode: str):
    jobs = [measured(divided(n)) for n in SIZES]
    assert all(sum(m.parts_ns) == pytest.approx(m.step_ns, rel=1e-12) for m in jobs)
    for point in scaling(jobs, mode).points[1:]:  # type: ignore[arg-type]
        if point.shares is not None:
            assert set(point.shares) == set(PARTS)
            assert sum(point.shares.values()) == pytest.approx(1.0)


def made(ranks: int, step_ns: float, work_ns: float, band_ns: float = 1.0) -> Measured:
    return Measured(f"m{ranks}", ranks, 10, step_ns, band_ns, (work_ns, 0.0, 0.0, 0.0, step_ns - work_ns))


def test_between_strong_and_weak_nothing_is_said():
    found: Scaling = scaling([made(n, 100.0 / n**0.5, 90.0 / n**0.5) for n in (1, 4, 16)])
    assert (found.mode, found.amdahl, found.points[1].shares) == (None, None, None)
    assert found.alpha == pytest.approx(-0.5)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_the_fit_gives_back_the_fraction_it_was_made_of(fraction: float, mode: str):
    total = np.ones(4) if mode == "strong" else np.array([1.0, 2, 8, 64])
    jobs = [made(n, w * (fraction + (1 - fraction) / n) * 1e9, 5e8) for n, w in zip((1, 2, 8, 64), total.tolist(), strict=True)]
    found = scaling(jobs, mode)  # type: ignore[arg-type]
    assert found.amdahl is not None
    assert found.amdahl.serial_fraction == pytest.approx(fraction, abs=1e-9)


def test_a_loss_within_the_spread_of_the_steps_has_no_parts():
    found = scaling([made(2, 100.0, 90.0, 5.0), made(4, 101.0, 91.0, 5.0)], "weak")
    assert found.points[1].shares is None
    assert scaling([made(2, 100.0, 90.0, 5.0), made(4, 130.0, 91.0, 5.0)], "weak").points[1].shares is not None
