from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from crossrank.align import bounds
from crossrank.align.prior import prior
from crossrank.align.rows import Rows, group_medians
from crossrank.align.solve import improve
from tests.support.naive_clocks import dense_solution, distances


def random_rows(rng, clocks: int, later: int, knots: int, groups: int, size: int) -> Rows:
    members = groups * size
    v = rng.integers(0, clocks, members).astype(np.int32)
    # The last curve has later epochs: some of its rows carry one.
    e = np.where((v == clocks - 1) & (rng.random(members) < 0.5), clocks + rng.integers(0, max(later, 1), members), v)
    return Rows(
        np.arange(0, members + 1, size, dtype=np.int64),
        v,
        (e if later else v).astype(np.int32),
        rng.integers(0, knots - 1, members).astype(np.int32),
        rng.random(members),
        rng.normal(0.0, 1000.0, members),
        rng.uniform(0.1, 2.0, members),
    )


@pytest.mark.parametrize("seed", range(6))
def test_conjugate_gradients_find_the_least_squares_solution(seed):
    rng = np.random.default_rng(seed)
    clocks, later, knots = 4, seed % 3, 5
    groups = (random_rows(rng, clocks, later, knots, 60, 4), random_rows(rng, clocks, 0, knots, 40, 2))
    phi = np.zeros((clocks + later, knots))
    phi[:clocks] = rng.normal(0.0, 100.0, (clocks, knots))
    before = prior(phi, clocks, 0.5, 0.01)
    component = np.zeros(clocks, np.int32)
    found = improve(phi, groups, before, component, tolerance=1e-9)
    wanted = dense_solution(phi, groups, before, component)
    assert np.abs(found[:clocks] - wanted[:clocks]).max() < 1e-3
    assert np.abs(found[clocks:, 0] - wanted[clocks:, 0]).max(initial=0.0) < 1e-3


def test_group_medians():
    rng = np.random.default_rng(1)
    ptr = np.array([0, 1, 4, 4 + 8], dtype=np.int64)
    y = rng.normal(size=12)
    assert group_medians(ptr, y).tolist() == [np.median(y[a:b]) for a, b in pairwise(ptr)]


@pytest.mark.parametrize("seed", range(8))
def test_guaranteed_distances_are_shortest_paths(seed):
    rng = np.random.default_rng(seed)
    n = 7
    potential = rng.normal(0.0, 50.0, n)
    c = np.where(rng.random((n, n)) < 0.5, rng.uniform(0.0, 100.0, (n, n)), np.inf) + potential[None, :] - potential[:, None]
    slack = rng.uniform(0.0, 5.0, n)
    wanted = distances(np.where(np.eye(n, dtype=bool), 0.0, c + slack[:, None] + slack[None, :]))
    found = c.copy()
    assert bounds._close(found, slack) == 0
    assert np.allclose(found, wanted)


def test_contradicting_facts_are_flagged_and_widened_until_they_agree():
    c = np.array([[np.inf, -50.0], [-70.0, np.inf]])
    assert bounds._close(c, np.array([1.0, 1.0])) == 1
    assert c[0, 1] + c[1, 0] >= 0.0
