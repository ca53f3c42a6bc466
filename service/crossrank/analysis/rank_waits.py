"""How long each rank waited for others, and how long others waited because it came last.

    suffered_ns   sum over the rank's collectives of own arrival -> last arrival, and over its receives of the wait for the send
    caused_ns     sum over the collectives to which the rank certainly came last of what all others waited in them, and over the
                  messages it sent of what the receiver waited

Caused waits are summed over everybody who waited, so they are no cost: one late rank of 64 causes 63 waits at once. They may be
inherited: a rank that was itself kept waiting just before is late for a reason that is not its own (see stragglers for causes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.waits import CollectiveTimes, message_times
from crossrank.model.arrays import Int64Array
from crossrank.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class RankWaits:
    """Sums of r ranks (`rank` ascending, every rank with a span), ns."""

    rank: Int64Array  # [r]
    suffered_ns: Int64Array  # [r]
    caused_ns: Int64Array  # [r]
    came_last: Int64Array  # [r] collectives to which the rank certainly came last


def rank_waits(timeline: Timeline, times: CollectiveTimes) -> RankWaits:
    """Waits of every rank. times: of the same timeline. O(spans)."""
    trace, coll, messages = timeline.trace, timeline.matches.collectives, timeline.matches.messages
    ranks = trace.ranks
    place = np.searchsorted(ranks, trace.rank[coll.member])
    suffered = _sums(place, times.wait_ns, len(ranks))
    total = _sums(coll.instance, times.wait_ns, len(coll))
    last = np.searchsorted(ranks, times.last_arriver[times.decided])
    caused = _sums(last, total[times.decided], len(ranks))
    waited = message_times(timeline).wait_ns
    suffered += _sums(np.searchsorted(ranks, trace.rank[messages.recv]), waited, len(ranks))
    caused += _sums(np.searchsorted(ranks, trace.rank[messages.send]), waited, len(ranks))
    return RankWaits(ranks.astype(np.int64), suffered, caused, np.bincount(last, minlength=len(ranks)).astype(np.int64))


def _sums(place: np.ndarray, values: Int64Array, size: int) -> Int64Array:
    out = np.zeros(size, dtype=np.int64)
    np.add.at(out, place, values)
    return out
