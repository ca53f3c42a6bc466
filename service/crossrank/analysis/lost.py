"""Puts back communications whose events were lost, so that a wait nobody reported is not taken for work.

One event in a hundred lost means that in most steps some rank of a large collective has no span for it. The time that rank waited
there would count as work of whatever lies around it, work that no replay can shorten, and every cost would come out too small.
Where the other members tell enough, a stand-in span is put on the lane of the missing one:

    collective   it arrives with the median member, or, where nobody who was seen explains how long it took, as late as the usual
                 transfer allows; it leaves with the first one to leave
    send         its receive was waited for: it starts after what its rank finished last before the message arrived
    receive      its rank was idle when the message arrived: it waits from there until then

A stand-in must fit strictly between two stamps of its lane where no other communication is under way; otherwise it is left out.
Stand-ins exist only inside the analyses of cost; they are never shown, stored or accused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from crossrank.analysis.lane_work import LaneWork, stamp_times
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.kinds import COLLECTIVE, RECV, SEND, STEP, SYNCHRONISING_OPS, canonical_op
from crossrank.model.matches import CollectiveMatches, Matches, MessageMatches
from crossrank.model.timeline import Timeline
from crossrank.model.trace import JobTrace

_MOST_SHARE = 0.1  # with more lost than this share of the communications, the trace is a sample and nothing is put back
_LATE_NS = 20_000  # a transfer longer than twice the usual and this means that whoever is missing came last
_NOT_PER_SPAN = frozenset({"lane_rank", "lane_stamps", "lane_stamp_ptr", "link_cause", "link_effect"})


@dataclass(frozen=True, slots=True)
class _StandIns:
    """g spans to add. `like`: the span each is a copy of but for rank, lane and times; `after`: place in lane_stamps."""

    like: Int64Array
    lane: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    after: Int64Array
    match: Int64Array  # collective instance, or the other side's span for messages
    kind: Int64Array

    def take(self, chosen: np.ndarray) -> _StandIns:
        return _StandIns(*(getattr(self, f.name)[chosen] for f in fields(self)))


def with_lost_communications(timeline: Timeline, work: LaneWork) -> Timeline:
    """The timeline with stand-ins appended after its own spans (whose numbers do not change); itself where nothing is lost.

    work: `lane_work(timeline)`.
    """
    trace, matches = timeline.trace, timeline.matches
    comm = int(np.isin(trace.kind, (COLLECTIVE, SEND, RECV)).sum())
    place = _Lanes(timeline, work)
    found = [_collectives(timeline, place), *_messages(timeline, place)]
    g = _merge(found)
    if len(g.like) == 0 or len(g.like) > _MOST_SHARE * comm:
        return timeline
    n, count = len(trace), len(g.like)
    number = n + np.arange(count)
    return Timeline(
        trace=_extended(trace, g),
        matches=Matches(
            _with_members(matches.collectives, g.match[g.kind == COLLECTIVE], number[g.kind == COLLECTIVE]),
            _with_messages(matches.messages, g, number),
            matches.launches,
            matches.unmatched,
        ),
        order=replace(timeline.order, lamport=np.concatenate((timeline.order.lamport, np.zeros(2 * count, dtype=np.int64)))),
        clocks=timeline.clocks,
        start_ns=np.concatenate((timeline.start_ns, g.start_ns)),
        end_ns=np.concatenate((timeline.end_ns, g.end_ns)),
        step_of=np.concatenate((timeline.step_of, timeline.step_of[g.like])),
    )


class _Lanes:
    """Finds, for a lane and a time, the stamps around it and what goes on between them. Each table is made when first needed."""

    def __init__(self, timeline: Timeline, work: LaneWork) -> None:
        self.trace, self._timeline, self._work = timeline.trace, timeline, work

    @cached_property
    def time_ns(self) -> Int64Array:
        """Time of the stamp at each place."""
        return stamp_times(self._timeline)[self.trace.lane_stamps]

    @cached_property
    def next_owner(self) -> Int64Array:
        """What goes on after the stamp at each place: the owner of the next program stamp's edge."""
        owner = self._work.owner[self.trace.lane_stamps]
        program = self._work.is_program[self.trace.lane_stamps]
        following = np.where(program, np.arange(len(owner)), len(owner))
        following = np.minimum.accumulate(following[::-1])[::-1]
        next_owner: Int64Array = np.append(owner, -1)[np.append(following[1:], len(owner))]
        return next_owner

    @cached_property
    def work_end(self) -> Int64Array:
        """Place of the last end of a piece of work at or before each place, -1."""
        stamps = self.trace.lane_stamps
        ends_work = (stamps % 2 == 1) & ~np.isin(self.trace.kind[stamps // 2], (COLLECTIVE, SEND, RECV, STEP))
        place: Int64Array = np.maximum.accumulate(np.where(ends_work, np.arange(len(stamps)), -1))
        return place

    def before(self, lane: Int64Array, at_ns: Int64Array) -> Int64Array:
        """Place in lane_stamps of the last stamp of the lane at or before a time; -1 where there is none."""
        out = np.full(len(lane), -1, dtype=np.int64)
        for one in np.unique(lane).tolist():
            low, high = self.trace.lane_stamp_ptr[one], self.trace.lane_stamp_ptr[one + 1]
            mine = lane == one
            found = np.searchsorted(self.time_ns[low:high], at_ns[mine], side="right") - 1
            out[mine] = np.where((found >= 0) & (found < high - low - 1), low + found, -1)
        return out

    def work_ended(self, lane: Int64Array, at_ns: Int64Array) -> Int64Array:
        """As `before`, but of the last end of a piece of work."""
        place = self.before(lane, at_ns)
        ended = np.where(place >= 0, self.work_end[np.maximum(place, 0)], -1)
        return np.where(ended >= self.trace.lane_stamp_ptr[lane], ended, -1)

    def works(self, place: Int64Array, *, idle_only: bool) -> BoolArray:
        """Whether no communication is under way after the stamp at each place; `idle_only`: and nothing computes either."""
        owner = self.next_owner[place]
        kind = self.trace.kind[np.maximum(owner, 0)]
        idle = (owner < 0) | (kind == STEP)
        fits: BoolArray = idle if idle_only else idle | ~np.isin(kind, (COLLECTIVE, SEND, RECV))
        return fits


def _collectives(timeline: Timeline, lanes: _Lanes) -> _StandIns:
    trace, coll = timeline.trace, timeline.matches.collectives
    instance, rank = _missing_members(trace, coll)
    lane = _lane_of(trace.group[coll.member], trace.rank[coll.member], trace.lane[coll.member], coll.group[instance], rank)
    known = lane >= 0
    instance, lane = instance[known], lane[known]
    if len(instance) == 0:
        return _empty()
    arrived, opened, left = _arrivals(timeline, instance)
    after = lanes.before(lane, opened)
    ok = after >= 0
    ok &= lanes.works(np.maximum(after, 0), idle_only=False)
    low, high = lanes.time_ns[after], lanes.time_ns[np.minimum(after + 1, len(lanes.time_ns) - 1)]
    begin = np.maximum(arrived, low + 1)
    end = np.minimum(np.maximum(left, opened + 1), high - 1)
    ok &= (begin <= opened) & (end > opened) & (begin < end)
    like = coll.member[coll.ptr[:-1][instance]]
    kind = np.full(len(like), COLLECTIVE, dtype=np.int64)
    return _StandIns(like, lane, begin, end, after, instance, kind).take(ok)


def _arrivals(timeline: Timeline, instance: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """When a missing member arrived, when the last one did, when the first one left; per (instance, member) asked for."""
    coll, trace = timeline.matches.collectives, timeline.trace
    first, count = coll.ptr[:-1], np.diff(coll.ptr)
    start = timeline.start_ns[coll.member]
    opened = np.maximum.reduceat(start, first)
    left = np.minimum.reduceat(timeline.end_ns[coll.member], first)
    ranked = start[np.lexsort((start, coll.instance))]
    median = ranked[first + (count - 1) // 2]
    whole = np.flatnonzero(coll.complete & coll.synchronising)
    size = trace.size_bytes[coll.member[first]]
    alike = np.unique(np.stack((coll.group, size), axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    order = whole[np.lexsort(((left - opened)[whole], alike[whole]))]
    low, high = np.searchsorted(alike[order], alike), np.searchsorted(alike[order], alike, side="right")
    transfer = (
        (left - opened)[order][np.minimum((low + np.maximum(high - 1, low)) // 2, max(len(order) - 1, 0))]
        if len(order)
        else left - opened
    )
    late = (high > low) & (left - opened > 2 * transfer + _LATE_NS)
    arrived, opened = np.where(late, left - transfer, np.minimum(median, opened - 1)), np.where(late, left - transfer, opened)
    return arrived[instance], opened[instance], left[instance]


def _missing_members(trace: JobTrace, coll: CollectiveMatches) -> tuple[Int64Array, Int64Array]:
    """(instance, rank) of members that were expected in a finished synchronising collective and not seen."""
    count = np.diff(coll.ptr)
    wanted = (coll.synchronising | ((count == 1) & _synchronises(trace, coll))) & (count < coll.expected)
    wanted &= count * 2 >= coll.expected
    if len(coll):
        wanted &= ~np.logical_or.reduceat(trace.is_open[coll.member], coll.ptr[:-1])
    chosen = np.flatnonzero(wanted)
    parts: list[tuple[Int64Array, Int64Array]] = []
    for group in np.unique(coll.group[chosen]).tolist():
        members = np.array(trace.group_ranks[group], dtype=np.int64)
        mine = chosen[coll.group[chosen] == group]
        parts.append((np.repeat(mine, len(members)), np.tile(members, len(mine))))
    if not parts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    instance, rank = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    width = int(max(rank.max(initial=0), trace.rank.max(initial=0))) + 1
    absent = ~np.isin(instance * width + rank, coll.instance * width + trace.rank[coll.member])
    return instance[absent], rank[absent]


def _synchronises(trace: JobTrace, coll: CollectiveMatches) -> BoolArray:
    """[k] operations that bind all members to each other, were there more than one."""
    words = np.array([*(canonical_op(op) in SYNCHRONISING_OPS for op in trace.ops), False])
    by_op: BoolArray = words[coll.op]
    return by_op


def _messages(timeline: Timeline, lanes: _Lanes) -> tuple[_StandIns, _StandIns]:
    messages = timeline.matches.messages
    if len(messages) == 0:
        return _empty(), _empty()
    sent, posted = timeline.start_ns[messages.send], timeline.start_ns[messages.recv]
    waited = sent > posted
    if not waited.any():
        return _empty(), _empty()
    usual = int(np.median((timeline.end_ns[messages.recv] - sent)[waited]))
    return _sends(timeline, lanes, usual), _receives(timeline, lanes, usual)


def _unpaired(trace: JobTrace, kind: int, paired: Int64Array) -> Int64Array:
    alone = (trace.kind == kind) & ~trace.is_open & ~trace.is_async & (trace.peer >= 0)
    alone[paired] = False
    return np.flatnonzero(alone)


def _sends(timeline: Timeline, lanes: _Lanes, usual_ns: int) -> _StandIns:
    trace, messages = timeline.trace, timeline.matches.messages
    recv = _unpaired(trace, RECV, messages.recv)
    recv = recv[timeline.end_ns[recv] - timeline.start_ns[recv] > 2 * usual_ns]
    lane = _lane_of(
        trace.peer[messages.send], trace.rank[messages.send], trace.lane[messages.send], trace.rank[recv], trace.peer[recv]
    )
    recv, lane = recv[lane >= 0], lane[lane >= 0]
    if len(recv) == 0:
        return _empty()
    left = timeline.end_ns[recv] - usual_ns
    after = lanes.work_ended(lane, left + usual_ns // 2)
    ok = (after >= 0) & lanes.works(np.maximum(after, 0), idle_only=True)
    low, high = lanes.time_ns[after], lanes.time_ns[np.minimum(after + 1, len(lanes.time_ns) - 1)]
    ok &= (high - low > 3) & (low > left - usual_ns) & (low + 1 > timeline.start_ns[recv]) & (low + 1 < timeline.end_ns[recv])
    like = np.full(len(recv), messages.send[0])
    kind = np.full(len(recv), SEND, dtype=np.int64)
    return _StandIns(like, lane, low + 1, low + 2, after, recv, kind).take(ok)


def _receives(timeline: Timeline, lanes: _Lanes, usual_ns: int) -> _StandIns:
    trace, messages = timeline.trace, timeline.matches.messages
    send = _unpaired(trace, SEND, messages.send)
    lane = _lane_of(
        trace.peer[messages.recv], trace.rank[messages.recv], trace.lane[messages.recv], trace.rank[send], trace.peer[send]
    )
    send, lane = send[lane >= 0], lane[lane >= 0]
    if len(send) == 0:
        return _empty()
    arrives = timeline.start_ns[send] + usual_ns
    after = lanes.before(lane, timeline.start_ns[send])
    ok = (after >= 0) & lanes.works(np.maximum(after, 0), idle_only=True)
    low, high = lanes.time_ns[after], lanes.time_ns[np.minimum(after + 1, len(lanes.time_ns) - 1)]
    begin, end = low + 1, np.minimum(arrives, high - 1)
    ok &= (begin < timeline.start_ns[send]) & (end > timeline.start_ns[send])
    like = np.full(len(send), messages.recv[0])
    kind = np.full(len(send), RECV, dtype=np.int64)
    return _StandIns(like, lane, begin, end, after, send, kind).take(ok)


def _lane_of(
    known_a: np.ndarray, known_b: np.ndarray, known_lane: np.ndarray, wanted_a: np.ndarray, wanted_b: np.ndarray
) -> Int64Array:
    """Lane on which the pair (a, b) is usually found, -1 for pairs never seen."""
    if len(wanted_a) == 0 or len(known_a) == 0:
        return np.full(len(wanted_a), -1, dtype=np.int64)
    width = int(max(known_b.max(), wanted_b.max())) + 1
    keys, first = np.unique(known_a.astype(np.int64) * width + known_b, return_index=True)
    key = wanted_a.astype(np.int64) * width + wanted_b
    place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    return np.where(keys[place] == key, known_lane[first[place]].astype(np.int64), -1)


def _empty() -> _StandIns:
    none = np.empty(0, dtype=np.int64)
    return _StandIns(none, none, none, none, none, none, none)


def _merge(parts: list[_StandIns]) -> _StandIns:
    """All stand-ins by (place, start); of several in one gap between two stamps, those that do not overlap the one before."""
    g = _StandIns(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(_StandIns)))
    g = g.take(np.lexsort((g.start_ns, g.after)))
    overlaps = np.zeros(len(g.like), dtype=np.bool_)
    overlaps[1:] = (np.diff(g.after) == 0) & (g.start_ns[1:] <= g.end_ns[:-1])
    return g.take(~overlaps)


def _extended(trace: JobTrace, g: _StandIns) -> JobTrace:
    n = len(trace)
    changed: dict[str, Any] = {}
    for f in fields(trace):
        value = getattr(trace, f.name)
        if isinstance(value, np.ndarray) and f.name not in _NOT_PER_SPAN:
            changed[f.name] = np.concatenate((value, value[g.like]))
    for name, value in (("rank", trace.lane_rank[g.lane]), ("lane", g.lane), ("start_ns", g.start_ns), ("end_ns", g.end_ns)):
        changed[name][n:] = value
    domain_of_lane = np.zeros(len(trace.lanes), dtype=np.int32)
    domain_of_lane[trace.lane] = trace.domain
    changed["domain"][n:] = domain_of_lane[g.lane]
    changed["is_open"][n:] = False
    stamps = np.stack((2 * (n + np.arange(len(g.like))), 2 * (n + np.arange(len(g.like))) + 1), axis=1).reshape(-1)
    changed["lane_stamps"] = np.insert(trace.lane_stamps, np.repeat(g.after + 1, 2), stamps)
    added = np.bincount(g.lane, minlength=len(trace.lanes)) * 2
    changed["lane_stamp_ptr"] = trace.lane_stamp_ptr + np.concatenate(([0], np.cumsum(added)))
    return replace(trace, **changed)


def _with_members(coll: CollectiveMatches, instance: Int64Array, number: Int64Array) -> CollectiveMatches:
    every = np.concatenate((coll.instance, instance))
    order = np.argsort(every, kind="stable")
    ptr = coll.ptr + np.concatenate(([0], np.cumsum(np.bincount(instance, minlength=len(coll)))))
    binds = coll.synchronising.copy()
    binds[instance] = True
    return replace(coll, member=np.concatenate((coll.member, number))[order], ptr=ptr.astype(np.int64), synchronising=binds)


def _with_messages(messages: MessageMatches, g: _StandIns, number: Int64Array) -> MessageMatches:
    sends, recvs = g.kind == SEND, g.kind == RECV
    return MessageMatches(
        send=np.concatenate((messages.send, number[sends], g.match[recvs])),
        recv=np.concatenate((messages.recv, g.match[sends], number[recvs])),
    )
