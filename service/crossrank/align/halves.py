"""The statistical error of a fit, by fitting two halves of the facts.

Two fits on disjoint halves differ by independent errors of sqrt(2) sigma each, the full fit has sigma, so half their difference
is a draw of the full fit's error. Its root mean square over the knots is `sigma_ns`. What both halves share, such as an uneven
completion that always favours one host, does not show in it; that is what the bias floor and the guaranteed bound are for.
"""

from __future__ import annotations

import numpy as np

from crossrank.align.components import Components
from crossrank.align.epochs import Epochs
from crossrank.align.problem import Fit, Sightings, solve
from crossrank.align.summary import Activity
from crossrank.model.arrays import Float64Array

ROUNDS = 3  # both start from the full fit


def split_half_sigma(
    seen: Sightings, fit: Fit, epochs: Epochs, used: Activity, components: Components, settled_ns: float | None = None
) -> Float64Array:
    """[D] root mean square error against the reference, over the knots in use; the worst of a domain's epochs."""
    domains, component = len(components.component), components.component
    even, odd = (
        solve(_half(seen, i), fit.knots, fit.phi, epochs, component, rounds=ROUNDS, settled_ns=settled_ns).corrections
        for i in (0, 1)
    )
    half = (even - odd) / 2.0
    half -= half[components.reference[component[epochs.domain]]]
    at = fit.knots.at_ns
    in_use = (at >= used.first_ns[:, None]) & (at <= used.last_ns[:, None])
    mean_square = (half**2 * in_use).sum(axis=1) / np.maximum(in_use.sum(axis=1), 1)
    sigma = np.zeros(domains)
    np.maximum.at(sigma, epochs.domain, np.sqrt(mean_square))
    return sigma


def _half(seen: Sightings, which: int) -> Sightings:
    """Every other instance and every other message."""
    length = np.diff(seen.ptr)
    kept = np.arange(len(length)) % 2 == which
    member = np.repeat(kept, length)
    message = seen.turn % 2 == which
    before = np.concatenate(([0], np.cumsum(member)))  # kept members before each
    return Sightings(
        np.concatenate(([0], np.cumsum(length[kept]))).astype(np.int64),
        np.unique(before[seen.family_ptr]),
        seen.start[member],
        seen.end[member],
        seen.start_clock[member],
        seen.end_clock[member],
        seen.before[message],
        seen.after[message],
        seen.before_clock[message],
        seen.after_clock[message],
        seen.turn[message],
    )
