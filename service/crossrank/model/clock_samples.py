"""Clock samples: a client asked the service for its time and noted four stamps, as NTP does.

    sent      the client's clock when it asked           received   the service's clock when the question came
    got       the client's clock when the answer came    replied    the service's clock when the answer left

The two delays hold the offset with opposite signs, so each sample is one message forth and one back. Samples tie a clock to the
service's own, which stands for a further clock domain, SERVICE_CLOCK, that has no spans. Even a few of them fix the constant part
of an offset, which collectives can only tell as well as their members end together.

They come as events of kind `metric` named `clock.sample` with the four stamps in `attrs` (see docs/formats.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import Int32Array, Int64Array

NAME: Final = "clock.sample"
SERVICE_CLOCK: Final = "crossrank:service"
LONGEST_TRIP_NS = 10_000_000_000  # a slower answer says nothing about a clock
MOST_SAMPLES = 100_000  # evenly chosen beyond


@dataclass(frozen=True, slots=True)
class ClockSamples:
    """c samples. service: number of the service's clock domain, NO_SERVICE without samples."""

    service: int
    domain: Int32Array  # [c]
    sent_ns: Int64Array  # [c] on the domain's clock
    received_ns: Int64Array  # [c] on the service's
    replied_ns: Int64Array
    got_ns: Int64Array

    def __len__(self) -> int:
        return len(self.domain)


NO_SERVICE: Final = -1


def no_samples() -> ClockSamples:
    """What a trace without samples has."""
    nothing = np.empty(0, np.int64)
    return ClockSamples(NO_SERVICE, np.empty(0, np.int32), nothing, nothing, nothing, nothing)


class _Stamps(msgspec.Struct):
    sent_ns: int
    received_ns: int
    replied_ns: int
    got_ns: int


def samples_of(events: pa.Table, domain: Int32Array, domains: tuple[str, ...]) -> tuple[ClockSamples, tuple[str, ...], int]:
    """Samples among events, the clock domains with the service's at the end, and how many samples could not be used.

    domain: [rows] clock domain of each row, negative where unknown.
    """
    if "attrs" not in events.column_names:
        return no_samples(), domains, 0
    named = pc.and_(pc.equal(_words(events, "kind"), "metric"), pc.equal(_words(events, "name"), NAME))
    rows = np.flatnonzero(pc.fill_null(named, False).to_numpy(zero_copy_only=False))
    rows = rows[domain[rows] >= 0]
    if len(rows) == 0:
        return no_samples(), domains, 0
    if len(rows) > MOST_SAMPLES:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_SAMPLES).astype(np.int64)]
    read = [_stamps(text) for text in events.column("attrs").take(pa.array(rows)).to_pylist()]
    good = [i for i, stamps in enumerate(read) if stamps is not None]
    if not good:
        return no_samples(), domains, len(rows)
    stamps = np.array([read[i] for i in good], dtype=np.int64)
    if SERVICE_CLOCK not in domains:
        domains = (*domains, SERVICE_CLOCK)
    found = ClockSamples(domains.index(SERVICE_CLOCK), domain[rows[good]], *stamps.T.copy())
    return found, domains, len(rows) - len(good)


def _words(events: pa.Table, name: str) -> pa.ChunkedArray:
    return events.column(name).cast(pa.string())


def _stamps(attrs: str | None) -> tuple[int, int, int, int] | None:
    """(sent, received, replied, got), or None where they cannot be those of a sample."""
    try:
        s = msgspec.json.decode(attrs or "", type=_Stamps)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    stamps = (s.sent_ns, s.received_ns, s.replied_ns, s.got_ns)
    if not all(0 < stamp < 2**63 for stamp in stamps) or s.received_ns > s.replied_ns:
        return None
    trip = (s.got_ns - s.sent_ns) - (s.replied_ns - s.received_ns)
    return stamps if 0 <= trip <= LONGEST_TRIP_NS else None
