"""How fast each group and link moves bytes: latency and bandwidth by a robust line, and who falls below what it has shown itself.

    transfer_ns = latency_ns + bytes / bandwidth          alpha-beta model, fitted over the sizes of one (group, operation) or link

The line goes through the medians of each size, weighted by their counts; residual_ns is the median distance from it. With one size
there is no line: latency stays None, the bandwidth is bytes over the median transfer. busbw (analysis.waits) of each size is compared
with the group's own best (its 95th percentile, so that one lucky clock does not set it) or a peak that is given; below FLAGGED
of it in the median, the group does not reach what it can, and the spread over time tells the likely reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.waits import CollectiveTimes
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.timeline import Timeline

FLAGGED = 0.7
_LEAST = 10  # operations of one size needed to speak of a best


@dataclass(frozen=True, slots=True)
class Speed:
    """One group and operation, or one link (`ranks` = source, destination; group None)."""

    group: str | None
    op: str
    ranks: tuple[int, ...]
    operations: int
    latency_ns: int | None
    bandwidth_gbs: float | None  # of the fitted line
    residual_ns: int | None
    busbw_gbs: float | None  # median of the largest size
    best_gbs: float | None
    below: float | None  # median over best, when below FLAGGED
    reason: str | None


def speeds(timeline: Timeline, times: CollectiveTimes, *, peak_gbs: float | None = None) -> list[Speed]:
    """All groups, then all links with messages that were waited for. O(operations log operations)."""
    return _groups(timeline, times, peak_gbs) + _links(timeline)


def _groups(timeline: Timeline, times: CollectiveTimes, peak_gbs: float | None) -> list[Speed]:
    trace, coll = timeline.trace, timeline.matches.collectives
    usable = np.flatnonzero(times.ended & (times.transfer_ns > 0) & (times.size_bytes > 0) & (coll.group >= 0) & (coll.op >= 0))
    key = coll.group[usable].astype(np.int64) * (len(trace.ops) + 1) + coll.op[usable]
    found = []
    keys, place = np.unique(key, return_inverse=True)
    for k in _parted(usable, place, len(keys)):
        members = tuple(trace.rank[coll.member[coll.ptr[k[0]] : coll.ptr[k[0] + 1]]].tolist())
        latency, bandwidth, residual = fit_line(times.size_bytes[k], times.transfer_ns[k])
        largest = k[times.size_bytes[k] == times.size_bytes[k].max()]
        bus = times.busbw_gbs[largest]
        median, best = float(np.median(bus)), peak_gbs
        if best is None and len(bus) >= _LEAST:
            best = float(np.quantile(bus, 0.95))
        below = median / best if best and median < FLAGGED * best else None
        reason = None if below is None else _reason(bus, peak_gbs is not None)
        found.append(Speed(trace.groups[coll.group[k[0]]], trace.ops[coll.op[k[0]]], members, len(k), latency, bandwidth, residual,
            median, best, below, reason))  # fmt: skip
    return found


def _reason(bus: Float64Array, given: bool) -> str:
    """By when it is slow: from some time on, all the time, or now and then."""
    half = len(bus) // 2
    early, late = float(np.median(bus[:half])) if half else 0.0, float(np.median(bus[half:]))
    if half >= 3 and late < FLAGGED * early:
        return "slower since some time in the run: a link that degraded, or new traffic on it"
    if given:
        return "never near the peak: the ring or tree may not fit the topology"
    return "slow now and then: contention with other traffic"


def _links(timeline: Timeline) -> list[Speed]:
    trace, messages = timeline.trace, timeline.matches.messages
    opened = np.maximum(timeline.start_ns[messages.send], timeline.start_ns[messages.recv])
    took = timeline.end_ns[messages.recv] - opened
    size = trace.size_bytes[messages.send]
    waited = timeline.start_ns[messages.send] >= timeline.start_ns[messages.recv]
    usable = np.flatnonzero(waited & (took > 0) & (size > 0) & ~trace.is_open[messages.recv])
    source, destination = trace.rank[messages.send[usable]], trace.rank[messages.recv[usable]]
    width = int(trace.rank.max(initial=0)) + 1
    codes, place = np.unique(source.astype(np.int64) * width + destination, return_inverse=True)
    found = []
    for code, k in zip(codes.tolist(), _parted(usable, place, len(codes)), strict=True):
        latency, bandwidth, residual = fit_line(size[k], took[k])
        found.append(Speed(None, "send", divmod(code, width), len(k), latency, bandwidth, residual, None, None, None, None))
    return found


def _parted(values: Int64Array, place: Int64Array, parts: int) -> list[Int64Array]:
    """The values of each of the places 0..parts-1, in their order."""
    order = np.argsort(place, kind="stable")
    return np.split(values[order], np.searchsorted(place[order], np.arange(1, parts))) if parts else []


def fit_line(size_bytes: Int64Array, transfer_ns: Int64Array) -> tuple[int | None, float | None, int | None]:
    """(latency ns, bandwidth GB/s, median residual ns); a line that rises nowhere has no bandwidth, one size no latency."""
    sizes, place, count = np.unique(size_bytes, return_inverse=True, return_counts=True)
    median = np.array([np.median(transfer_ns[place == i]) for i in range(len(sizes))])
    if len(sizes) == 1:
        residual = float(np.median(np.abs(transfer_ns - median[0])))
        return None, float(sizes[0]) / float(median[0]) if median[0] > 0 else None, round(residual)
    weight = np.sqrt(count)
    rows = np.column_stack((np.ones(len(sizes)), sizes.astype(np.float64))) * weight[:, None]
    latency, per_byte = np.linalg.lstsq(rows, median * weight, rcond=None)[0].tolist()
    if latency < 0:  # no latency is negative: a line through the origin fits best then
        latency, per_byte = 0.0, float((sizes * median * count).sum() / (sizes.astype(np.float64) ** 2 * count).sum())
    residual = float(np.median(np.abs(transfer_ns - latency - per_byte * size_bytes)))
    return round(latency), 1 / per_byte if per_byte > 0 else None, round(residual)
