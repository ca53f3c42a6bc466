"""In which work each rank waits: members of one collective call it from one place of the program.

A rank that left a call out meets the next one of the group instead, from further on in its program: the others are in `forward`, it
is in `backward`. The operations look the same, the work around them does not. Only work that is reported while it runs tells this.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossrank.model.kinds import COLLECTIVE, MARK, METRIC, RECV, SEND, STEP
from crossrank.model.trace import JobTrace
from crossrank.model.verdicts import Pending


class WaitingPlaces:
    """The innermost open work of each rank."""

    def __init__(self, trace: JobTrace) -> None:
        work = np.flatnonzero(trace.is_open & ~np.isin(trace.kind, (COLLECTIVE, SEND, RECV, STEP, MARK, METRIC)))
        work = work[np.argsort(trace.start_ns[work], kind="stable")]  # stamps of one rank; the last to begin is innermost
        self._in = {r: trace.names[n] for r, n in zip(trace.rank[work].tolist(), trace.name[work].tolist(), strict=True)}

    def strays(self, p: Pending) -> tuple[int, ...]:
        """Who of those in a collective is in other work than most of them; all who say, where no work has most of them."""
        told = {r: self._in[r] for r in p.waiting if r in self._in} if p.kind == COLLECTIVE else {}
        votes = Counter(told.values()).most_common(2)
        if len(votes) < 2:
            return ()
        tied = votes[0][1] == votes[1][1]
        return tuple(sorted(r for r, work in told.items() if tied or work != votes[0][0]))
