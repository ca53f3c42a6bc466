"""Packed keys group and sort rows exactly as their columns do, whatever the numbers are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.reconstruct.keys import first_of_runs, pack_keys, place_in_run

number = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(number, number, number), max_size=20))
def test_keys_order_as_the_columns_do(rows):
    columns = [np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)]
    keys = pack_keys(*columns).tolist()
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            assert (keys[i] < keys[j]) == (a < b)
            assert (keys[i] == keys[j]) == (a == b)


def test_runs():
    first = first_of_runs(np.array([4, 4, 7, 7, 7, 9]))
    assert first.tolist() == [True, False, True, False, False, True]
    assert place_in_run(first).tolist() == [0, 1, 0, 1, 2, 0]
