"""Groups are told apart by name and membership, and events without members find their one home."""

import numpy as np
import pyarrow as pa

from crossrank.model.groups import identify_groups

LIST = pa.list_(pa.int32())


def identify(rows):
    names = tuple(sorted({r[0] for r in rows if r[0] is not None}))
    name = np.array([names.index(r[0]) if r[0] is not None else -1 for r in rows], dtype=np.int32)
    rank = np.array([r[1] for r in rows], dtype=np.int32)
    return identify_groups(name, names, pa.array([r[2] for r in rows], type=LIST), rank)


def test_one_name_two_memberships_are_two_groups():
    found = identify([("tp", 0, [0, 1]), ("tp", 1, [1, 0]), ("tp", 2, [2, 3]), (None, 0, None)])
    assert found.names == ("tp", "tp")
    assert found.members == ((0, 1), (2, 3))
    assert found.code.tolist() == [0, 0, 1, -1]


def test_an_event_without_members_joins_the_only_group_that_holds_its_rank():
    found = identify([("tp", 0, [0, 1]), ("tp", 2, [2, 3]), ("tp", 3, None), ("tp", 1, []), ("tp", 9, None), ("dp", 1, None)])
    assert found.names == ("dp", "tp", "tp", "tp")
    assert found.members == ((), (), (0, 1), (2, 3))
    assert found.code.tolist() == [2, 3, 3, 2, 1, 0]


def test_an_event_two_groups_could_own_is_given_to_neither():
    found = identify([("g", 0, [0, 1]), ("g", 0, [0, 2]), ("g", 0, None)])
    assert found.members == ((), (0, 1), (0, 2))
    assert found.code.tolist() == [1, 2, 0]


def test_a_membership_that_one_rank_comes_to_believe_leaves_the_others_in_theirs():
    """Members are sent once, later events have none; then rank 2 sends another list."""
    rows = [("g", r, [0, 1, 2]) for r in range(3)] + [("g", r, None) for r in range(3)] + [("g", 2, [1, 2])]
    found = identify(rows)
    assert found.members == ((0, 1, 2), (1, 2))
    assert found.code.tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_no_events_and_sliced_columns():
    assert identify([]).names == ()
    column = pa.array([[7], [0, 1], None, [2]], type=LIST).slice(1, 3)
    found = identify_groups(np.zeros(3, np.int32), ("g",), column, np.array([0, 1, 2], np.int32))
    assert found.members == ((0, 1), (2,))
    assert found.code.tolist() == [0, 0, 1]
