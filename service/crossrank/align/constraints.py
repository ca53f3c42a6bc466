"""What the recorded operations say about clocks: the facts every other module of this room works from.

Two facts of physics hold whatever the clocks showed (times on one true clock):

    synchronising collective:  end of every member    >=  start of every member
    message, rooted operation: end of the later side  >=  start of the earlier side

and one of habit: members of a synchronising collective end nearly together, late by a positive noise. The first two bound
offsets for certain, the third estimates them. Only facts between different clock domains say anything about offsets, so facts
inside one domain are left out here. So are spans without an end, asynchronous launches (their end is the end of the launch,
not of the operation) and collectives whose members disagree about what was done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.matches import CollectiveMatches, Matches
from crossrank.model.trace import JobTrace


@dataclass(frozen=True, slots=True)
class Constraints:
    """Facts between clock domains.

    ptr, span: synchronising collectives in compressed form: instance k has the spans `span[ptr[k]:ptr[k+1]]`, of two domains or more.
    family: [k] ascending number of the kind of each instance: process group, operation, size to a power of two. What is alike in
        these is alike in how, and how evenly, its members end.
    before, after: [p] span pairs: `after[i]` may not end before `before[i]` starts.
    """

    ptr: Int64Array
    span: Int64Array
    family: Int32Array
    before: Int64Array
    after: Int64Array

    @property
    def instance(self) -> Int64Array:
        """[m] instance of each member of a collective."""
        return np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int64), np.diff(self.ptr))


def extract(trace: JobTrace, matches: Matches) -> Constraints:
    """All facts between clock domains that the matched operations of a trace hold."""
    ended = ~(trace.is_open | trace.is_async)
    ptr, span, family = _synchronising(trace, matches.collectives, ended)
    rooted = _rooted(matches.collectives)
    before = np.concatenate((matches.messages.send, rooted[0])).astype(np.int64)
    after = np.concatenate((matches.messages.recv, rooted[1])).astype(np.int64)
    # A launch may bind what follows it (it did start), but its end says nothing.
    kept = ended[after] & (trace.domain[before] != trace.domain[after])
    return Constraints(ptr, span, family, before[kept], after[kept])


def _synchronising(trace: JobTrace, collectives: CollectiveMatches, ended: BoolArray) -> tuple[Int64Array, Int64Array, Int32Array]:
    """Members of synchronising instances that can be used, of those instances that join two domains."""
    instance = collectives.instance
    usable = ended[collectives.member] & collectives.synchronising[instance]
    instance, span = instance[usable], collectives.member[usable].astype(np.int64)
    if len(span) == 0:
        return np.zeros(1, np.int64), span, np.empty(0, np.int32)
    domain = trace.domain[span]
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    length = np.diff(first, append=len(span))
    joins = np.minimum.reduceat(domain, first) != np.maximum.reduceat(domain, first)
    first, length = first[joins], length[joins]
    family = _families(trace, collectives, instance[first])
    order = np.argsort(family, kind="stable")
    first, length = first[order], length[order]
    ptr = np.concatenate(([0], np.cumsum(length))).astype(np.int64)
    return ptr, span[np.arange(ptr[-1]) + np.repeat(first - ptr[:-1], length)], family[order]


def _families(trace: JobTrace, collectives: CollectiveMatches, instance: Int64Array) -> Int32Array:
    size = trace.size_bytes[collectives.member[collectives.ptr[instance]]]
    power = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    key = np.stack((collectives.group[instance].astype(np.int64), collectives.op[instance].astype(np.int64), power))
    return np.unique(key, axis=1, return_inverse=True)[1].ravel().astype(np.int32)


def _rooted(collectives: CollectiveMatches) -> tuple[Int64Array, Int64Array]:
    """(before, after) pairs of rooted operations: the root binds all others, or all others bind the root."""
    instance = collectives.instance
    root = collectives.root[instance].astype(np.int64)
    other = (root >= 0) & (root != collectives.member) & ~collectives.synchronising[instance]
    root, member, sends = root[other], collectives.member[other], collectives.root_sends[instance[other]]
    return np.where(sends, root, member), np.where(sends, member, root)
