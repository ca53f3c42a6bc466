"""Whether a new fit moved aligned times that were already told.

More events make a better fit, so the past may move a little with every derivation. Where it moves by more than TOLERANCE_NS anywhere
a reader who kept aligned times should read them again: the version of the alignment grows.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.clockmap import ClockMap

TOLERANCE_NS = 1_000


def moved(earlier: ClockMap, earlier_names: tuple[str, ...], later: ClockMap, later_names: tuple[str, ...]) -> bool:
    """Whether stamps at any earlier knot of any clock, known by name, are now mapped elsewhere; ClockMaps of one job."""
    place = {name: d for d, name in enumerate(later_names)}
    for d, name in enumerate(earlier_names):
        if name not in place:
            return True
        at = np.concatenate([epoch.knot_ns for epoch in earlier.epochs[d]])
        # Knots lie just beyond the stamps; only between the first and the last was anything told.
        at = np.clip(at, at[min(1, len(at) - 1)], at[max(len(at) - 2, 0)])
        before = earlier.to_reference(np.full(len(at), d, np.int32), at)
        now = later.to_reference(np.full(len(at), place[name], np.int32), at)
        if (np.abs(now - before) > TOLERANCE_NS).any():
            return True
    return False
