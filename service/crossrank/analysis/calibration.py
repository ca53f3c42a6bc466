"""From a false discovery rate to the confidence that is stated: how often findings of that rate were right.

The scan's rate (runs) bounds chance from above where noise is well-behaved, and is too low where it is not: bursts of a loaded
machine look like short runs. What a reader wants to know is how often such a finding is right, so the rate r is mapped to

    confidence = 1 / (1 + (r / rate_even) ^ slope)          a logistic curve in log r (Platt 1999)

with rate_even the rate at which half of the findings are right. A finding is right when it names the injected rank and phase, or
link, or group. The curves are chosen on tuning seeds, 112 jobs with faults and 90 healthy ones with the noise of recordings; wrong
findings are too few for a fit:

- work in a run of steps: no wrong finding at any rate told. The curve states 0.9 at a rate of 0.1, where the rate itself would. A
  stricter one hides real faults of small jobs: four slow steps of twelve, however slow, have 0.016.
- work in steps here and there, as bursts are: a wrong one at 0.045. The curve states 0.9 at 0.0083.
- links: no wrong finding since those of scattered steps are left out; the same curve, for a transfer is long when one of its ends is
  held up, too. A recorded slow link (slow_link_sleep) lies between it and the next one.
- groups, which have few peers: wrong ones at 0.0063, 0.0032 and 0.0008. The curve states 0.9 at 0.0006; the least sure right one,
  at 0.0009, is given up for that.

`benchmarks/blame.py --fit` finds constants by maximum likelihood from more. Confidence never rises above what so many seeds show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.model.arrays import Float64Array

MOST: Final = 0.999


@dataclass(frozen=True, slots=True)
class Calibration:
    """A curve from false discovery rate to confidence."""

    rate_even: float
    slope: float

    def confidence(self, rate: Float64Array) -> Float64Array:
        """Stated confidence of findings with these rates."""
        odds = np.maximum(rate, 1e-300) / self.rate_even
        return np.minimum(1.0 / (1.0 + odds**self.slope), MOST)


OF_WORK: Final = Calibration(0.3, 2.0)
OF_SCATTERED_WORK: Final = Calibration(0.025, 2.0)
OF_LINKS: Final = Calibration(0.025, 2.0)
OF_GROUPS: Final = Calibration(0.0018, 2.0)
