"""The causal index of the timeline that was asked about last: building it reads the whole job, a question takes microseconds.

One is kept, whatever is asked; it takes some 60 bytes a span.
"""

from __future__ import annotations

from threading import Lock

from crossrank.model.timeline import Timeline
from crossrank.reconstruct.causality import CausalIndex, causal_index

_lock = Lock()
_last: list[tuple[Timeline, CausalIndex]] = []


def causal_index_of(timeline: Timeline) -> CausalIndex:
    """The index of a timeline, built unless the last question was about it too."""
    with _lock:  # who asks meanwhile waits for it rather than building another
        if _last and _last[0][0] is timeline:
            return _last[0][1]
        index = causal_index(timeline.trace, timeline.matches, timeline.order)
        _last[:] = [(timeline, index)]
        return index
