"""Operations that have not ended, and the ranks they wait for.

A collective that some members have entered and not left, while others have not come, waits for those others. Among them, a rank
that itself waits in another open communication is a victim; a rank that waits for nobody is what holds the job up. If all of
them wait, they wait for each other, and all are named.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.kinds import COLLECTIVE, RECV, SEND
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology

_LOOKED_AT = 256  # open collectives, the earliest first


@dataclass(frozen=True, slots=True)
class Stall:
    """One open collective: who waits in it, who has not come, and which of those wait for nobody."""

    group: str
    seq: int
    op: str
    step: int
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    culprits: tuple[int, ...]
    waited_ns: int  # from the first arrival to the last thing known of the job


def find_stalls(timeline: Timeline, topology: Topology) -> list[Stall]:
    """Open collectives with absent members, the earliest first."""
    trace, coll = timeline.trace, timeline.matches.collectives
    open_comm = trace.is_open & np.isin(trace.kind, (COLLECTIVE, SEND, RECV))
    if not open_comm.any() or len(coll) == 0:
        return []
    end_ns = int(max(timeline.start_ns.max(), timeline.end_ns.max()))
    stuck = set(trace.rank[open_comm].tolist())
    members_of = {group.name: group.ranks for group in topology.groups}
    stalls: list[Stall] = []
    is_open = np.flatnonzero(np.logical_or.reduceat(trace.is_open[coll.member], coll.ptr[:-1]))
    begun = np.minimum.reduceat(timeline.start_ns[coll.member], coll.ptr[:-1])[is_open]
    for k in is_open[np.argsort(begun, kind="stable")][:_LOOKED_AT].tolist():
        members = coll.member[coll.ptr[k] : coll.ptr[k + 1]]
        name = trace.groups[coll.group[k]]
        everyone = trace.group_ranks[coll.group[k]] or members_of.get(name, ())
        absent = tuple(sorted(set(everyone) - set(trace.rank[members].tolist())))
        if not absent:
            continue
        stalls.append(
            Stall(
                group=name,
                seq=int(coll.seq[k]),
                op=trace.ops[coll.op[k]] if coll.op[k] >= 0 else "collective",
                step=int(timeline.step_of[members].max()),
                waiting=tuple(trace.rank[members[trace.is_open[members]]].tolist()),
                absent=absent,
                culprits=tuple(r for r in absent if r not in stuck) or absent,
                waited_ns=end_ns - int(timeline.start_ns[members].min()),
            )
        )
    return sorted(stalls, key=lambda s: (-s.waited_ns, s.seq, s.group))
