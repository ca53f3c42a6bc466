"""How sure a median is."""

from __future__ import annotations

import math


def interval(values: list[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median with 95 %: binomial, whatever the distribution."""
    n, found = len(values), sorted(values)
    outside, at = 0.0, 0
    while at < n // 2 and outside + math.comb(n, at) / 2**n <= 0.025:
        outside += math.comb(n, at) / 2**n
        at += 1
    at = max(0, at - 1)
    return found[at], found[n - 1 - at]
