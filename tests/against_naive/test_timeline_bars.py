"""Bars of a timeline window against one span at a time."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank.model.kinds import KINDS
from crossrank.query.decimate import LEVELS, bars_of, levels_of
from tests.support.naive_bars import NaiveSpan, naive_bars, naive_levels

LANES = 5


def random_spans(seed: int) -> list[NaiveSpan]:
    rng = np.random.default_rng(seed)
    print("seed", seed)
    n = int(rng.integers(1, 400))
    start = rng.integers(-50, 5000, n)
    length = np.where(rng.random(n) < 0.2, rng.integers(0, 800, n), rng.integers(0, 12, n))
    rows = zip(
        rng.integers(0, LANES, n).tolist(),
        start.tolist(),
        (start + length).tolist(),
        rng.integers(0, len(KINDS), n).tolist(),
        strict=True,
    )
    spans = sorted((NaiveSpan(*row) for row in rows), key=lambda s: (s.lane, s.start, -s.end))
    return [s for s, level in zip(spans, naive_levels(spans), strict=True) if level < LEVELS - 1]


def arrays(spans: list[NaiveSpan]):
    lane = np.array([s.lane for s in spans])
    ptr = np.searchsorted(lane, np.arange(LANES + 1)).astype(np.int64)
    start, end = (np.array([getattr(s, name) for s in spans], dtype=np.int64) for name in ("start", "end"))
    kind = np.array([s.kind for s in spans], dtype=np.int8)
    depth, reach = np.zeros(len(spans), dtype=np.int8), np.zeros(len(spans), dtype=np.int64)
    levels_of(ptr, start, end, depth, reach)
    return ptr, start, end, reach, depth, kind


@pytest.mark.parametrize("seed", range(40))
def test_bars_are_those_of_the_plain_words(seed):
    spans = random_spans(seed)
    ptr, start, end, reach, depth, kind = arrays(spans)
    levels = naive_levels(spans)
    assert depth.tolist() == levels
    rng = np.random.default_rng(seed + 1000)
    lo = int(rng.integers(-100, 4000))
    hi, pixel = lo + int(rng.integers(1, 4000)), int(rng.integers(1, 60))
    everything = np.ones(len(KINDS), dtype=bool)
    hit = rng.random(len(spans)) < 0.3
    bars = bars_of(
        np.arange(LANES), ptr, start, end, reach, depth, kind, everything, hit, lo=lo, hi=hi, pixel_ns=pixel, most=10_000
    )
    columns = (bars.row, bars.depth, bars.start, bars.end, bars.kind, bars.count)
    found = list(zip(*(c.tolist() for c in columns), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == naive_bars(spans, levels, lo, hi, pixel)
    inside = [h for s, h in zip(spans, hit.tolist(), strict=True) if s.start < hi and s.end >= lo]
    assert bars.hits.sum() == sum(inside)
    assert bars.pixel_ns == pixel


def test_kinds_that_are_not_wanted_are_left_out():
    spans = random_spans(3)
    wanted = np.zeros(len(KINDS), dtype=bool)
    wanted[2] = True
    ptr, start, end, reach, depth, kind = arrays(spans)
    none = np.empty(0, dtype=bool)
    bars = bars_of(np.arange(LANES), ptr, start, end, reach, depth, kind, wanted, none, lo=-100, hi=10_000, pixel_ns=1, most=10_000)
    assert set(bars.kind.tolist()) == {2}
    assert bars.count.sum() == sum(s.kind == 2 for s in spans)


def test_pixels_widen_until_the_bars_fit():
    spans = [NaiveSpan(0, 10 * i, 10 * i + 5, i % 3) for i in range(5000)]
    ptr, start, end, reach, depth, kind = arrays(spans)
    everything, none = np.ones(len(KINDS), dtype=bool), np.empty(0, dtype=bool)
    bars = bars_of(np.arange(LANES), ptr, start, end, reach, depth, kind, everything, none, lo=0, hi=50_000, pixel_ns=1, most=200)
    assert len(bars.row) <= 200
    assert bars.count.sum() == len(spans)
    assert bars.pixel_ns > 1
