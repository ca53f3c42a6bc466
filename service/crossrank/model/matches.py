"""Which spans of different ranks are the same operation: what `reconstruct.match` finds and everything cross-rank rests on.

Members of collectives are kept in compressed form (CSR): the spans of instance k are `member[ptr[k]:ptr[k+1]]`, ascending by
rank. Instances are ordered by (group, seq).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crossrank.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class CollectiveMatches:
    """Matched collectives: k instances, m members in all."""

    group: Int32Array  # [k] into trace.groups
    seq: Int64Array  # [k]
    op: Int32Array  # [k] into trace.ops, the majority's
    ptr: Int64Array  # [k + 1]
    member: Int64Array  # [m] span numbers
    expected: Int32Array  # [k] group size where known, else the number of members seen
    synchronising: BoolArray  # [k] no member may end before every member has started; false when members disagree on op or size
    root: Int32Array  # [k] span number of the root of a rooted operation, else -1
    root_sends: BoolArray  # [k] broadcast or scatter: the root's start binds every end
    confidence: Float64Array  # [k] that the members are one operation: 1 by seq, less where matched by order or content

    def __len__(self) -> int:
        return len(self.group)

    @property
    def instance(self) -> Int64Array:
        """[m] instance of each member."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.ptr))

    @property
    def complete(self) -> BoolArray:
        """[k] every expected member was seen."""
        return np.diff(self.ptr) >= self.expected


@dataclass(frozen=True, slots=True)
class MessageMatches:
    """Matched messages: receive `recv[i]` took what send `send[i]` sent (span numbers)."""

    send: Int64Array
    recv: Int64Array

    def __len__(self) -> int:
        return len(self.send)


@dataclass(frozen=True, slots=True)
class LaunchMatches:
    """Launches joined to what they started on the device: `launch[i]` started `operation[i]` (span numbers of one rank)."""

    launch: Int64Array
    operation: Int64Array

    def __len__(self) -> int:
        return len(self.launch)


@dataclass(frozen=True, slots=True)
class Matches:
    """Everything matched in one trace, and what could not be, by reason."""

    collectives: CollectiveMatches
    messages: MessageMatches
    launches: LaunchMatches
    unmatched: dict[str, int] = field(default_factory=dict)
