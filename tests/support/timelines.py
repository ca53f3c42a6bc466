"""Timelines of hand-written traces whose clocks are right: aligned times are the raw ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from crossrank.model.clockmap import ClockMap, PairBounds, identity_map
from crossrank.model.timeline import Timeline
from crossrank.model.trace import JobTrace
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.reconstruct.steps import assign_steps
from tests.support.events import trace_of


def right_clocks(trace: JobTrace, bound_ns: int = 0) -> ClockMap:
    """All clocks agree; any two domains are known to each other within `bound_ns`."""
    domains = len(trace.domains)
    pair = np.full((domains, domains), bound_ns, dtype=np.int64)
    np.fill_diagonal(pair, 0)
    return dataclasses.replace(
        identity_map(domains), component=np.zeros(domains, dtype=np.int32), pairs=PairBounds(np.diagonal(pair).copy(), pair)
    )


def timeline_from(trace: JobTrace, *, bound_ns: int = 0) -> Timeline:
    """The timeline of a trace whose clocks are right."""
    matches = match(trace)
    order = replay(trace, matches)
    return Timeline(trace, matches, order, right_clocks(trace, bound_ns), trace.start_ns, trace.end_ns, assign_steps(trace))


def timeline_of(*rows: dict[str, Any], bound_ns: int = 0) -> Timeline:
    """The timeline of hand-written rows (see tests.support.events)."""
    return timeline_from(trace_of(*rows), bound_ns=bound_ns)
