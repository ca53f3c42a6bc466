"""How many ends lie before a start they must follow: what wrong clocks do to a trace, as one number.

Counted once per end: a member of a synchronising collective that ends before its last member started, the waiting side of a
rooted operation, a receive that ends before its send started. Zero violations does not mean right times, only possible ones.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.gates import gates_of
from crossrank.model.matches import Matches


def count_violations(matches: Matches, start_ns: Int64Array, end_ns: Int64Array, is_open: BoolArray) -> int:
    """Number of ends, of spans that have one, before a start that the matches put before them. All arrays [n], one timeline."""
    gates = gates_of(matches, len(start_ns))
    opened = np.full(len(gates), np.iinfo(np.int64).min, dtype=np.int64)
    arriving = np.flatnonzero(gates.arrives >= 0)
    np.maximum.at(opened, gates.arrives[arriving], start_ns[arriving])
    waiting = np.flatnonzero((gates.waits >= 0) & ~is_open)
    return int((end_ns[waiting] < opened[gates.waits[waiting]]).sum())
