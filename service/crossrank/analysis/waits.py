"""Who came last to each collective, how long the others waited, and how fast the transfer was.

    wait_ns      = last arrival - own arrival       a member's time spent waiting for others (not more than its span lasted)
    transfer_ns  = median end - last arrival        what the operation itself took; ends are nearly simultaneous, with positive
                                                    noise, so the median stands for them
    algbw_gbs    = bytes / transfer                 busbw_gbs = algbw x factor (GB = 1e9 bytes), n members:
                                                    all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all (n-1)/n; else 1

A rank is only called the last arriver when that is beyond doubt (analysis.certainty) and no member is missing: the one nobody
saw may have been later still. Nor where some members are known from a dump alone, by when the host called, and others by when it ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.analysis.certainty import leader_is_certain, repair_shift_ns
from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from crossrank.model.gates import Gates, gates_of
from crossrank.model.kinds import canonical_op
from crossrank.model.matches import CollectiveMatches
from crossrank.model.progress import RECORDER_LANE
from crossrank.model.timeline import Timeline

_BUS_FACTOR = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}  # times (n - 1) / n
_BEFORE_ALL = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Times of the k collectives of `timeline.matches`, and of their m members (in the order of `collectives.member`)."""

    step: Int64Array  # [k] NO_STEP outside all steps
    first_arrival_ns: Int64Array  # [k]
    last_arrival_ns: Int64Array  # [k]
    last_arriver: Int32Array  # [k] rank, if `decided`
    decided: BoolArray  # [k] the last arriver is known beyond the clock bounds
    spread_ns: Int64Array  # [k] last arrival - first arrival
    spread_bound_ns: Int64Array  # [k] the spread is right within this; UNALIGNED_NS when nothing relates the two clocks
    ended: BoolArray  # [k] every member seen has ended
    transfer_ns: Int64Array  # [k] 0 where not ended
    size_bytes: Int64Array  # [k] largest among the members, 0 where unknown
    algbw_gbs: Float64Array  # [k] NaN where size or transfer is unknown
    busbw_gbs: Float64Array  # [k]
    wait_ns: Int64Array  # [m]


@dataclass(frozen=True, slots=True)
class MessageTimes:
    """Times of the messages of `timeline.matches`."""

    wait_ns: Int64Array  # [messages] receive's start until the send's start, not more than the receive lasted
    transfer_ns: Int64Array  # [messages] from when both had started to the receive's end


def gate_times(timeline: Timeline, gates: Gates) -> Int64Array:
    """[gates] when each gate opened: the last of the starts it needs; the smallest int64 where it needs none."""
    return latest_at_gates(gates.arrives, timeline.start_ns, len(gates))


@njit(cache=True, nogil=True)
def latest_at_gates(arrives: Int32Array, start_ns: Int64Array, gates: int) -> Int64Array:
    """[gates] latest start among the spans that arrive at each gate."""
    opened = np.full(gates, _BEFORE_ALL, dtype=np.int64)
    for i in range(len(arrives)):
        if arrives[i] >= 0 and start_ns[i] > opened[arrives[i]]:
            opened[arrives[i]] = start_ns[i]
    return opened


def waits_of_spans(timeline: Timeline, gates: Gates, opened: Int64Array) -> Int64Array:
    """[n] how long each span waited at its gate for others; an open span so far waited for nothing that is known."""
    wait = np.zeros(len(timeline.trace), dtype=np.int64)
    waiting = np.flatnonzero(gates.waits >= 0)
    lasted = timeline.end_ns[waiting] - timeline.start_ns[waiting]
    wait[waiting] = np.clip(opened[gates.waits[waiting]] - timeline.start_ns[waiting], 0, lasted)
    return wait


def collective_times(timeline: Timeline) -> CollectiveTimes:
    """Arrivals, waits and transfers of every matched collective. O(members log members)."""
    trace, found = timeline.trace, timeline.matches.collectives
    first = found.ptr[:-1]
    start, end = timeline.start_ns[found.member], timeline.end_ns[found.member]
    is_open = trace.is_open[found.member]
    last_arrival = _reduce(np.maximum, start, first)
    first_arrival = _reduce(np.minimum, start, first)
    last = _first_place(start, last_arrival, found)
    ended = ~_reduce(np.logical_or, is_open, first)
    transfer = np.where(ended, np.maximum(_median(end, found) - last_arrival, 0), 0)
    size = _reduce(np.maximum, trace.size_bytes[found.member], first)
    algbw = _bandwidth(size, transfer)
    gates = gates_of(timeline.matches, len(trace))
    domain = trace.domain[found.member]
    earliest = _first_place(start, first_arrival, found)
    shift = repair_shift_ns(timeline, found.member)
    certain = leader_is_certain(timeline, found.member, start, shift, found.instance, last)
    return CollectiveTimes(
        step=_reduce(np.maximum, timeline.step_of[found.member], first),
        first_arrival_ns=first_arrival,
        last_arrival_ns=last_arrival,
        last_arriver=trace.rank[found.member[last]],
        decided=certain & found.complete & (np.diff(found.ptr) > 1) & _comparable(timeline),
        spread_ns=last_arrival - first_arrival,
        spread_bound_ns=timeline.clocks.pairs.of(domain[earliest], domain[last]) + shift[earliest] + shift[last],
        ended=ended,
        transfer_ns=transfer,
        size_bytes=size,
        algbw_gbs=algbw,
        busbw_gbs=algbw * _bus_factor(timeline),
        wait_ns=waits_of_spans(timeline, gates, gate_times(timeline, gates))[found.member],
    )


def message_times(timeline: Timeline) -> MessageTimes:
    """Wait and transfer of every matched message."""
    sent, received = timeline.matches.messages.send, timeline.matches.messages.recv
    start, end = timeline.start_ns[received], timeline.end_ns[received]
    both = np.maximum(start, timeline.start_ns[sent])
    return MessageTimes(
        wait_ns=np.minimum(both, np.maximum(end, start)) - start,
        transfer_ns=np.where(timeline.trace.is_open[received], 0, np.maximum(end - both, 0)),
    )


def _reduce(function: np.ufunc, values: np.ndarray, first: Int64Array) -> np.ndarray:
    return function.reduceat(values, first) if len(first) else values[:0]


def _comparable(timeline: Timeline) -> BoolArray:
    """[k] either all members are entries of dumps or none is."""
    found = timeline.matches.collectives
    by_lane = np.array([name == RECORDER_LANE for name in timeline.trace.lanes], dtype=np.bool_)
    recorded = by_lane[timeline.trace.lane[found.member]]
    comparable: BoolArray = _reduce(np.logical_and, recorded, found.ptr[:-1]) | ~_reduce(np.logical_or, recorded, found.ptr[:-1])
    return comparable


def _first_place(values: Int64Array, wanted: Int64Array, found: CollectiveMatches) -> Int64Array:
    """[k] place in `member` of the first one with the wanted value."""
    instance = found.instance
    rows = np.flatnonzero(values == wanted[instance])
    place = np.full(len(found), len(values), dtype=np.int64)
    np.minimum.at(place, instance[rows], rows)
    return place


def _median(values: Int64Array, found: CollectiveMatches) -> Int64Array:
    """[k] lower median over the members of each collective."""
    order = np.lexsort((values, found.instance))
    middle = found.ptr[:-1] + (np.diff(found.ptr) - 1) // 2
    return values[order][middle]


def _bandwidth(size: Int64Array, transfer: Int64Array) -> Float64Array:
    """Bytes per ns, which is GB/s."""
    out = np.full(len(size), np.nan)
    known = (size > 0) & (transfer > 0)
    out[known] = size[known] / transfer[known]
    return out


def _bus_factor(timeline: Timeline) -> Float64Array:
    found = timeline.matches.collectives
    base = np.array([*(_BUS_FACTOR.get(canonical_op(op), 0.0) for op in timeline.trace.ops), 0.0])[found.op]
    n = np.maximum(found.expected, 1).astype(np.float64)
    factor: Float64Array = np.where(base > 0, base * (n - 1) / n, 1.0)
    return factor
