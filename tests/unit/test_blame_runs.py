"""The scan for runs beyond chance, on tables of noise with and without a fault."""

from __future__ import annotations

import numpy as np

from crossrank.analysis.runs import Run, adjust, best_runs, burstiness, null_of


def runs_of(excess: np.ndarray) -> list[Run]:
    return best_runs(excess, null_of(excess, 0.5))


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Noise like a loaded machine's: a little everywhere, and in one cell of ten a spike of any size."""
    return rng.normal(0, 1, shape) + np.where(rng.random(shape) < 0.1, rng.pareto(1.2, shape) * 10, 0)


def test_noise_alone_is_rarely_called_a_run():
    # 400 tables of 8 rows; a corrected p-value of 0.1 may be met in a tenth of the tables.
    alarms = 0
    for seed in range(400):
        excess = heavy(np.random.default_rng(seed), (8, 20))
        p = np.ones(8)
        for run in runs_of(excess):
            p[run.row] = run.p_value
        alarms += bool((adjust(p) <= 0.1).any())
    assert alarms <= 40


def test_a_shifted_run_is_found_in_heavy_noise():
    found = 0
    for seed in range(50):
        excess = heavy(np.random.default_rng(seed), (8, 20))
        excess[3, 6:12] += 60
        runs = [r for r in runs_of(excess) if r.p_value < 0.1 / 8]
        found += [r.row for r in runs] == [3] and abs(runs[0].first - 6) <= 1 and abs(runs[0].last - 11) <= 1
    assert found >= 48


def test_one_enormous_cell_is_no_run():
    excess = np.random.default_rng(1).normal(0, 1, (8, 20))
    excess[2, 5] = 1e9
    assert all(r.p_value > 0.5 for r in runs_of(excess))


def test_missing_cells_bridge_a_run():
    excess = np.random.default_rng(2).normal(0, 1, (8, 20))
    excess[4, 5:12] = 30
    excess[4, 8] = np.nan
    run = min(runs_of(excess), key=lambda r: r.p_value)
    assert (run.row, run.first, run.last) == (4, 5, 11)


def test_bursts_make_neighbours_count_less():
    rng = np.random.default_rng(3)
    independent = rng.normal(0, 1, (8, 400))
    bursty = np.repeat(rng.normal(0, 1, (8, 100)), 4, axis=1) + rng.normal(0, 0.1, (8, 400))
    assert burstiness(independent).min() > 0.7
    assert burstiness(bursty).max() < 0.5


def test_false_discovery_rate():
    assert np.allclose(adjust(np.array([0.01, 0.5, 0.02, 0.9])), [0.04, 2 / 3, 0.04, 0.9])
