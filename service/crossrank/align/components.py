"""Which clocks can be compared at all, and roughly how far apart they are.

Domains are nodes; a collective between two domains, or messages in both directions, joins them. Inside a connected component all
offsets are identifiable, between components none is, so none is invented. Messages in one direction only bound an offset from
one side: they join nothing.

The coarse offset of a pair is the median difference of their collective ends, or for messages half the difference of the two
directions' low quantiles (whatever delay both directions share cancels). One offset per domain follows along the spanning tree
of the best-determined pairs. It is good to about the drift over the run, enough to give all stamps of a component one time axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from crossrank.align.constraints import Constraints
from crossrank.model.arrays import Float64Array, Int32Array, Int64Array
from crossrank.model.trace import JobTrace

MESSAGE_QUANTILE = 0.05  # a low quantile is near the undisturbed delay, yet not at the mercy of one bad stamp
SHARPEST_NS = 1000.0


@dataclass(frozen=True, slots=True)
class Components:
    """Connected clock domains (D of them) and a common axis for each component.

    component: [D]; numbered by their lowest domain.
    reference: [components] the domain with most rows, the lowest of equals.
    base_ns: [D] local time that stands for zero on the component's axis: axis time = local - base_ns, for all of the component
        nearly the same true instant.
    rows: [D] number of facts that speak about the domain; 0 for the service's clock, which has no spans and is no reference.
    """

    component: Int32Array
    reference: Int32Array
    base_ns: Int64Array
    rows: Int64Array


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of domains a < b: how far b's clock is ahead of a's and how uncertain that is."""

    a: Int64Array
    b: Int64Array
    ahead_ns: Int64Array
    error_ns: Float64Array


def connect(trace: JobTrace, facts: Constraints) -> Components:
    """Components, references and coarse offsets of all domains of a trace."""
    domains = len(trace.domains)
    pairs = _join(_collective_pairs(trace, facts), _message_pairs(trace, facts))
    graph = coo_array((np.ones(len(pairs.a)), (pairs.a, pairs.b)), shape=(domains, domains))
    component = _numbered_by_lowest(connected_components(graph, directed=False)[1])
    rows = np.bincount(trace.domain[facts.span], minlength=domains)
    rows += np.bincount(facts.before_domain, minlength=domains) + np.bincount(facts.after_domain, minlength=domains)
    if len(trace.samples):
        rows[trace.samples.service] *= bool((trace.domain == trace.samples.service).any())
    count = int(component.max(initial=-1)) + 1
    best_first = np.lexsort((np.arange(domains), -rows, component))
    reference = best_first[np.searchsorted(component[best_first], np.arange(count))].astype(np.int32)
    ahead = _along_tree(pairs, domains, reference)
    return Components(component, reference, _bases(trace, component, reference, ahead), rows.astype(np.int64))


def _bases(trace: JobTrace, component: Int32Array, reference: Int32Array, ahead: Int64Array) -> Int64Array:
    """The axis of a component starts near the reference's first stamp."""
    first = np.full(len(component), np.iinfo(np.int64).max, dtype=np.int64)
    runs = np.flatnonzero(np.diff(trace.domain, prepend=-1))
    if len(runs):
        np.minimum.at(first, trace.domain[runs], np.minimum.reduceat(trace.start_ns, runs))
    first[first == np.iinfo(np.int64).max] = 0
    return first[reference[component]] + ahead


def _collective_pairs(trace: JobTrace, facts: Constraints) -> _Pairs:
    """All members against one of their instance: a star joins what a clique would.

    The hub is the earliest end of the lowest domain, so that it does not depend on how ranks are numbered.
    """
    domain, end = trace.domain[facts.span].astype(np.int64), trace.end_ns[facts.span]
    by_instance = np.lexsort((end, domain, facts.instance))
    hub = np.repeat(by_instance[facts.ptr[:-1]], np.diff(facts.ptr))
    return _pairwise(domain[hub], domain, end - end[hub], len(trace.domains), quantile=0.5)


def _message_pairs(trace: JobTrace, facts: Constraints) -> _Pairs:
    """Half the difference of the two directions; pairs with one direction only are left out."""
    domains = len(trace.domains)
    a, b = facts.before_domain.astype(np.int64), facts.after_domain.astype(np.int64)
    delay = facts.after_ns - facts.before_ns
    up, down = a < b, a > b
    forth = _pairwise(a[up], b[up], delay[up], domains, MESSAGE_QUANTILE)
    back = _pairwise(b[down], a[down], delay[down], domains, MESSAGE_QUANTILE)
    _, i, j = np.intersect1d(forth.a * domains + forth.b, back.a * domains + back.b, assume_unique=True, return_indices=True)
    ahead = (forth.ahead_ns[i] - back.ahead_ns[j]) // 2
    return _Pairs(forth.a[i], forth.b[i], ahead, np.maximum(forth.error_ns[i], back.error_ns[j]))


def _pairwise(a: Int64Array, b: Int64Array, ahead: Int64Array, domains: int, quantile: float) -> _Pairs:
    """A quantile of `ahead` per unordered pair a != b; its error from the distance between low quantile and median."""
    cross = a != b
    a, b, ahead = a[cross], b[cross], ahead[cross]
    key = np.minimum(a, b) * domains + np.maximum(a, b)
    ahead = np.where(a < b, ahead, -ahead)
    order = np.lexsort((ahead, key))
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    count = np.diff(first, append=len(key))
    chosen = order[first + (count * quantile).astype(np.int64)]
    low, middle = order[first + (count * MESSAGE_QUANTILE).astype(np.int64)], order[first + count // 2]
    error = (ahead[middle] - ahead[low] + SHARPEST_NS) / np.sqrt(count)
    return _Pairs(key[chosen] // domains, key[chosen] % domains, ahead[chosen], error)


def _join(collective: _Pairs, message: _Pairs) -> _Pairs:
    """One entry a pair: the sharper of the two."""
    a, b = np.concatenate((collective.a, message.a)), np.concatenate((collective.b, message.b))
    ahead = np.concatenate((collective.ahead_ns, message.ahead_ns))
    error = np.concatenate((collective.error_ns, message.error_ns))
    order = np.lexsort((error, b, a))
    a, b = a[order], b[order]
    new = np.ones(len(order), bool)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return _Pairs(a[new], b[new], ahead[order[new]], error[order[new]])


def _numbered_by_lowest(label: Int32Array) -> Int32Array:
    """Components renumbered in the order of their lowest domain."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int32)
    place[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return place[inverse]


def _along_tree(pairs: _Pairs, domains: int, reference: Int32Array) -> Int64Array:
    """[D] how far each clock is ahead of its component's reference, along the tree of the best-determined pairs."""
    tree = minimum_spanning_tree(coo_array((pairs.error_ns, (pairs.a, pairs.b)), shape=(domains, domains)).tocsr())
    step = {(a, b): ahead for a, b, ahead in zip(pairs.a.tolist(), pairs.b.tolist(), pairs.ahead_ns.tolist(), strict=True)}
    ahead = np.zeros(domains, np.int64)
    for root in reference.tolist():
        order, parent = breadth_first_order(tree, root, directed=False)
        for child in order[1:].tolist():
            a = int(parent[child])
            ahead[child] = ahead[a] + (step[a, child] if a < child else -step[child, a])
    return ahead
