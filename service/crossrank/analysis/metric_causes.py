"""Which posted metrics foretell which: statistics, not facts. The happened-before order is elsewhere (reconstruct.causality).

Granger (1969): x helps to foretell y when y's own past and x's past together leave less unexplained than y's past alone.

    y[t] = c + sum a_k y[t-k] (+ sum b_k x[t-k]) + e,  k = 1..LAGS
    F = ((rss_own - rss_both) / LAGS) / (rss_both / (t - 2 LAGS - 1)),   weight = sqrt(1 - rss_both / rss_own)

Mutual information of x's past step and y's present (quartiles of both, in nats; 2 t I is chi-squared with 9 degrees of freedom) is
given beside it: it sees what no line fits, and trusts nothing but the order of values. Series that wander (lag-one correlation above
WANDERS) are taken as differences. All pairs are tested, so all are corrected together (Benjamini-Hochberg); an edge needs both
tests. Two metrics that follow a third one nobody posted look like cause and effect: hence "statistical".
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from scipy.special import chdtrc, fdtrc  # upper tails of the chi-square and F distributions; scipy.stats takes a second to load

from crossrank.analysis.runs import adjust
from crossrank.model.arrays import Float64Array

LAGS, LEAST_STEPS, WANDERS = 2, 40, 0.9
MOST_FALSE = 0.01  # false discovery rate of the edges
DECAY, LEAST_INFLUENCE = 0.8, 0.05
_BINS = 4


@dataclass(frozen=True, slots=True)
class Influence:
    """One metric that may stand behind another. path: from it to the symptom. influence: product of weights and of DECAY per hop."""

    name: str
    influence: float
    path: tuple[str, ...]


def cause_graph(names: list[str], values: Float64Array) -> nx.DiGraph[str]:
    """Edges x -> y with weight, p_value (Granger, adjusted) and information (nats). values: [series, steps]."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    if len(names) < 2 or values.shape[1] < LEAST_STEPS:
        return graph
    series = [_settled(v) for v in values]
    shortest = min(len(s) for s in series)
    series = [s[-shortest:] for s in series]
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    tests = [(*_granger(series[i], series[j]), *_information(series[i], series[j])) for i, j in pairs]
    granger, shared = (adjust(np.array([t[k] for t in tests])) for k in (1, 3))
    for (i, j), test, p, q in zip(pairs, tests, granger.tolist(), shared.tolist(), strict=True):
        if p <= MOST_FALSE and q <= MOST_FALSE:
            graph.add_edge(names[i], names[j], weight=test[0], p_value=p, information=test[2])
    return graph


def causes_of(graph: nx.DiGraph[str], symptom: str) -> list[Influence]:
    """What may stand behind a metric, strongest first: the best path of each, while its influence is worth telling."""
    best: dict[str, Influence] = {symptom: Influence(symptom, 1.0, (symptom,))}
    waiting = [symptom]
    while waiting:
        at = best[waiting.pop(0)]
        for before in sorted(graph.predecessors(at.name)):
            influence = at.influence * DECAY * graph.edges[before, at.name]["weight"]
            if influence >= LEAST_INFLUENCE and (before not in best or influence > best[before].influence):
                best[before] = Influence(before, influence, (before, *at.path))
                waiting.append(before)
    del best[symptom]
    return sorted(best.values(), key=lambda i: (-i.influence, i.name))


def _settled(value: Float64Array) -> Float64Array:
    """Standardised; differences where it wanders."""
    centred = value - value.mean()
    power = float((centred**2).sum())
    if power > 0 and float((centred[1:] * centred[:-1]).sum()) / power > WANDERS:
        centred = np.diff(value) - np.diff(value).mean()
    scale = float(centred.std())
    settled: Float64Array = centred / scale if scale > 0 else centred
    return settled


def _granger(x: Float64Array, y: Float64Array) -> tuple[float, float]:
    """(weight, p value) that x foretells y."""
    t = len(y) - LAGS
    past = [v[LAGS - k : len(y) - k] for v in (y, x) for k in range(1, LAGS + 1)]
    both = np.column_stack((np.ones(t), *past))
    own = both[:, : LAGS + 1]
    rss_own, rss_both = (float(((y[LAGS:] - m @ np.linalg.lstsq(m, y[LAGS:], rcond=None)[0]) ** 2).sum()) for m in (own, both))
    free = t - 2 * LAGS - 1
    if rss_own <= 1e-12 * t or free < 1:
        return 0.0, 1.0
    statistic = ((rss_own - rss_both) / LAGS) / max(rss_both / free, 1e-300)
    return float(np.sqrt(max(1 - rss_both / rss_own, 0.0))), float(fdtrc(LAGS, free, statistic))


def _information(x: Float64Array, y: Float64Array) -> tuple[float, float]:
    """(nats, p value) that x shares with y, at the better of the lags; the p value pays for the choice."""
    found = [_shared(x[:-k], y[k:]) for k in range(1, LAGS + 1)]
    nats, p = min(found, key=lambda pair: pair[1])
    return nats, min(p * LAGS, 1.0)


def _shared(x: Float64Array, y: Float64Array) -> tuple[float, float]:
    bins = [np.argsort(np.argsort(v, kind="stable"), kind="stable") * _BINS // len(v) for v in (x, y)]
    joint = np.bincount(bins[0] * _BINS + bins[1], minlength=_BINS**2).reshape(_BINS, _BINS) / len(x)
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    nats = float((joint[seen] * np.log(joint[seen] / apart[seen])).sum())
    return nats, float(chdtrc((_BINS - 1) ** 2, 2 * len(x) * nats))
