"""A budget for request bytes being worked on at once; used up means 503, never growing memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crossrank.errors import Overloaded


class Inflight:
    """Counts bytes between reading a body and answering. Used from the event loop only, so it needs no lock."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0

    @contextmanager
    def hold(self, size_bytes: int) -> Iterator[None]:
        """Holds bytes of the budget for the duration of a block. Raises Overloaded when it is used up.

        One request alone is always let in, however large: its own limit bounds it.
        """
        if self.used_bytes and self.used_bytes + size_bytes > self.budget_bytes:
            raise Overloaded("too many request bytes in work at once; try again", budget="inflight_bytes")
        self.used_bytes += size_bytes
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
