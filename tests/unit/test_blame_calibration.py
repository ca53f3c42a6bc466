"""Confidence from the rate of false discoveries, and the fit of its constants to findings whose truth is known."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.blame import seeds, trial_of
from crossrank.analysis.calibration import MOST, OF_GROUPS, OF_LINKS, OF_SCATTERED_WORK, OF_WORK, Calibration
from tests.support.blame_campaign import Told, Trial
from tests.support.blame_figures import calibration, fitted


def rows(confidence: np.ndarray, right: np.ndarray) -> list[Trial]:
    told = [Told(0 if r else None, True, 1, 1, float(c), "") for c, r in zip(confidence, right, strict=True)]
    return [Trial("weak", i, 8, False, False, (), (t,), None) for i, t in enumerate(told)]


@pytest.mark.parametrize("curve", [OF_WORK, OF_SCATTERED_WORK, OF_LINKS, OF_GROUPS])
def test_half_are_right_at_the_even_rate_and_lower_rates_are_surer(curve: Calibration):
    rate = np.array([0.0, 1e-9, 1e-5, 1e-4, curve.rate_even, 0.5, 1.0])
    confidence = curve.confidence(rate)
    assert confidence[4] == pytest.approx(0.5)
    assert (np.diff(confidence) <= 0).all()
    assert (confidence[0], confidence.max()) == (MOST, MOST)
    assert confidence[-1] > 0


def test_the_fit_finds_the_constants_behind_findings():
    rng = np.random.default_rng(3)
    rate = 10 ** rng.uniform(-2.5, 0, 6000)
    right = rng.random(6000) < 1 / (1 + (rate / 0.03) ** 1.4)
    even, slope = fitted(rows(OF_WORK.confidence(rate), right), "work", OF_WORK)
    assert even == pytest.approx(0.03, rel=0.1)
    assert slope == pytest.approx(1.4, rel=0.1)


@pytest.mark.parametrize(("share", "holds"), [(0.7, False), (0.9, True), (1.0, False)])
def test_findings_that_state_nine_tenths_must_be_right_as_often(share: float, holds: bool):
    right = np.arange(1000) < 1000 * share
    found = calibration(rows(np.full(1000, 0.9), right))
    assert all(f.holds for f in found) is holds


def test_rows_survive_their_file():
    (trial,) = rows(np.array([0.9]), np.array([True]))
    assert trial_of(json.loads(json.dumps(asdict(trial)))) == trial


def test_seeds_of_a_family_are_a_count_or_a_range():
    assert list(seeds("one", "one=3,weak=5:7")) == [0, 1, 2]
    assert list(seeds("weak", "one=3,weak=5:7")) == [5, 6]
    assert list(seeds("healthy", "one=3")) == []
