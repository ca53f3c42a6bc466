"""Verdicts against dictionaries, on random programs of which one rank stops somewhere, and on random calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.standstill import find_standstill
from crossrank.model.progress import Progress
from crossrank.model.trace import trace_from_arrow
from tests.support.events import collective, event_table
from tests.support.naive_verdicts import naive_first_disagreement, naive_standstill
from tests.support.pipeline import topology_of
from tests.support.timelines import timeline_from, timeline_of

NOTHING_DUMPED = Progress((), np.empty(0, dtype=np.int64), ())


def a_stopped_job(seed: int) -> tuple[list[dict[str, Any]], dict[str, list[int]], int]:
    """Ranks run one random program of collectives of random groups until one of them stops; rows, groups, and who stopped."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 8))
    members = {f"g{i}": sorted(rng.choice(ranks, int(rng.integers(2, ranks + 1)), replace=False).tolist()) for i in range(4)}
    program = [f"g{i}" for i in rng.integers(0, 4, 30)]
    stopping = int(rng.integers(ranks))
    todo = {r: [i for i, g in enumerate(program) if r in members[g]] for r in range(ranks)}
    stop_at = int(rng.integers(0, len(todo[stopping]) + 1))
    number = {i: program[: i + 1].count(g) for i, g in enumerate(program)}
    place = dict.fromkeys(range(ranks), 0)
    rows: list[dict[str, Any]] = [{"rank": r, "kind": "compute", "at": (0, None if r == stopping else 1)} for r in range(ranks)]
    inside: dict[int, dict[int, int]] = {}
    now, moved = 1, True
    while moved:
        moved = False
        for r in rng.permutation(ranks).tolist():
            held = r == stopping and place[r] >= stop_at
            if held or place[r] >= len(todo[r]) or any(r in there for there in inside.values()):
                continue
            i = todo[r][place[r]]
            inside.setdefault(i, {})[r] = now
            now, moved = now + 1, True
            if len(inside[i]) == len(members[program[i]]):
                for m, began in inside.pop(i).items():
                    rows.append(collective(m, number[i], (began, now), program[i], group_ranks=members[program[i]]))
                    place[m] += 1
                now += 1
    for i, there in inside.items():
        rows += [collective(m, number[i], (began, None), program[i], group_ranks=members[program[i]]) for m, began in there.items()]
    return rows, members, stopping


@given(st.integers(0, 10**6))
def test_the_end_of_the_waiting_is_who_stopped(seed: int):
    rows, members, stopping = a_stopped_job(seed)
    timeline = timeline_from(trace_from_arrow(event_table(*rows), job="j", attempt=0))
    found = find_standstill(timeline, topology_of(timeline), NOTHING_DUMPED, find_mismatches(timeline))
    ends, unseen, stopped = naive_standstill(rows, members)
    assert {c.rank for c in found.culprits} == ends | stopped
    assert set(found.unseen) == unseen == set()
    assert found.suspects == found.skipped == found.cycle == ()
    assert {c.rank for c in found.culprits} == ({stopping} if found.pending else set())


@given(st.integers(0, 10**6))
def test_without_the_data_of_who_stopped_nobody_is_named(seed: int):
    rows, members, stopping = a_stopped_job(seed)
    rows = [row for row in rows if row["rank"] != stopping]
    timeline = timeline_from(trace_from_arrow(event_table(*rows), job="j", attempt=0))
    found = find_standstill(timeline, topology_of(timeline), NOTHING_DUMPED, find_mismatches(timeline))
    assert found.culprits == ()
    assert set(found.unseen) == naive_standstill(rows, members)[1]


@given(st.integers(0, 10**6))
def test_the_first_disagreement_and_its_minority(seed: int):
    rng = np.random.default_rng(seed)
    ranks, length = int(rng.integers(2, 7)), 12
    program = rng.integers(0, 2, length)
    calls = {r: {q: (("all_reduce", "barrier")[program[q]], 8) for q in range(length)} for r in range(ranks)}
    for _ in range(int(rng.integers(0, 3))):
        calls[int(rng.integers(ranks))][int(rng.integers(length))] = ("broadcast", 8)
    for _ in range(int(rng.integers(0, 4))):
        calls[int(rng.integers(ranks))].pop(int(rng.integers(length)), None)
    rows = [
        collective(r, q, (10 * q, 10 * q + 5), op=op, bytes=size) for r, made in calls.items() for q, (op, size) in made.items()
    ]
    found = find_mismatches(timeline_of(*rows))
    expected = naive_first_disagreement(calls)
    if expected is None:
        assert found == ()
        return
    first = min(m.seq for m in found)
    named = {r for m in found if m.seq == first for r in (*m.odd_ranks, *m.candidates)}
    assert (first, named) == expected
