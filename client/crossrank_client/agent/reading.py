"""Small files of /proc and /sys, and differences of counters. What is not there is None, never zero."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def text_of(path: Path) -> str | None:
    """The text of a file, None if it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(handle, 1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(handle)


def number_of(path: Path) -> int | None:
    """The integer a file holds, None if it holds none."""
    text = text_of(path)
    try:
        return None if text is None else int(text.split()[0])
    except (ValueError, IndexError):
        return None


class Counters:
    """Counters that only grow, as rates. The first reading of one, and one after it was set back, gives nothing."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}

    def rates(self, now: Mapping[str, tuple[int, float]]) -> dict[str, float]:
        """Change per second of each counter since its last reading. now: name: (monotonic ns, value)."""
        found = {}
        for name, (at_ns, value) in now.items():
            before = self._last.get(name)
            if before is not None and at_ns > before[0] and value >= before[1]:
                found[name] = (value - before[1]) * 1e9 / (at_ns - before[0])
        self._last = dict(now)
        return found
