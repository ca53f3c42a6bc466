"""A short draw of the campaign in benchmarks/bottlenecks.py: faults are found, nobody else is accused."""

from __future__ import annotations

import pytest

from tests.support.blame_campaign import run_trial


@pytest.mark.parametrize("seed", range(12))
def test_a_random_job(seed: int):
    trial = run_trial(seed)
    assert trial.wrong == ()
    assert trial.hit or trial.share < 0.01
    if trial.hit and trial.share >= 0.01:
        assert trial.steps_right
        assert trial.cost_ns == pytest.approx(trial.true_ns, rel=0.2)
