"""Blame on random jobs with known faults: a few small ones in every run, all that docs/bottlenecks.md tells of in the long one."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from itertools import islice, repeat
from pathlib import Path

import numpy as np
import pytest

from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.truth import true_cost
from tests.support.blame_campaign import FAMILIES, Family, Trial, drawn_ranks, run_trial
from tests.support.blame_figures import figures
from tests.support.recorded_noise import recorded_noise

LARGEST = 32  # ranks of the jobs in every run


def small(family: Family, count: int) -> list[int]:
    """The first seeds of a family whose jobs are small."""
    return list(islice((s for s in range(1000) if drawn_ranks(family, s) <= LARGEST), count))


def test_single_faults_are_named_with_their_steps_and_costs_and_nobody_else(recordings: Path):
    trials = [run_trial("one", seed, recordings) for seed in small("one", 6)]
    named = [(t, s) for t in trials for s in t.told if s.of == 0 and s.steps_right]
    assert len(named) >= 5  # four steps of a job of eight ranks may be too few to tell
    assert all(s.of == 0 for t in trials for s in t.told)
    for trial, told in named:
        true_ns = trial.faults[0].true_ns
        assert abs(told.cost_ns - true_ns) <= max(3 * told.cost_error_ns, 0.05 * true_ns), trial
    assert all(t.fixed_off is not None and t.fixed_off <= 0.01 for t in trials)


@pytest.mark.parametrize("seed", small("several", 2))
def test_faults_of_different_kinds_at_once_are_all_named(recordings: Path, seed: int):
    trial = run_trial("several", seed, recordings)
    assert sorted(t.of for t in trial.told if t.of is not None) == list(range(len(trial.faults)))
    assert all(t.of is not None for t in trial.told)


@pytest.mark.parametrize("seed", small("healthy", 4))
def test_nobody_is_accused_under_the_noise_of_real_machines(recordings: Path, seed: int):
    assert run_trial("healthy", seed, recordings).told == ()


def test_recorded_noise_is_the_same_with_and_without_a_fault(recordings: Path):
    noise, config = recorded_noise(recordings), JobConfig(dp=4, tp=2, pp=1, steps=6)
    twice = [true_cost(config, [], 5, noise).step_ns for _ in range(2)]
    assert (twice[0] == twice[1]).all()
    slow = true_cost(config, [SlowCompute(3, "optimizer", (2, 3), 900_000_000)], 5, noise)
    others = np.array([0, 1, 5])  # step 4 begins with rank 3 late
    assert (slow.step_ns[others] == twice[0][others]).all()
    assert (slow.step_ns[2:4] > twice[0][2:4] + 500_000_000).all()


def test_recorded_noise_has_heavier_tails_than_the_made_up_one(recordings: Path):
    config = JobConfig(dp=4, tp=2, pp=1, steps=16)
    recorded, made_up = (true_cost(config, [], 5, *more).step_ns for more in ((recorded_noise(recordings),), ()))
    assert np.quantile(recorded, 0.9) / np.median(recorded) > 1.1 > np.quantile(made_up, 0.9) / np.median(made_up)


@pytest.mark.long
def test_the_whole_campaign_meets_its_demands(recordings: Path):
    counts = {"one": 300, "several": 60, "healthy": 100, "weak": 400}
    trials: list[Trial] = []
    with ProcessPoolExecutor(2) as pool:
        for family in FAMILIES:
            least = 0.3 if family == "weak" else 0.9
            n = counts[family]
            trials += pool.map(run_trial, repeat(family, n), range(n), repeat(recordings, n), repeat(least, n))
    assert [f for f in figures(trials) if not f.holds] == []
