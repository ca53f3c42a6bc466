"""The only place that asks the time, so that every other module can be tested with any time it likes."""

from __future__ import annotations

import time


def wall_ns() -> int:
    """Nanoseconds since the epoch by this machine's clock. It may jump; never subtract two of them to get a duration."""
    return time.time_ns()


def monotonic_ns() -> int:
    """Nanoseconds of a clock that never goes back. Only differences mean something."""
    return time.monotonic_ns()
