"""How much one token may send: two token buckets, bytes and events, so that one careless job cannot starve the others.

A bucket fills at its rate up to two seconds' worth. A request is let in while the bucket is not empty and may overdraw it, because
what it holds is known only after decoding; whoever overdrew waits until the debt is filled. The answer is 503 with the seconds to
wait, which every exporter takes as "later", never 429, which some take as "never".
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Final

from crossrank.errors import Overloaded

_BURST_S: Final = 2.0
_LONGEST_WAIT_S: Final = 5  # stock exporters give up when asked to wait longer


class Bucket:
    """One rate. Times are monotonic nanoseconds."""

    def __init__(self, per_s: float, now_ns: int) -> None:
        self._per_s, self._level, self._at_ns = per_s, per_s * _BURST_S, now_ns

    def wait_s(self, now_ns: int) -> float:
        """Seconds until the bucket is not empty; 0 when it is not."""
        filled = self._level + self._per_s * (now_ns - self._at_ns) / 1e9
        self._level, self._at_ns = min(filled, self._per_s * _BURST_S), now_ns
        return max(0.0, -self._level / self._per_s)

    def take(self, amount: float) -> None:
        """Takes out what was used, below zero if need be."""
        self._level -= amount


class Rates:
    """The buckets of every token. Safe to use from any thread; knows only tokens that exist, so it is bounded."""

    def __init__(self, bytes_per_s: int, events_per_s: int) -> None:
        self._per_s = {"token_bytes": bytes_per_s, "token_events": events_per_s}
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._lock = Lock()

    def check(self, token_id: str, now_ns: int) -> None:
        """Raises Overloaded with `retry_after_s` while the token is over one of its rates."""
        with self._lock:
            for name in self._per_s:
                wait_s = self._bucket(token_id, name, now_ns).wait_s(now_ns)
                if wait_s > 0:
                    raise Overloaded(
                        f"this token sends more than its {name.removeprefix('token_')} a second; try again",
                        budget=name,
                        retry_after_s=min(_LONGEST_WAIT_S, math.ceil(wait_s)),
                    )

    def charge(self, token_id: str, now_ns: int, *, size_bytes: int = 0, events: int = 0) -> None:
        """Takes what a request was from the token's buckets."""
        with self._lock:
            self._bucket(token_id, "token_bytes", now_ns).take(size_bytes)
            self._bucket(token_id, "token_events", now_ns).take(events)

    def _bucket(self, token_id: str, name: str, now_ns: int) -> Bucket:
        bucket = self._buckets.get((token_id, name))
        if bucket is None:
            bucket = self._buckets[token_id, name] = Bucket(self._per_s[name], now_ns)
        return bucket
