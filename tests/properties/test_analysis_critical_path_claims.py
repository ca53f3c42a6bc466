"""Whatever the job: the path's claims hold, it tiles the step, and the order of delivery does not matter."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossrank.analysis.critical_path import critical_path, path_index
from crossrank.analysis.steps import find_steps
from crossrank.reconstruct.topology import infer_topology
from tests.support.naive_critical_path import check_path
from tests.support.random_jobs import random_rows
from tests.support.timelines import timeline_of


def paths_of(rows):
    timeline = timeline_of(*rows)
    steps = find_steps(timeline, infer_topology(timeline.trace, timeline.matches, None))
    index = path_index(timeline)
    return timeline, [critical_path(timeline, steps, step, index) for step in steps.step.tolist()]


def job(seed, lanes):
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, ranks=4, operations=40)
    last = max(start if end is None else end for start, end in (row["at"] for row in rows)) + 10 if rows else 10
    for row in rows:
        row["lane"] = ("main", "comm")[int(rng.integers(lanes))]
        row["at"] = tuple(None if t is None else t * 1000 for t in row["at"])
    seams = sorted(int(x) * 1000 for x in rng.integers(0, last, 2))
    for r in range(4):
        edges = [0, *seams, last * 1000 + int(rng.integers(0, 1000))]
        rows += [{"rank": r, "kind": "step", "step": n, "at": (edges[n], edges[n + 1])} for n in range(3)]
        at = int(rng.integers(0, last)) * 1000
        rows.append({"rank": r, "kind": "sync", "at": (at, at + int(rng.integers(1, 30_000)))})
    return [{**row, "span_id": i + 1} for i, row in enumerate(rows)]


@given(st.integers(0, 10**6), st.integers(1, 2))
def test_the_claims_of_every_path_hold(seed, lanes):
    timeline, paths = paths_of(job(seed, lanes))
    for path in paths:
        check_path(timeline, path)
        assert sum(s.on_path_ns for s in path.segments) == path.end_ns - path.start_ns


@given(st.integers(0, 10**6))
def test_the_order_of_delivery_does_not_matter(seed):
    rows = job(seed, 2)
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    assert paths_of(rows)[1] == paths_of(shuffled)[1]
