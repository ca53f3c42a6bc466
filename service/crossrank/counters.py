"""Every counter of the service, declared once: name, kind, severity and what it means.

Anything lost or doubtful is counted under a declared name and visible in /metrics, in the job summary and on the page.
Severity: `info` is normal work, `data_loss` means something a sender sent is not in the answers, `error` means look at it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

Severity = Literal["info", "data_loss", "error"]


@dataclass(frozen=True, slots=True)
class Declared:
    """One counter or gauge. `labels` have bounded values (reasons, routes), never names that senders choose."""

    name: str
    kind: Literal["counter", "gauge"]
    severity: Severity
    meaning: str
    labels: tuple[str, ...] = ()


DECLARED: Final[tuple[Declared, ...]] = (
    Declared("requests", "counter", "info", "Requests by route and status code.", ("route", "status")),
    Declared("events_accepted", "counter", "info", "Events stored, new or amending an earlier one."),
    Declared("events_duplicate", "counter", "info", "Exact duplicates dropped."),
    Declared(
        "events_conflict",
        "counter",
        "data_loss",
        "Events whose identity came before with other content; the last one received counts.",
    ),
    Declared("events_rejected", "counter", "data_loss", "Events not admitted, by reason.", ("reason",)),
    Declared("body_bytes", "counter", "info", "Bytes of request bodies as received."),
    Declared("requests_overloaded", "counter", "data_loss", "Requests answered 503 because a budget was used up.", ("budget",)),
    Declared("event_loop_stall_seconds", "gauge", "info", "Longest time since start that the event loop was held up."),
    Declared("event_loop_stalls", "counter", "info", "Times the event loop was held up for more than 50 ms."),
    Declared("wal_bytes", "gauge", "info", "Bytes of write-ahead log not yet sealed into segments."),
    Declared("wal_syncs", "counter", "info", "Group commits (fdatasync calls)."),
    Declared("wal_torn_tails", "counter", "info", "Incomplete last records cut off at start: never acknowledged."),
    Declared(
        "wal_damaged_records",
        "counter",
        "error",
        "Records in the middle of the log whose checksum failed; their file was set aside.",
    ),
    Declared("wal_undecodable_posts", "counter", "error", "Logged bodies that could not be decoded again at start."),
    Declared("segments_sealed", "counter", "info", "Parquet segments written."),
    Declared("seals_failed", "counter", "error", "Seals that could not be finished and are tried again; the log keeps the events."),
    Declared("segments_compacted", "counter", "info", "Small segments that were made part of a larger one."),
    Declared("events_expired", "counter", "info", "Stored events removed because they had reached the age or size to be kept."),
    Declared("upkeep_failed", "counter", "error", "Compactions or expiries that could not be finished and are tried again."),
    Declared(
        "segments_damaged", "counter", "error", "Segments left out of answers because their checksum failed or the file is gone."
    ),
    Declared("memtable_rows", "gauge", "info", "Events in memory, not yet sealed."),
    Declared("memtable_bytes", "gauge", "info", "Bytes of memory they take."),
    Declared(
        "identities", "gauge", "info", "Event versions held in memory to recognise resends: those that are in no segment yet."
    ),
    Declared("identity_run_bytes", "gauge", "info", "Bytes of the files that tell which identities segments hold."),
    Declared("jobs", "gauge", "info", "Jobs in the data folder."),
    Declared("segments", "gauge", "info", "Parquet segments."),
    Declared("segment_rows", "gauge", "info", "Events in segments."),
    Declared("segment_bytes", "gauge", "info", "Bytes of segments."),
    Declared("derivations", "counter", "info", "Derivations finished."),
    Declared("derivations_failed", "counter", "error", "Derivations stopped by a fault of ours; the job's previous answers stay."),
    Declared("derive_seconds", "gauge", "info", "Wall time of the last derivation."),
)


class Counters:
    """The running values of all declared counters, safe to use from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._series: dict[str, Counter | Gauge] = {}
        for d in DECLARED:
            make = Counter if d.kind == "counter" else Gauge
            self._series[d.name] = make(f"crossrank_{d.name}", f"[{d.severity}] {d.meaning}", d.labels, registry=self.registry)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a declared counter."""
        series = self._series[name]
        (series.labels(**labels) if labels else series).inc(amount)

    def set(self, name: str, value: float) -> None:
        """Sets a declared gauge."""
        series = self._series[name]
        assert isinstance(series, Gauge), name
        series.set(value)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)
