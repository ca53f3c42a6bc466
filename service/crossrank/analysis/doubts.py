"""What limits the answers themselves: clocks that cannot be compared, ranks nobody has seen, operations that do not agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.model.kinds import canonical_op
from crossrank.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    """components: sets of clock domains that nothing connects. bound_ns: worst bound between two clocks of one component."""

    components: tuple[tuple[str, ...], ...]
    bound_ns: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members of one collective that disagree, told by the first such collective; `count` is how many there are."""

    group: str
    seq: int
    step: int
    majority: str
    odd: dict[int, str]  # rank -> what it called
    count: int


def clock_doubt(timeline: Timeline) -> ClockDoubt:
    """How the clock domains hang together."""
    clocks, names = timeline.clocks, timeline.trace.domains
    labels = np.unique(clocks.component).tolist()
    components = tuple(tuple(names[d] for d in np.flatnonzero(clocks.component == c).tolist()) for c in labels)
    bounds = clocks.pair_bound_ns[clocks.pair_bound_ns < UNALIGNED_NS]
    return ClockDoubt(components, int(bounds.max()) if bounds.size else 0)


def first_mismatch(timeline: Timeline) -> Mismatch | None:
    """The earliest collective whose members call different operations or sizes; None when all agree."""
    trace, coll = timeline.trace, timeline.matches.collectives
    count = timeline.matches.unmatched.get("mismatched", 0)
    if not count or len(coll) == 0:
        return None
    first, last = coll.ptr[:-1], np.diff(coll.ptr) - 1
    size, op = trace.size_bytes[coll.member], trace.op[coll.member]
    differs = np.minimum.reduceat(size, first) != np.maximum.reduceat(size, first)
    differs |= np.minimum.reduceat(op, first) != np.maximum.reduceat(op, first)
    candidates = np.flatnonzero(differs & ~coll.synchronising & (last > 0))
    for k in candidates[np.argsort(timeline.start_ns[coll.member[first[candidates]]], kind="stable")].tolist():
        members = coll.member[coll.ptr[k] : coll.ptr[k + 1]]
        calls = {int(trace.rank[m]): _call(timeline, int(m)) for m in members}
        majority, _ = max(Counter(calls.values()).items(), key=lambda item: (item[1], item[0]))
        odd = {r: call for r, call in calls.items() if call != majority}
        if odd:
            return Mismatch(
                trace.groups[coll.group[k]], int(coll.seq[k]), int(timeline.step_of[members].max()), majority, odd, count
            )
    return None


def _call(timeline: Timeline, span: int) -> str:
    trace = timeline.trace
    op = canonical_op(trace.ops[trace.op[span]]) if trace.op[span] >= 0 else "collective"
    return f"{op} of {trace.size_bytes[span]} bytes"
