"""The happened-before order of one trace, as a replay of its stamps.

`a` happened before `b` when a chain leads from one to the other: along a lane, from the start of every member of a
synchronising collective to the end of every member, from a send's start to its receive's end (Lamport 1978).
"""

from __future__ import annotations

from dataclasses import dataclass

from crossrank.model.arrays import Int64Array


@dataclass(frozen=True, slots=True)
class Order:
    """A topological order of all stamps and the Lamport clock of each.

    stamps: [s] stamp numbers, every stamp after all that happened before it.
    lamport: [2n] Lamport time per stamp (>= 1); 0 for the missing end of an open span.
    broken: collectives and messages whose constraint had to be dropped because it closed a cycle, as (kind, instance).
    """

    stamps: Int64Array
    lamport: Int64Array
    broken: tuple[tuple[str, int], ...]
