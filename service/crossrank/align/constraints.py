"""What the recorded operations say about clocks: the facts every other module of this room works from.

Two facts of physics hold whatever the clocks showed (times on one true clock):

    synchronising collective:  end of every member    >=  start of every member
    message, rooted operation, link: end of the later side  >=  start of the earlier side

and one of habit: members of a synchronising collective end nearly together, late by a positive noise. The first two bound
offsets for certain, the third estimates them. Only facts between different clock domains say anything about offsets, so facts
inside one domain are left out here. So are spans without an end, asynchronous launches (their end is the end of the launch,
not of the operation) and collectives whose members disagree about what was done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    before_domain, before_ns, after_domain, after_ns: [p] pairs of local stamps of different domains, the first not after the second:
        messages, rooted operations and links to their causes (start of the one, end of the other), parents of spans on other
        clocks (both starts), and clock samples (forth and back).
    turn: [p] what belongs together, as the two messages of a sample, has one number.
    """

    ptr: Int64Array
    span: Int64Array
    family: Int32Array
    before_domain: Int32Array
    before_ns: Int64Array
    after_domain: Int32Array
    after_ns: Int64Array
    turn: Int64Array

    @property
    def instance(self) -> Int64Array:
        """[m] instance of each member of a collective."""
        return np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int64), np.diff(self.ptr))

    def without_samples(self, service: int) -> Constraints:
        """The same without the facts that speak of the service's clock; all of them if there are no others."""
        kept = (self.before_domain != service) & (self.after_domain != service)
        return self if kept.all() or (len(self.span) == 0 and not kept.any()) else self.of_pairs(kept)

    def of_pairs(self, kept: BoolArray) -> Constraints:
        """The same with some of the pairs [p] only."""
        return replace(
            self,
            before_domain=self.before_domain[kept],
            before_ns=self.before_ns[kept],
            after_domain=self.after_domain[kept],
            after_ns=self.after_ns[kept],
            turn=self.turn[kept],
        )


def extract(trace: JobTrace, matches: Matches) -> Constraints:
    """All facts between clock domains that the matched operations of a trace hold."""
    ended = ~(trace.is_open | trace.is_async)
    ptr, span, family = _synchronising(trace, matches.collectives, ended)
    rooted = _rooted(matches.collectives)
    # A link names what had begun when its sender knew of it: no more than a message says, and as little about when it began.
    before = np.concatenate((matches.messages.send, rooted[0], trace.link_cause)).astype(np.int64)
    after = np.concatenate((matches.messages.recv, rooted[1], trace.link_effect)).astype(np.int64)
    # A launch may bind what follows it (it did start), but its end says nothing.
    kept = ended[after] & (trace.domain[before] != trace.domain[after])
    before, after = before[kept], after[kept]
    parent, child = _parents(trace)
    samples = trace.samples
    service = np.full(len(samples), samples.service, dtype=np.int32)
    single = len(before) + len(parent)
    turn = np.arange(single + len(samples), dtype=np.int64)
    return Constraints(
        ptr,
        span,
        family,
        before_domain=np.concatenate((trace.domain[before], trace.domain[parent], samples.domain, service)),
        before_ns=np.concatenate((trace.start_ns[before], trace.start_ns[parent], samples.sent_ns, samples.replied_ns)),
        after_domain=np.concatenate((trace.domain[after], trace.domain[child], service, samples.domain)),
        after_ns=np.concatenate((trace.end_ns[after], trace.start_ns[child], samples.received_ns, samples.got_ns)),
        turn=np.concatenate((turn, turn[single:])),
    )


def _parents(trace: JobTrace) -> tuple[Int64Array, Int64Array]:
    """(parent, child) spans of different clocks; a parent begins before its child. An id that several ranks use names nobody."""
    children = np.flatnonzero(trace.parent_id != 0)
    if len(children) == 0:
        return children, children
    by_id = np.argsort(trace.span_id, kind="stable")
    ids, wanted = trace.span_id[by_id], trace.parent_id[children]
    first, last = np.searchsorted(ids, wanted, side="left"), np.searchsorted(ids, wanted, side="right")
    known = last - first == 1
    parent, child = by_id[first[known]], children[known]
    across = trace.domain[parent] != trace.domain[child]
    return parent[across], child[across]


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
