"""What the analyses conclude: ranks that are late by themselves, and bottlenecks of any class.

`cost_ns` is always what the job would have been shorter by over the steps asked about, had the cause not been there: not the
sum of waits, which counts one lateness once for everybody who waited. `confidence` is the chance that the finding is not noise,
after correcting for everything that was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingClass = Literal[
    "straggler",
    "straggler_host",
    "data_stall",
    "jitter",
    "slow_link",
    "checkpoint_stall",
    "pipeline_bubble",
    "imbalance",
    "exposed_communication",
    "hang",
    "mismatch",
    "missing_rank",
    "clock",
]


@dataclass(frozen=True, slots=True)
class Cause:
    """The phase that took too long: `kind` as in the event schema, `name` as the user calls it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank whose own work in one phase was longer than that of its peers by more than chance allows.

    excess_ns: the extra own time over those steps, before slack absorbs any of it; the cost is never more.
    typical_ns: own time of the phase in a step of its peers.
    span_of_time_ns: duration of the steps asked about, of which the cost is a share.
    """

    rank: int
    host: str | None
    cause: Cause
    steps: tuple[int, ...]
    cost_ns: int
    cost_error_ns: int
    cost_per_step_ns: int
    excess_ns: int
    typical_ns: int
    confidence: float
    span_of_time_ns: int
    is_jitter: bool = False  # rare long stops in a phase rather than a slow phase


@dataclass(frozen=True, slots=True)
class Finding:
    """One bottleneck, told in a sentence. `cost_ns` is 0 where a class has no cost of its own (mismatch, clock, missing rank).

    share: of the duration of the steps asked about. steps: () where the finding is not about steps.
    """

    class_: FindingClass
    ranks: tuple[int, ...]
    group: str | None
    steps: tuple[int, ...]
    cost_ns: int
    cost_error_ns: int
    share: float
    confidence: float
    sentence: str
