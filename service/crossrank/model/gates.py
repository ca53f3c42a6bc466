"""The cross-rank happened-before edges of a trace in one form, for the replay and for the repair of times.

A *gate* opens when all starts that it needs have happened; an end that waits at a gate comes after that.

    synchronising collective   needs every member's start; every member's end waits
    broadcast, scatter         needs the root's start; every other member's end waits
    reduce, gather             needs every member's start; the root's end waits
    message                    needs the send's start; the receive's end waits

A span arrives at one gate at most and waits at one gate at most. Gates 0..k-1 are the collectives, the messages follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.matches import Matches

NO_GATE = -1


@dataclass(frozen=True, slots=True)
class Gates:
    """Edges of n spans over g gates."""

    arrives: Int32Array  # [n] gate that the span's start helps to open, NO_GATE
    waits: Int32Array  # [n] gate that the span's end waits at, NO_GATE
    needs: Int64Array  # [g] starts that open the gate; 0 for a gate that holds nobody
    collectives: int  # gates below this number are collectives

    def __len__(self) -> int:
        return len(self.needs)

    def name(self, gate: int) -> tuple[str, int]:
        """("collective", instance) or ("message", index)."""
        return ("collective", gate) if gate < self.collectives else ("message", gate - self.collectives)


def gates_of(matches: Matches, spans: int) -> Gates:
    """Gates of everything matched in a trace of n spans."""
    coll, messages = matches.collectives, matches.messages
    k = len(coll)
    arrives = np.full(spans, NO_GATE, dtype=np.int32)
    waits = np.full(spans, NO_GATE, dtype=np.int32)
    _collective_sides(coll.ptr, coll.member, coll.root, coll.root_sends, coll.synchronising, arrives, waits)
    message = np.arange(k, k + len(messages), dtype=np.int32)
    arrives[messages.send] = message
    waits[messages.recv] = message
    needs: Int64Array = np.bincount(arrives[arrives >= 0], minlength=k + len(messages)).astype(np.int64)
    return Gates(arrives, waits, needs, k)


@njit(cache=True, nogil=True)
def _collective_sides(
    ptr: Int64Array, member: Int64Array, root: Int64Array, root_sends: BoolArray, synchronising: BoolArray,
    arrives: Int32Array, waits: Int32Array,
) -> None:  # fmt: skip
    """Enters the collectives into both sides, one after another: of a span in several the last one counts."""
    for k in range(len(ptr) - 1):
        for j in range(ptr[k], ptr[k + 1]):
            span = member[j]
            is_root = span == root[k]
            if synchronising[k] or (root[k] >= 0 and (not root_sends[k] or is_root)):
                arrives[span] = k
            if synchronising[k] or (root[k] >= 0 and root_sends[k] != is_root):
                waits[span] = k
