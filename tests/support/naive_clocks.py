"""The numeric parts of alignment done slowly and obviously: the judges of the fast ones."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np

from crossrank.align.prior import Prior
from crossrank.align.rows import Rows
from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from crossrank.model.matches import Matches


def dense_solution(phi: Float64Array, groups: tuple[Rows, ...], before: Prior, component: Int32Array) -> Float64Array:
    """The weighted least squares solution within the gauge, by writing every equation down."""
    clocks, knots = phi.shape
    equations, right = [], []

    def equation(terms: dict[tuple[int, int], float], value: float, weight: float) -> None:
        row = np.zeros(phi.size)
        for (v, k), c in terms.items():
            row[v * knots + k] += c
        equations.append(np.sqrt(weight) * row)
        right.append(np.sqrt(weight) * value)

    for rows in groups:
        for k in range(len(rows.ptr) - 1):
            inside = range(rows.ptr[k], rows.ptr[k + 1])
            total = sum(rows.w[r] for r in inside)
            mean = sum(rows.w[r] * rows.y[r] for r in inside) / total
            for r in inside:
                terms: dict[tuple[int, int], float] = {}
                for q in inside:
                    share = float(q == r) - rows.w[q] / total
                    places = [((rows.v[q], rows.j[q]), 1 - rows.u[q]), ((rows.v[q], rows.j[q] + 1), rows.u[q])]
                    if rows.e[q] != rows.v[q]:
                        places.append(((rows.e[q], 0), 1.0))
                    for place, c in places:
                        terms[place] = terms.get(place, 0.0) + share * c
                equation(terms, mean - rows.y[r], rows.w[r])
    for v in range(before.curves):
        for j in range(knots - 2):
            equation({(v, j): 1.0, (v, j + 1): -2.0, (v, j + 2): 1.0}, 0.0, before.bend[v, j])
        for j in range(knots - 1):
            equation({(v, j): -1.0, (v, j + 1): 1.0}, 0.0, before.slope)
    # The common straight line of each component stays where it was: a constant and a slope over its clocks and active knots.
    active = {(v, j + i) for rows in groups for v, j in zip(rows.v.tolist(), rows.j.tolist(), strict=True) for i in (0, 1)}
    for c, power in product(range(int(component.max()) + 1), (0, 1)):
        terms = {(v, j): float(j) ** power for v, j in active if component[v] == c}
        equation(terms, sum(x * phi[place] for place, x in terms.items()), 1e10)
    for v in range(clocks):
        for j in range(knots if v >= before.curves else 0):
            equation({(v, j): 1.0}, float(phi[v, j]), 1e-12)
    return np.linalg.lstsq(np.array(equations), np.array(right), rcond=None)[0].reshape(phi.shape)


def distances(c: Float64Array) -> Float64Array:
    """All-pairs shortest paths by Bellman and Ford from every node; raises where a cycle is negative."""
    n = len(c)
    out = np.full((n, n), np.inf)
    for source in range(n):
        out[source, source] = 0.0
        for round_ in range(n + 1):
            nearer = np.minimum(out[source], (out[source][:, None] + c).min(axis=0))
            if round_ == n and (nearer < out[source]).any():
                raise ValueError(f"negative cycle through {source}")
            out[source] = nearer
    return out


def violations(matches: Matches, start_ns: Int64Array, end_ns: Int64Array, is_open: BoolArray) -> int:
    """Ends before a start that they must follow, by looking at every pair."""
    late = set()
    c = matches.collectives
    for k in range(len(c)):
        members = c.member[c.ptr[k] : c.ptr[k + 1]].tolist()
        root = int(c.root[k])
        for before, after in product(members, members):
            binds = (before == root and after != root) if c.root_sends[k] else after == root
            if (c.synchronising[k] or (root >= 0 and binds)) and not is_open[after] and end_ns[after] < start_ns[before]:
                late.add(("c", k, after))
    for send, recv in zip(matches.messages.send.tolist(), matches.messages.recv.tolist(), strict=True):
        if not is_open[recv] and end_ns[recv] < start_ns[send]:
            late.add(("m", send, recv))
    return len(late)


def worst_chain_violation(graph: nx.DiGraph, stamp_ns: dict[int, int]) -> int:
    """The largest t(u) - t(w) over all u that happened before w; 0 where all is well."""
    latest: dict[int, int] = {}
    worst = 0
    for stamp in nx.topological_sort(graph):
        before = max((latest[p] for p in graph.predecessors(stamp)), default=stamp_ns[stamp])
        worst = max(worst, before - stamp_ns[stamp])
        latest[stamp] = max(before, stamp_ns[stamp])
    return worst
