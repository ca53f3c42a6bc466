"""A trace with every span on the common timeline: the input of every analysis."""

from __future__ import annotations

from dataclasses import dataclass

from crossrank.model.arrays import Int64Array
from crossrank.model.clockmap import ClockMap
from crossrank.model.matches import Matches
from crossrank.model.order import Order
from crossrank.model.trace import JobTrace


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything reconstruction knows about one job attempt.

    start_ns, end_ns: [n] aligned times after the repair (no happened-before violation left); for an open span end_ns is start_ns.
    step_of: [n] optimizer step of each span, given or inferred from the step span that holds it; -1 (NO_STEP) outside all steps.
    """

    trace: JobTrace
    matches: Matches
    order: Order
    clocks: ClockMap
    start_ns: Int64Array
    end_ns: Int64Array
    step_of: Int64Array


NO_STEP = -1
