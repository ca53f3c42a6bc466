"""Medians and means of few noisy values with an honest band around them.

    band = 1.96 * 1.2533 * 1.4826 * MAD / sqrt(n)       of a median of n values: 95 % if they vary like a normal distribution

MAD is the median distance from the median, so that one step held up by the machine widens nothing.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Float64Array

_HALF_WIDTH = 1.96 * 1.2533 * 1.4826


def median_and_band(values: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Along the first axis of [n, ...]: the median and the half width of its 95 % band (infinite for fewer than 3 values)."""
    if len(values) == 0:
        return np.zeros(values.shape[1:]), np.full(values.shape[1:], np.inf)
    middle = np.median(values, axis=0)
    if len(values) < 3:
        return middle, np.full(values.shape[1:], np.inf)
    mad = np.median(np.abs(values - middle), axis=0)
    return middle, _HALF_WIDTH * mad / len(values) ** 0.5


def mean_and_band(values: Float64Array) -> tuple[Float64Array, Float64Array]:
    """As `median_and_band`, for values that are 0 now and large then, whose median says nothing."""
    if len(values) == 0:
        return np.zeros(values.shape[1:]), np.full(values.shape[1:], np.inf)
    if len(values) < 3:
        return values.mean(axis=0), np.full(values.shape[1:], np.inf)
    return values.mean(axis=0), 1.96 * values.std(axis=0, ddof=1) / len(values) ** 0.5
