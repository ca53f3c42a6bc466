"""From a false discovery rate to the confidence that is stated: how often findings of that rate were right.

The scan's rate (runs) bounds chance from above where noise is well-behaved, and is too low where it is not: bursts of a loaded
machine look like short runs. What a reader wants to know is how often such a finding is right, so the rate r is mapped to

    confidence = 1 / (1 + (r / r_even) ^ slope)          a logistic curve in log r (Platt 1999)

with r_even the rate at which half of the findings are right. The constants are no fit yet: in the 112 jobs of tuning seeds that
have been looked at, the surest wrong finding had a rate of 0.011 and the least sure right one of 0.0009, which leaves a likelihood
without a maximum; a recording with a known slow rank (slow_rank_3d_w8) has 0.005. They put 0.9 between, at 0.0083.
`benchmarks/blame.py --fit` finds them by maximum likelihood from more.
A finding is right when it names the injected rank and phase, or link, or group.

Confidence never rises above what so many seeds can show.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Float64Array

RATE_EVEN = 0.025
SLOPE = 2.0
MOST = 0.999


def stated_confidence(rate: Float64Array) -> Float64Array:
    """Confidence of findings with these false discovery rates."""
    odds = np.maximum(rate, 1e-300) / RATE_EVEN
    return np.minimum(1.0 / (1.0 + odds**SLOPE), MOST)
