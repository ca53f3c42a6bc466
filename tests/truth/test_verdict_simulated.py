"""Verdicts on random simulated jobs with one random fault, wrong clocks, lost events and missing ranks."""

from __future__ import annotations

import pytest

from tests.support.verdict_campaign import Score, draw, score, verdicts


def told(scores: list[Score]) -> str:
    return "\n".join(f"seed {s.case.seed} {s.case.kind} rank {s.case.rank} {s.case.group} {s.case.seq}: {s.told}" for s in scores)


def test_random_faults_are_named_exactly():
    scores = [score(draw(seed, ranks_most=32)) for seed in range(40)]
    assert [s for s in scores if s.false] == [], told([s for s in scores if s.false])
    wrong = [s for s in scores if not s.exact]
    assert len(wrong) == 0, told(wrong)


def test_when_open_operations_are_lost_too_nobody_is_wrongly_named():
    scores = [score(draw(seed, ranks_most=32, lost=0.02, lost_open=0.02)) for seed in range(5000, 5030)]
    assert [s for s in scores if s.false] == [], told([s for s in scores if s.false])


def test_ranks_that_wait_in_different_work_leave_it_open_who_is_missing():
    """All are inside an operation after rank 3 left one out, and only the report of rank 0 is lost: rank 0 did nothing."""
    found = score(draw(5050, ranks_most=64, lost=0.01, lost_open=0.01))
    assert (found.case.kind, found.case.rank, found.false) == ("skipped", 3, ()), told([found])
    still = verdicts(found.case.events)[1]
    assert (still.culprits, still.suspects) == ((), (0, 3))


@pytest.mark.long
def test_two_hundred_random_faults():
    scores = [score(draw(seed)) for seed in range(200)]
    assert [s for s in scores if s.false] == [], told([s for s in scores if s.false])
    wrong = [s for s in scores if not s.exact]
    assert len(wrong) <= 2, told(wrong)


@pytest.mark.long
def test_two_hundred_with_open_operations_lost_too():
    """All may be stuck inside an operation, and of one rank only the event of entering it is lost."""
    scores = [score(draw(seed, ranks_most=64, lost=0.01, lost_open=0.01)) for seed in range(5000, 5200)]
    assert [s for s in scores if s.false] == [], told([s for s in scores if s.false])
    assert sum(s.exact for s in scores) >= 180
