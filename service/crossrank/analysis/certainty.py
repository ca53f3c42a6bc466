"""When may one rank be called the last? Only if its lead over every other one is larger than all that could be wrong with it.

    doubt of a comparison = clock bound between the two domains + how far the repair had to move either stamp

Stamps of one clock compare exactly (bound 0) unless the repair moved one: then the clock itself was wrong there, say because it
was stepped between the two stamps.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.timeline import Timeline


def repair_shift_ns(timeline: Timeline, spans: Int64Array, *, ends: bool = False) -> Int64Array:
    """How far the repair moved the starts (or ends) of spans from where the clock fit alone puts them; never negative."""
    trace = timeline.trace
    raw, aligned = (trace.end_ns, timeline.end_ns) if ends else (trace.start_ns, timeline.start_ns)
    shift: Int64Array = np.abs(aligned[spans] - timeline.clocks.to_reference(trace.domain[spans], raw[spans]))
    return shift


def leader_is_certain(
    timeline: Timeline, spans: Int64Array, time_ns: Int64Array, shift_ns: Int64Array, contest: Int64Array, leader: Int64Array
) -> BoolArray:
    """[k] whether the leader of each contest is later than every rival beyond doubt.

    spans, time_ns, shift_ns: [m] the contestants; contest: [m] which of k contests each is in; leader: [k] place of the latest.
    """
    domain = timeline.trace.domain[spans]
    ahead = leader[contest]
    doubt = timeline.clocks.pairs.of(domain, domain[ahead]) + shift_ns + shift_ns[ahead]
    rival = (time_ns[ahead] - time_ns <= doubt) & (np.arange(len(spans)) != ahead)
    certain: BoolArray = np.bincount(contest[rival], minlength=len(leader)) == 0
    return certain
