"""What can go wrong in a simulated job, one small dataclass a fault.

`steps` is an inclusive pair (first, last), None means all steps. Faults of timing (slow, pause, hang, skip) change when things
happen; faults of delivery (missing rank, lost events) only change what is seen of it, so they cost the job nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Steps = tuple[int, int] | None
Phase = Literal["forward", "backward", "optimizer"]
Scope = Literal["tp", "dp", "world"]
Where = Literal["dataloader", "forward", "backward", "gradients", "grad_norm", "optimizer"]


@dataclass(frozen=True, slots=True)
class SlowCompute:
    """One rank computes slower: each span of the phase takes `factor` times as long and `extra_ns` more."""

    rank: int
    phase: Phase = "forward"
    steps: Steps = None
    extra_ns: int = 0
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class SlowLoader:
    """One rank waits `extra_ns` longer for its data."""

    rank: int
    steps: Steps = None
    extra_ns: int = 40_000_000


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Messages from `src` to `dst` (neighbouring pipeline stages), or the operations of one `group`, transfer slower."""

    src: int | None = None
    dst: int | None = None
    group: str | None = None
    steps: Steps = None
    factor: float = 1.0
    extra_ns: int = 0


@dataclass(frozen=True, slots=True)
class GcPause:
    """One rank stops for `pause_ns` in some forward or backward, in a step with `probability`."""

    rank: int
    steps: Steps = None
    probability: float = 0.3
    pause_ns: int = 50_000_000


@dataclass(frozen=True, slots=True)
class Hang:
    """One rank stops for ever in `where` of `step` (for gradients and grad_norm: before it enters the collective)."""

    rank: int
    step: int
    where: Where = "grad_norm"


@dataclass(frozen=True, slots=True)
class SkippedCollective:
    """One rank does not call the `index`-th collective of a scope in `step` and goes on.

    Its next call on that group has the sequence number of the one it left out. The communicator is out of step from then on and
    completes nothing any more, so the job hangs.
    """

    rank: int
    step: int
    scope: Scope = "dp"
    index: int = 0


@dataclass(frozen=True, slots=True)
class WrongSize:
    """One rank calls the `index`-th collective of a scope in `step` with `size_bytes` (default: half of what the others say)."""

    rank: int
    step: int
    scope: Scope = "dp"
    index: int = 0
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MissingRank:
    """Nothing of this rank ever arrives."""

    rank: int


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Each event (of `rank`, or of all) is lost with probability `fraction`."""

    fraction: float
    rank: int | None = None


Fault = SlowCompute | SlowLoader | SlowLink | GcPause | Hang | SkippedCollective | WrongSize | MissingRank | LostEvents


def in_steps(steps: Steps, step: int) -> bool:
    """Whether `step` lies in an inclusive range."""
    return steps is None or steps[0] <= step <= steps[1]
