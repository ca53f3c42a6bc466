"""Verdicts on events that no real job sends: whatever is in them, there is an answer, and the order of delivery does not change it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.analysis.hangs import hang_at, hang_finding, silence_at
from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.standstill import find_standstill
from crossrank.analysis.steps import find_steps
from crossrank.model.progress import reported_progress
from crossrank.model.trace import trace_from_arrow
from tests.support.events import event_table
from tests.support.pipeline import topology_of
from tests.support.random_jobs import random_rows
from tests.support.timelines import timeline_from

BIG = np.iinfo(np.int64)
SEQS = (BIG.min, -1, 0, 1, 2, 3, 4, BIG.max, None)
OPS = ("all_reduce", "AllReduce", "barrier", "all_to_all", "broadcast", "reduce", None)
STATUS = ('{"last_enqueued_collective":9223372036854775807,"last_completed_collective":-5}', '{"retired":true}', "[]", None)


def garbage(seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(int(rng.integers(0, 60))):
        start = int(rng.integers(0, 60))
        kind = str(rng.choice(["collective", "collective", "send", "recv", "step", "compute", "mark"]))
        rows.append(
            {
                "rank": int(rng.choice((0, 1, 2, 3, 2**31 - 1))), "lane": str(rng.choice(["a", "flight_recorder"])), "kind": kind,
                "name": "pg_status" if kind == "mark" else kind, "at": (start, None if rng.random() < 0.4 else start + 5),
                "op": OPS[rng.integers(len(OPS))] if kind == "collective" else kind,
                "group": (None, "g", "h")[rng.integers(3)], "group_ranks": ([0, 1], [0, 1, 2, 3], [2**31 - 1, 1], None)[rng.integers(4)],
                "seq": SEQS[rng.integers(len(SEQS))], "peer": int(rng.integers(-1, 5)), "step": (None, 0, 1, 2, BIG.max)[rng.integers(5)],
                "bytes": (None, 8, 16, BIG.max)[rng.integers(4)], "dtype": (None, "Float", "int8")[rng.integers(3)],
                "is_async": bool(rng.random() < 0.1), "attrs": STATUS[rng.integers(4)], "span_id": i + 1,
            }
        )  # fmt: skip
        if rows[-1]["peer"] < 0:
            rows[-1]["peer"] = None
    return rows


def answers(rows: list[dict[str, Any]]) -> tuple[Any, ...]:
    table = event_table(*rows)
    timeline = timeline_from(trace_from_arrow(table, job="j", attempt=0))
    topology = topology_of(timeline)
    found = find_mismatches(timeline)
    still = find_standstill(timeline, topology, reported_progress(table, timeline.trace), found)
    hang = hang_at(timeline, still, silence_at(timeline, find_steps(timeline, topology), None, 10**12, dumped=still.dumped))
    return found, still, hang.hung, hang.sentence, hang_finding(timeline, hang)


@given(st.integers(0, 10**6))
def test_garbage_has_an_answer_in_any_order(seed: int):
    rows = garbage(seed)
    mixed = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    assert answers(rows) == answers(mixed)


@given(st.integers(0, 10**6), st.floats(0, 0.3))
def test_jobs_that_lost_events_name_nobody_who_is_not_missing(seed: int, loss: float):
    rows = random_rows(seed, ranks=5, operations=20, loss=loss)
    _, still, *_ = answers(rows)
    missing = {r for p in still.pending for r in p.absent}
    for culprit in still.culprits:
        assert culprit.rank in missing
    for rank in still.suspects:
        assert rank in missing
