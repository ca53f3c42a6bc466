"""What limits the answers themselves: clocks that cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    """components: sets of clock domains that nothing connects. bound_ns: worst bound between two clocks of one component."""

    components: tuple[tuple[str, ...], ...]
    bound_ns: int


def clock_doubt(timeline: Timeline) -> ClockDoubt:
    """How the clock domains hang together."""
    clocks, names = timeline.clocks, timeline.trace.domains
    labels = np.unique(clocks.component).tolist()
    components = tuple(tuple(names[d] for d in np.flatnonzero(clocks.component == c).tolist()) for c in labels)
    return ClockDoubt(components, clocks.pairs.widest_known())
