"""How long the event loop was held up: a task that wants to run every 10 ms notes how late it was each time.

Everything heavy runs in threads. A stall means that something held the loop or the interpreter lock, and for as long nobody was
read from, acknowledged or told to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from crossrank.counters import Counters

_BEAT_S: Final = 0.01
_STALL_NS: Final = 50_000_000


async def beat(counters: Counters, monotonic_ns: Callable[[], int]) -> None:
    """Runs until cancelled; exports the largest stall so far, and how many were longer than 50 ms."""
    longest_ns = 0
    counters.set("event_loop_stall_seconds", 0)
    while True:
        began_ns = monotonic_ns()
        await asyncio.sleep(_BEAT_S)
        late_ns = monotonic_ns() - began_ns - int(_BEAT_S * 1e9)
        if late_ns > _STALL_NS:
            counters.add("event_loop_stalls")
        if late_ns > longest_ns:
            longest_ns = late_ns
            counters.set("event_loop_stall_seconds", late_ns / 1e9)
