"""The replay as its definition says it, one stamp at a time by recursion; for checking the kernel on small jobs."""

from __future__ import annotations

from functools import cache

import numpy as np

from crossrank.analysis.replay import ReplayGraph
from crossrank.model.arrays import Int64Array


def naive_replay_ns(graph: ReplayGraph, removed_ns: Int64Array) -> dict[int, int]:
    """Time of every present stamp when `removed_ns` is taken from the lane work before it (no launches in the middle of work)."""
    opening: dict[int, list[int]] = {}
    for s in graph.order.tolist():
        if graph.opens[s] >= 0:
            opening.setdefault(int(graph.opens[s]), []).append(s)

    @cache
    def at(s: int) -> int:
        candidates = [int(graph.weight_ns[s] - removed_ns[s]) + (at(int(graph.pred[s])) if graph.pred[s] >= 0 else 0)]
        if graph.launch[s] >= 0:
            candidates.append(at(int(graph.launch[s])) + int(graph.launch_weight_ns[s]))
        if graph.gate[s] >= 0:
            candidates.append(max(at(o) for o in opening[int(graph.gate[s])]) + int(graph.transfer_ns[s]))
        return max(candidates)

    for s in graph.order.tolist():  # in order, so that the recursion stays shallow
        at(s)
    return {s: at(s) for s in graph.order.tolist()}


def naive_peers_median(own: np.ndarray) -> np.ndarray:
    """Median over the other rows of the same column."""
    out = np.full(own.shape, np.nan)
    for r in range(own.shape[0]):
        for c in range(own.shape[1]):
            others = np.delete(own[:, c], r)
            others = others[~np.isnan(others)]
            if len(others) >= 2:
                out[r, c] = np.median(others)
    return out
