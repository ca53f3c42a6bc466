"""Whether the service can take and answer, probed at most once a second: anybody may ask, and every probe syncs the disk."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from crossrank.errors import StoreUnavailable
from crossrank.store.store import Store

_VALID_NS: Final = 1_000_000_000


class Readiness:
    """Remembers the last probe."""

    def __init__(self, store: Store, monotonic_ns: Callable[[], int]) -> None:
        self._store, self._monotonic_ns = store, monotonic_ns
        self._lock = Lock()
        self._probed_ns: int | None = None
        self._fault: StoreUnavailable | None = None

    def check(self) -> None:
        """Raises StoreUnavailable when a query or a write to the data folder does not work."""
        with self._lock:
            now_ns = self._monotonic_ns()
            if self._probed_ns is None or now_ns - self._probed_ns > _VALID_NS:
                self._fault = None
                try:
                    self._store.probe()
                except StoreUnavailable as fault:
                    self._fault = fault
                self._probed_ns = now_ns
            if self._fault is not None:
                raise StoreUnavailable(self._fault.message, **self._fault.detail)
