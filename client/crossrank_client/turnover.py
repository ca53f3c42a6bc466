"""A ring of numbered entries that somebody else writes: which of them are new, which went unseen, and when to look again.

A look copies the whole ring, so it costs the same whether one entry is new or all are. Looks are therefore as rare as losing nothing
allows. With `turned` entries written since the last look, counted where the writer counts them and else expected from the rate of
the look before, the next look is due when

    turned >= 3/4 size                     most of the ring is new, or
    turned + fastest * AHEAD_NS >= size    all of it could be, AHEAD_NS from now

but not before LEAST_NS nor after MOST_NS. `fastest` is the highest rate (entries a ns) between two askings, less a fifth
with each look since: the pace of a burst counts, not that of the pauses around it. So nothing is lost where no two askings are further
apart than a quarter of the ring, nor to faster bursts that come again and again; to one that is the first of its kind it can be.

`size` is what the ring held at the last look: less than it can hold while it fills, when a look is cheap. Numbers rise by one; a gap
between the last one seen and the oldest one left is what was overwritten unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LEAST_NS = 1_000_000_000
MOST_NS = 10_000_000_000
KEPT = 0.8
AHEAD_NS = 2_000_000_000  # whether it is due is asked each 1 to 1.5 s


class Turnover:
    """What one reader knows of one ring. lost: entries that were overwritten before they were read to their end.

    late: the writer may be long at work, so what went before the first look is not lost but none of the reader's.
    """

    def __init__(self, *, late: bool = False) -> None:
        self.lost = 0
        self._late = late
        self._next = 0  # number of the first entry that was not seen yet
        self._waiting: set[int] = set()
        self._size = 0
        self._looked_ns: int | None = None
        self._counted = 0
        self._asked: tuple[int, int] | None = None  # when is_due was asked last, and what was counted then
        self._rate: float | None = None  # between the last two looks, entries a ns
        self._fastest = self._fastest_before = 0.0

    def is_due(self, now_ns: int, counted: int) -> bool:
        """Whether to look now. counted: what the writer has written so far, as far as it counts; it may leave some out."""
        if self._asked is not None and now_ns - self._asked[0] >= LEAST_NS // 2:  # of a shorter time the rate is chance
            self._fastest = max(self._fastest, (counted - self._asked[1]) / (now_ns - self._asked[0]))
            self._asked = now_ns, counted
        if self._looked_ns is None:
            return True
        passed = now_ns - self._looked_ns
        if passed < LEAST_NS or passed >= MOST_NS:
            return passed >= MOST_NS
        if self._rate is None:
            return True
        turned = max(counted - self._counted, self._rate * passed)
        fastest = max(self._rate, self._fastest, self._fastest_before)
        return turned >= 0.75 * self._size or turned + fastest * AHEAD_NS >= self._size

    def unread(self, entries: Sequence[dict[str, Any]], now_ns: int, counted: int) -> list[dict[str, Any]]:
        """Of the ring, oldest first: the entries that were put off and those never seen. The others cost nothing."""
        before = self._next
        found = self._fresh(entries) if entries else []
        if self._looked_ns is not None:
            self._rate = max(0, self._next - before) / max(1, now_ns - self._looked_ns)
        self._fastest_before, self._fastest = max(self._fastest, KEPT * self._fastest_before), 0.0
        self._asked = now_ns, counted
        self._looked_ns, self._counted, self._size = now_ns, counted, len(entries)
        return found

    def put_off(self, entry: dict[str, Any]) -> None:
        """Asks for an entry again at the next look, as it is not complete."""
        self._waiting.add(entry["record_id"])

    def _fresh(self, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        first, last = entries[0]["record_id"], entries[-1]["record_id"]
        waiting, self._waiting = self._waiting, set()
        if last + 1 < self._next:  # numbered anew
            self.lost += len(waiting)
            waiting, self._next = set(), first
        self.lost += 0 if self._late and self._looked_ns is None else max(0, first - self._next)
        again = []
        for record in sorted(waiting):
            place = record - first
            if 0 <= place < len(entries) and entries[place]["record_id"] == record:
                again.append(entries[place])
            else:
                self.lost += 1
        start = len(entries)
        while start and entries[start - 1]["record_id"] >= self._next:
            start -= 1
        self._next = last + 1
        return [*again, *entries[start:]]
