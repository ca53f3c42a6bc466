"""What the store does behind its callers' backs: work that is tried each second, and again later when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_TICK_S: Final = 1.0
_RETRY_S: Final = 5.0


class Ticker:
    """A background thread that does something whenever it is due."""

    def __init__(self, name: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """work: called each second; when it raises, `failed` is called and it is left alone for some seconds."""
        self._work, self._failed = work, failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after work that may be running."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = _TICK_S
        while not self._stop.wait(pause_s):
            pause_s = _TICK_S
            try:
                self._work()
            except Exception:  # noqa: BLE001  - counted and tried again; nothing is lost by it
                self._failed()
                pause_s = _RETRY_S
