"""Doubles as text: byte for byte what the JSON library writes, for every kind of double."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from crossrank.ingest import shortest_doubles

EDGES = [0.0, 5e-324, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308, 9007199254740993.0, 0.1, 123.0]
EDGES += [1e-5, 9.999e-6, 9.5e-6, 1e15, 9999999999999998.0, 1e16, 1e17, 1e22, 1e23, 2.0**60, 0.00012, 120.0]


def check(numbers: np.ndarray) -> None:
    numbers = np.ascontiguousarray(numbers[np.isfinite(numbers)], np.float64)
    start, size, text = shortest_doubles.write(numbers.view(np.int64), 0)
    ours = [text[at : at + n].tobytes() for at, n in zip(start.tolist(), size.tolist(), strict=True)]
    assert ours == msgspec.json.encode(numbers.tolist())[1:-1].split(b",")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_edges_and_powers(sign):
    check(sign * np.array(EDGES))
    check(sign * 2.0 ** np.arange(-1074, 1024))
    check(sign * np.nextafter(2.0 ** np.arange(-1020, 1020), 0))
    check(sign * np.nextafter(2.0 ** np.arange(-1020, 1020), np.inf))
    check(sign * 10.0 ** np.arange(-300, 300))


@pytest.mark.parametrize("seed", range(4))
def test_random_bits_decimals_and_integers(seed):
    rng = np.random.default_rng(seed)
    check(rng.integers(-(2**63), 2**63 - 1, 50_000).view(np.float64))
    check(rng.random(20_000) * 400)
    check(np.round(rng.random(20_000) * 1e6, 3))
    check(rng.integers(-(2**63), 2**63 - 1, 20_000).astype(np.float64))


def test_equal_neighbours_share_their_text():
    start, size, text = shortest_doubles.write(np.array([0.5, 0.5, 0.25, 0.5]).view(np.int64), 0)
    assert start[0] == start[1] != start[3]
    assert [text[a : a + n].tobytes() for a, n in zip(start, size, strict=True)] == [b"0.5", b"0.5", b"0.25", b"0.5"]
