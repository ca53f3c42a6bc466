"""Entries of a dump belong to the clock of the machine their rank runs on, which the dump does not name.

Without a host an event's clock is called after its rank, `rank:N`. Where the rank's other events all have one clock of a name, that
is the one that stamped the entries too: one process reads one clock. Else the entries would hang on a clock of their own, known only
through their late completions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossrank.model.arrays import BoolArray
from crossrank.model.trace import JobTrace


def at_home(trace: JobTrace, recorded: BoolArray) -> JobTrace:
    """The trace with such spans moved to the clock domain of their rank, and without domains that nothing is left in."""
    domain = trace.domain.copy()
    own = {name: code for code, name in enumerate(trace.domains)}
    for rank in np.unique(trace.rank[recorded]).tolist():
        low, high = trace.rows_of(rank)
        named_after = own.get(f"rank:{rank}")
        others = np.unique(trace.domain[low:high][~recorded[low:high]])
        if named_after is not None and len(others) == 1 and int(others[0]) != named_after:
            moving = recorded[low:high] & (trace.domain[low:high] == named_after)
            domain[low:high][moving] = others[0]
    if np.array_equal(domain, trace.domain):
        return trace
    kept = np.zeros(len(trace.domains), dtype=np.bool_)
    kept[domain] = kept[trace.samples.domain] = True
    if trace.samples.service >= 0:
        kept[trace.samples.service] = True
    new = (np.cumsum(kept) - 1).astype(np.int32)
    samples = replace(
        trace.samples,
        domain=new[trace.samples.domain],
        service=int(new[trace.samples.service]) if trace.samples.service >= 0 else trace.samples.service,
    )
    left = np.flatnonzero(kept).tolist()
    return replace(
        trace,
        domain=new[domain],
        domains=tuple(trace.domains[d] for d in left),
        domain_host=tuple(trace.domain_host[d] for d in left),
        samples=samples,
    )
