"""Arrows between spans of different ranks: from whom others waited for to those who waited.

    collective   the last arriver -> every member that waited; only where it is beyond doubt who came last
    broadcast    the root -> every member that waited
    message      the send -> its receive

An arrow is drawn only where both spans are shown and the effect ends after its cause began: in raw times it often does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.analysis.waits import message_times
from crossrank.exporters.picture import Arrows
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.query.derive import Derived


@dataclass(frozen=True, slots=True)
class SpanArrows:
    """a arrows by the span numbers of their ends, and what was not drawn, by reason."""

    cause: Int64Array  # [a]
    effect: Int64Array  # [a]
    left_at_ns: Int64Array  # [a]
    let_go_ns: Int64Array  # [a] when the effect stopped waiting
    missing: dict[str, int]

    def begins(self, span: Int64Array) -> Arrows:
        """The arrows that leave from rows; span: [n] span number of each row, -1 for none."""
        return _at_rows(span, self.cause, self.left_at_ns)

    def ends(self, span: Int64Array) -> Arrows:
        """The arrows that arrive at rows."""
        return _at_rows(span, self.effect, self.let_go_ns)


def arrows_of(derived: Derived, shown: BoolArray, start_ns: Int64Array, end_ns: Int64Array) -> SpanArrows:
    """All arrows between shown spans. shown: [spans]; start_ns, end_ns: [spans] as they are drawn."""
    cause, effect, undecided = _of_collectives(derived)
    messages = derived.timeline.matches.messages
    waited = np.ones(len(messages), dtype=bool) if len(messages) else message_times(derived.timeline).wait_ns >= 0
    cause = np.concatenate((cause, messages.send[waited]))
    effect = np.concatenate((effect, messages.recv[waited]))
    both = shown[cause] & shown[effect]
    cause, effect = cause[both], effect[both]
    drawable = ~derived.timeline.trace.is_open[effect] & (end_ns[effect] > start_ns[cause])
    missing = {"last_arriver_undecided": undecided, "effect_open_or_before_its_cause": int((~drawable).sum())}
    cause, effect = cause[drawable], effect[drawable]
    return SpanArrows(cause, effect, start_ns[cause], np.maximum(start_ns[cause], start_ns[effect]), missing)


def _of_collectives(derived: Derived) -> tuple[Int64Array, Int64Array, int]:
    coll, times = derived.timeline.matches.collectives, derived.collectives
    trace = derived.timeline.trace
    instance = coll.instance
    last = np.full(len(coll), -1, dtype=np.int64)
    came_last = trace.rank[coll.member] == times.last_arriver[instance]
    at_last = came_last & (derived.timeline.start_ns[coll.member] == times.last_arrival_ns[instance])
    last[instance[at_last]] = coll.member[at_last]
    rooted = (coll.root >= 0) & coll.root_sends & ~coll.synchronising
    source = np.where(rooted, coll.root, np.where(times.decided, last, -1))
    waits = (times.wait_ns > 0) & (source[instance] >= 0) & (coll.member != source[instance])
    any_wait = np.zeros(len(coll), dtype=bool)
    any_wait[instance[times.wait_ns > 0]] = True
    return source[instance[waits]], coll.member[waits], int((any_wait & (source < 0)).sum())


def _at_rows(span: Int64Array, of_arrow: Int64Array, at_ns: Int64Array) -> Arrows:
    known = np.flatnonzero(span >= 0)
    order = known[np.argsort(span[known], kind="stable")]
    place = np.searchsorted(span[order], of_arrow)
    place = np.minimum(place, max(len(order) - 1, 0))
    hit = np.flatnonzero(span[order][place] == of_arrow) if len(order) else np.empty(0, dtype=np.int64)
    row = order[place[hit]] if len(order) else hit
    by_row = np.argsort(row, kind="stable")
    return Arrows(row[by_row], hit[by_row] + 1, at_ns[hit][by_row])
