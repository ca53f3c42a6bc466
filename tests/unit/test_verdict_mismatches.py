"""Which slip explains a disagreement, on small groups written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossrank.analysis.mismatches import find_mismatches
from crossrank.model.verdicts import Mismatch
from tests.support.events import collective
from tests.support.timelines import timeline_of

STEP = (("all_reduce", 64), ("all_reduce", 64), ("all_gather", 32), ("barrier", 0))  # what everybody calls in a step
Calls = list[tuple[str, int]]


def found_in(
    calls: dict[int, Calls], first: dict[int, int] | None = None, members: int | None = None, open_from: int = 1000
) -> tuple[Mismatch, ...]:
    """Mismatches of one group whose ranks call `calls`, numbered from 1 (or `first`); open from a number on."""
    rows: list[dict[str, Any]] = []
    everybody = list(range(members if members is not None else len(calls)))
    for rank, made in calls.items():
        for place, (op, size) in enumerate(made):
            seq = (first or {}).get(rank, 1) + place
            rows.append(
                collective(
                    rank,
                    seq,
                    (10 * seq, 10 * seq + 5 if seq < open_from else None),
                    op=op,
                    bytes=size or None,
                    group_ranks=everybody,
                )
            )
    return find_mismatches(timeline_of(*rows))


def usual(ranks: int, steps: int = 4) -> dict[int, Calls]:
    return {r: list(STEP) * steps for r in range(ranks)}


def told(found: tuple[Mismatch, ...]) -> list[tuple[str, tuple[int, ...], int]]:
    return [(m.class_, m.odd_ranks, m.seq) for m in found]


def test_all_call_the_same():
    assert found_in(usual(4)) == ()


@pytest.mark.parametrize(
    ("class_", "call"),
    [("op", ("reduce_scatter", 64)), ("size", ("all_reduce", 8))],
)
def test_one_call_differs(class_: str, call: tuple[str, int]):
    calls = usual(4)
    calls[2][9] = call
    assert told(found_in(calls)) == [(class_, (2,), 10)]


@pytest.mark.parametrize("place", range(4, 12))
def test_a_call_left_out_shifts_all_that_follow_and_is_one_finding(place: int):
    calls = usual(4)
    del calls[1][place]
    found = found_in(calls)
    assert [(m.class_, m.odd_ranks, m.count) for m in found] == [("skipped", (1,), 1)]
    assert found[0].followers > 0
    assert found[0].seq <= place + 2  # two equal calls in a row cannot be told apart


def test_two_calls_left_out():
    calls = usual(4)
    del calls[3][6:8]
    assert [(m.class_, m.odd_ranks, m.count) for m in found_in(calls)] == [("skipped", (3,), 2)]


def test_a_call_too_much():
    calls = usual(4)
    calls[0].insert(6, ("barrier", 0))
    assert [(m.class_, m.odd_ranks, m.count) for m in found_in(calls)] == [("extra", (0,), 1)]


def test_two_calls_in_the_other_order():
    calls = usual(4)
    calls[3][6], calls[3][7] = calls[3][7], calls[3][6]
    found = found_in(calls)
    assert told(found) == [("order", (3,), 7)]
    assert found[0].followers == 1


def test_a_call_left_out_by_a_rank_that_hangs_in_the_next_one():
    """The others have not got any further; what would have come is known from the steps before."""
    calls = usual(4)
    for rank in range(4):
        del calls[rank][12:]
    calls[0] += list(STEP[:2])
    calls[1] += list(STEP[:2])
    calls[2] += [*STEP[:1], ("all_gather", 32)]
    calls[3] += list(STEP[:2])
    assert told(found_in(calls, open_from=14)) == [("skipped", (2,), 14)]


def test_two_ranks_cannot_be_told_apart():
    calls = usual(2)
    calls[1][9] = ("all_reduce", 8)
    found = found_in(calls)
    assert told(found) == [("size", (), 10)]
    assert found[0].candidates == (0, 1)
    assert "nobody can tell" in found[0].sentence


def test_half_against_half_cannot_be_told_apart():
    calls = usual(4)
    calls[2][9] = calls[3][9] = ("all_reduce", 8)
    assert found_in(calls)[0].candidates == (0, 1, 2, 3)


def test_two_causes_are_two_findings():
    calls = usual(5)
    calls[1][5] = ("all_reduce", 8)
    calls[4][9] = ("all_reduce", 8)
    assert told(found_in(calls)) == [("size", (1,), 6), ("size", (4,), 10)]


def test_buffers_that_start_at_different_numbers_compare_where_all_have_data():
    calls = usual(3, steps=6)
    calls[2] = calls[2][9:]
    assert found_in(calls, first={2: 10}) == ()
    calls[2][4] = ("all_reduce", 8)
    found = found_in(calls, first={2: 10})
    assert told(found) == [("size", (2,), 14)]
    assert found[0].window == (10, 24)


def test_a_member_without_data_is_said():
    calls = usual(3)
    calls[0][9] = ("all_reduce", 8)
    found = found_in(calls, members=4)
    assert found[0].unseen == (3,)
    assert "rank 3" in found[0].sentence


@pytest.mark.parametrize("op", ["all_to_all", "all_gather_v", "allgatherv", "gather", "scatter"])
def test_uneven_sizes_are_legal_where_the_operation_allows_them(op: str):
    assert found_in({r: [(op, 8 * (r + 1))] * 5 for r in range(4)}) == ()


def test_gathers_that_are_always_uneven_are_legal():
    assert found_in({r: [("all_gather", 8 * (r + 1))] * 5 for r in range(4)}) == ()


def test_element_types_differ():
    rows = [
        collective(r, q, (q, q + 1), dtype="float32" if (r, q) != (1, 3) else "float16", bytes=8)
        for r in range(3)
        for q in range(6)
    ]
    assert told(find_mismatches(timeline_of(*rows))) == [("dtype", (1,), 3)]


def test_spellings_of_one_element_type_agree():
    words = ("float32", "Float", "torch.float32", "fp32")
    assert (
        find_mismatches(timeline_of(*(collective(r, q, (q, q + 1), dtype=words[r], bytes=8) for r in range(4) for q in range(3))))
        == ()
    )


def test_a_call_left_out_shows_by_its_step_alone():
    rows = [
        collective(r, 1 + s - (r == 1 and s > 5), (9 * s, 9 * s + 1), step=s)
        for r in range(3)
        for s in range(9)
        if (r, s) != (1, 5)
    ]
    assert told(find_mismatches(timeline_of(*rows))) == [("skipped", (1,), 6)]


def test_a_rank_that_gives_other_members():
    rows = [collective(r, q, (q, q + 1), group_ranks=[0, 1, 2, 3]) for r in (0, 1, 2) for q in range(3)]
    rows += [collective(3, q, (q, q + 1), group_ranks=[0, 1, 3]) for q in range(3)]
    found = find_mismatches(timeline_of(*rows))
    assert told(found) == [("membership", (3,), 0)]


def test_a_rank_that_comes_to_give_other_members():
    """It was in the group as all others are, then calls number 3 as one of other members: nobody leaves that."""
    rows = [collective(r, q, (q, q + 1), group_ranks=[0, 1, 2, 3]) for r in range(4) for q in range(3)]
    rows += [collective(r, 3, (3, None), group_ranks=[0, 1, 2, 3]) for r in (0, 1, 2)]
    rows += [collective(3, 3, (3, None), group_ranks=[0, 1, 3])]
    assert told(find_mismatches(timeline_of(*rows))) == [("membership", (3,), 3)]


def test_a_new_group_with_an_old_name_is_no_other_belief():
    rows = [collective(r, q, (q, q + 1), group_ranks=[0, 1, 2, 3]) for r in range(4) for q in range(3)]
    rows += [collective(r, 3, (3, None), group_ranks=[0, 1, 2, 3]) for r in (1, 2, 3)]
    rows += [collective(0, 1, (3, None), group_ranks=[0, 1])]
    assert find_mismatches(timeline_of(*rows)) == ()


def test_groups_that_share_a_name_and_no_member_are_fine():
    rows = [collective(r, q, (q, q + 1), group_ranks=[r // 2 * 2, r // 2 * 2 + 1]) for r in range(4) for q in range(3)]
    assert find_mismatches(timeline_of(*rows)) == ()


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_events_does_not_matter(seed: int):
    rows = [
        collective(r, q + 1 - (r == 2 and q > 4), (q, q + 1), op=STEP[q % 4][0], bytes=STEP[q % 4][1] or None)
        for r in range(4)
        for q in range(12)
        if (r, q) != (2, 4)
    ]
    mixed = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    assert find_mismatches(timeline_of(*mixed)) == find_mismatches(timeline_of(*rows))


def test_a_long_desynchronised_run_is_one_finding():
    calls = usual(3, steps=400)
    del calls[2][21]
    found = found_in(calls)
    assert [(m.class_, m.odd_ranks, m.window) for m in found] == [("skipped", (2,), (1, 1599))]
    assert found[0].followers > 1000
