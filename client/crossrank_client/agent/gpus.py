"""NVIDIA GPUs through nvidia-ml-py, where that and a driver are installed; nothing otherwise.

Each figure is asked for by itself: a card that does not know one (consumer cards have no ECC, old ones no NVLink) leaves it out. XID errors,
the driver's words for a fault of the card, come as events; they are marks named `gpu.xid`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

Reading = tuple[str, float, "str | None"]
NVLINKS = 18


class Gpus:
    """The GPUs of this machine; `count` is 0 where there are none or they cannot be asked."""

    def __init__(self, library: Any = None) -> None:
        self._nvml: Any = None
        self._cards: list[Any] = []
        self._xids: Any = None
        self._unknown: set[tuple[int, str]] = set()
        try:
            n = self._nvml = importlib.import_module("pynvml") if library is None else library
            n.nvmlInit()
            self._cards = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
            self._listen()
        except Exception:  # noqa: BLE001 -- no library, no driver, no permission: no GPUs
            self._cards = []

    @property
    def count(self) -> int:
        """Cards that can be asked."""
        return len(self._cards)

    def read(self) -> Iterator[Reading]:
        """All readings of now; device is `gpu:N`."""
        for index, card in enumerate(self._cards):
            for name, ask in self._questions(card):
                if (index, name) in self._unknown:
                    continue
                try:
                    value = float(ask())
                except Exception:  # noqa: BLE001 -- this card does not know
                    self._unknown.add((index, name))
                    continue
                yield f"gpu.{name}", value, f"gpu:{index}"

    def xids(self) -> list[tuple[str, int]]:
        """(device, code) of faults since the last call."""
        found: list[tuple[str, int]] = []
        while self._xids is not None and len(found) < 64:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._xids, 0)
            except Exception:  # noqa: BLE001 -- a timeout: there is none
                break
            index = next((i for i, card in enumerate(self._cards) if card is event.device or card == event.device), None)
            found.append(("gpu" if index is None else f"gpu:{index}", int(event.eventData)))
        return found

    def _listen(self) -> None:
        try:
            events = self._nvml.nvmlEventSetCreate()
            for card in self._cards:
                self._nvml.nvmlDeviceRegisterEvents(card, self._nvml.nvmlEventTypeXidCriticalError, events)
            self._xids = events
        except Exception:  # noqa: BLE001 -- needs rights some containers lack
            self._xids = None

    def _questions(self, card: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        n = self._nvml
        yield "busy_share", lambda: n.nvmlDeviceGetUtilizationRates(card).gpu / 100
        yield "memory_busy_share", lambda: n.nvmlDeviceGetUtilizationRates(card).memory / 100
        yield "memory_used_bytes", lambda: n.nvmlDeviceGetMemoryInfo(card).used
        yield "sm_clock_mhz", lambda: n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_SM)
        yield "memory_clock_mhz", lambda: n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_MEM)
        yield "throttle_reasons", lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(card)
        yield "power_w", lambda: n.nvmlDeviceGetPowerUsage(card) / 1e3
        yield "temperature_c", lambda: n.nvmlDeviceGetTemperature(card, n.NVML_TEMPERATURE_GPU)
        yield "ecc_corrected_total", lambda: self._ecc_errors(card, n.NVML_MEMORY_ERROR_TYPE_CORRECTED)
        yield "ecc_uncorrected_total", lambda: self._ecc_errors(card, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        yield "nvlinks_active", lambda: self._active_links(card)
        yield "nvlink_replays_total", lambda: self._link_errors(card)

    def _ecc_errors(self, card: Any, kind: int) -> int:
        found: int = self._nvml.nvmlDeviceGetTotalEccErrors(card, kind, self._nvml.NVML_VOLATILE_ECC)
        return found

    def _active_links(self, card: Any) -> int:
        n = self._nvml
        states = list(_until_refused(lambda link: n.nvmlDeviceGetNvLinkState(card, link)))
        if not states:
            raise LookupError("no NVLink")
        return sum(bool(state) for state in states)

    def _link_errors(self, card: Any) -> int:
        n = self._nvml
        counts = list(_until_refused(lambda link: n.nvmlDeviceGetNvLinkErrorCounter(card, link, n.NVML_NVLINK_ERROR_DL_REPLAY)))
        if not counts:
            raise LookupError("no NVLink")
        return sum(map(int, counts))


def _until_refused(ask: Callable[[int], Any]) -> Iterator[Any]:
    for link in range(NVLINKS):
        try:
            yield ask(link)
        except Exception:  # noqa: BLE001 -- no further link
            return
