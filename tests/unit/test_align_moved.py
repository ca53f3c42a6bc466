from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossrank.align.fit import fit_clocks
from crossrank.align.moved import moved
from crossrank.model.clockmap import Epoch, identity_map
from crossrank.reconstruct.match import match
from tests.support.events import collective, trace_of

EPOCH_NS = 1_780_272_000_000_000_000


def with_offset(offset_ns: int):
    epoch = Epoch(0, np.array([EPOCH_NS, EPOCH_NS + 10**9, EPOCH_NS + 2 * 10**9]), np.full(3, offset_ns))
    return replace(identity_map(1), epochs=((epoch,),))


def test_the_same_map_has_not_moved():
    assert not moved(with_offset(5), ("a",), with_offset(5), ("a",))
    assert not moved(with_offset(5), ("a",), with_offset(905), ("a",))


def test_a_microsecond_more_is_a_move():
    assert moved(with_offset(5), ("a",), with_offset(1_006), ("a",))


def test_clocks_are_known_by_name():
    two = identity_map(2)
    later = replace(two, epochs=(two.epochs[0], with_offset(7).epochs[0]))
    assert not moved(with_offset(7), ("b",), later, ("a", "b"))
    assert moved(with_offset(7), ("b",), later, ("a", "c"))


def test_clocks_that_contradict_themselves_name_the_window():
    rows = []
    for seq in range(1, 200):
        t = EPOCH_NS + seq * 10_000_000
        wrong = 50_000_000 if 90 < seq < 110 else 0  # off and back again, no step and no drift explains it
        rows += [collective(0, seq, (t, t + 1_000_000)), collective(1, seq, (t + wrong, t + wrong + 1_000_000))]
    trace = trace_of(*rows)
    clocks = fit_clocks(trace, match(trace))
    even = trace_of(*[row for row in rows if not 90 < row["seq"] < 110])
    steady = fit_clocks(even, match(even))
    assert steady.contradicted_ns == ()
    assert len(clocks.contradicted_ns) >= 1
    begin, until = clocks.contradicted_ns[0]
    assert begin < EPOCH_NS + 1_000_000_000 < until
