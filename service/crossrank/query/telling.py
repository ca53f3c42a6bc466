"""Which few ranks a profile should be taken of: those under suspicion, and one like them that is well.

1. ranks that a finding names, the most expensive finding first
2. one peer: the same stage of the job, named by none, and the least waited for; a profile means little without one to compare with
3. ranks that came last and made others wait, by how long
"""

from __future__ import annotations

import numpy as np

from crossrank.analysis.rank_waits import rank_waits
from crossrank.query.jobview import JobView


def most_telling(view: JobView, most: int) -> dict[int, str]:
    """At most `most` ranks with the reason for each, in this order. A job in which nobody waits names its lowest rank."""
    derived = view.derived
    topology = derived.topology
    stage = dict(zip(topology.seen, topology.stage, strict=True))
    named: dict[int, str] = {}
    for finding in derived.findings:
        for rank in finding.ranks:
            if rank in stage:
                named.setdefault(rank, f"named by a finding: {finding.class_}")
    waits = rank_waits(derived.timeline, derived.collectives)
    caused = dict(zip(waits.rank.tolist(), waits.caused_ns.tolist(), strict=True))
    chosen = dict(list(named.items())[: max(1, most - 1)])
    if chosen and most > len(chosen):
        first = next(iter(chosen))
        peers = [rank for rank in stage if stage[rank] == stage[first] and rank not in named]
        if peers:
            chosen[min(peers, key=lambda rank: (caused.get(rank, 0), rank))] = f"a healthy peer of rank {first}"
    for rank in waits.rank[np.lexsort((waits.rank, -waits.caused_ns))].tolist():
        if len(chosen) < most and caused[rank] > 0:
            chosen.setdefault(rank, "made others wait")
    return chosen or dict.fromkeys(list(topology.seen)[:1], "nothing stands out")
