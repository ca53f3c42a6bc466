"""A budget for request bytes being worked on at once; used up means 503 at once, never growing memory.

Each request holds what it really has in memory at the moment: bytes of its body as they arrive, the decompressed body while it is
decoded, the decoded columns until they are on disk. So a sender that announces much and sends little holds nothing.
"""

from __future__ import annotations

from threading import Lock
from typing import Self

from crossrank.errors import Overloaded


class Inflight:
    """Counts bytes between reading a body and answering. Safe to use from any thread."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._lock = Lock()

    def open(self, announced_bytes: int) -> Hold:
        """A hold of nothing yet. Raises Overloaded when a request of this size would not fit; one alone is always let in."""
        if self.used_bytes and self.used_bytes + announced_bytes > self.budget_bytes:
            raise _used_up()
        return Hold(self)

    def change(self, held_bytes: int, by_bytes: int, *, must_fit: bool) -> None:
        """Moves the count for a request that holds `held_bytes` so far. Raises Overloaded and changes nothing if it must fit."""
        with self._lock:
            others = self.used_bytes - held_bytes
            if must_fit and others and self.used_bytes + by_bytes > self.budget_bytes:
                raise _used_up()
            self.used_bytes += by_bytes


class Hold:
    """What one request holds of the budget; a context manager that gives it back."""

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight
        self.held_bytes = 0

    def grow(self, by_bytes: int, *, must_fit: bool = True) -> None:
        """Holds more (negative: less). Raises Overloaded when it does not fit and must."""
        self._inflight.change(self.held_bytes, by_bytes, must_fit=must_fit and by_bytes > 0)
        self.held_bytes += by_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.grow(-self.held_bytes)


def _used_up() -> Overloaded:
    return Overloaded("too many request bytes in work at once; try again", budget="inflight_bytes")
