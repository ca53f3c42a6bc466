"""Device spans whose recorded duration cannot be: a stamp of their end was missing or is another's, and seconds of work appear.

Two things are known of a trace. Work of one stream is done in its order, so of two spans of a stream the first does not end long after
the second has (some overlap is real: the next may start early, and graphs run branches at once). And the host stops recording after the
device is done, so nothing ends later than the host's last span. A span that breaks one by more than OVERLONG_NS ends, at the latest, where
the next of its stream starts, or where the host stopped. What was recorded stays beside it, in attrs as `recorded_ns`, with a flag.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.attrs import canonical_json
from crossrank.model.flags import EventFlag

OVERLONG_NS: Final = 100_000_000
LONGEST_NS: Final = 7 * 86_400 * 1_000_000_000  # no profile lasts a week: a longer duration is no duration
LATEST_NS: Final = 4_000_000_000_000_000_000  # of a time or a base; the sum of both and LONGEST_NS is an int64


class DeviceSpans:
    """Filled piece by piece; then `settle` gives the ends that must be changed. Times without the base."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64Array, Int64Array, Int64Array, Int64Array]] = []
        self._host_last_ns = np.iinfo(np.int64).min
        self._longest_ns = 0
        self.last_ns = np.iinfo(np.int64).min  # the last end of a span that was looked at, once settled
        self.row = np.empty(0, dtype=np.int64)  # ascending, of the spans that were settled
        self.end_ns = np.empty(0, dtype=np.int64)

    def add(self, lane: Int64Array, start: Int64Array, end: Int64Array, row: Int64Array, device: BoolArray) -> None:
        """The next rows; device: [rows] work of a stream."""
        self._host_last_ns = max(self._host_last_ns, int(end[~device].max(initial=self._host_last_ns)))
        self._longest_ns = max(self._longest_ns, int((end - start)[device].max(initial=0)))
        self._parts.append((lane[device], start[device], end[device], row[device]))

    def settle(self) -> int:
        """Finds the spans to change; how many."""
        parts, self._parts = self._parts, []
        if self._longest_ns <= OVERLONG_NS:
            return 0
        lane, start, end, row = (np.concatenate([part[i] for part in parts]) for i in range(4))
        order = np.lexsort((row, start, lane))
        lane, start, end, row = lane[order], start[order], end[order], row[order]
        latest = end.copy()
        same = np.flatnonzero(lane[1:] == lane[:-1])
        outlasts = (end[same] - end[same + 1] > OVERLONG_NS) & (end[same] - start[same] > OVERLONG_NS)
        latest[same[outlasts]] = start[same[outlasts] + 1]
        if self._host_last_ns > np.iinfo(np.int64).min:
            beyond = latest > self._host_last_ns + OVERLONG_NS
            latest[beyond] = np.maximum(start[beyond], self._host_last_ns)
        self.last_ns = int(latest.max())
        changed = np.flatnonzero(latest < end)
        by_row = changed[np.argsort(row[changed])]
        self.row, self.end_ns = row[by_row], latest[by_row]
        return len(by_row)

    def apply(
        self, rows: slice, duration: Int64Array, start: Int64Array, attrs: pa.Array, flags: pa.Array
    ) -> tuple[Int64Array, pa.Array, pa.Array]:
        """Durations, attributes and flags of a range of rows with what was settled."""
        low, high = np.searchsorted(self.row, (rows.start, rows.stop))
        if low == high:
            return duration, attrs, flags
        duration, doubts, texts = duration.copy(), flags.to_numpy().copy(), attrs.to_pylist()
        for place, end in zip((self.row[low:high] - rows.start).tolist(), self.end_ns[low:high].tolist(), strict=True):
            said = msgspec.json.decode(texts[place] or "{}")
            texts[place] = canonical_json({**said, "recorded_ns": int(duration[place])})
            duration[place] = end - start[place]
            doubts[place] |= int(EventFlag.CLIPPED)
        return duration, pa.array(texts, pa.string()), pa.array(doubts)
