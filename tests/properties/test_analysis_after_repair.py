"""With clocks that are garbage, after fit and repair: every analysis still holds together."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crossrank.analysis.breakdown import breakdown
from crossrank.analysis.critical_path import critical_path, path_index
from crossrank.analysis.steps import find_steps
from crossrank.analysis.waits import collective_times, message_times
from tests.support.events import event_table
from tests.support.naive_critical_path import check_path
from tests.support.pipeline import timeline_of, topology_of
from tests.support.random_jobs import random_rows

T0 = 1_800_000_000_000_000_001


def garbage_job(seed):
    rows = random_rows(seed, ranks=4, operations=30, garbage_clocks=True)
    for row in rows:
        row["at"] = tuple(None if t is None else T0 + t * 1000 for t in row["at"])
    for r in range(4):
        mine = [t for row in rows if row["rank"] == r for t in row["at"] if t is not None] or [T0]
        middle = (min(mine) + max(mine)) // 2
        edges = (min(mine) - 1, middle, max(mine) + 1)
        rows += [{"rank": r, "kind": "step", "step": n, "at": (edges[n], edges[n + 1])} for n in (0, 1)]
    return rows


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_paths_tile_parts_sum_and_nothing_is_negative(seed):
    timeline = timeline_of(event_table(*garbage_job(seed)))
    steps, index = find_steps(timeline, topology_of(timeline)), path_index(timeline)
    assert (steps.rank_end_ns >= steps.rank_start_ns).all()
    for step in steps.step.tolist():
        check_path(timeline, critical_path(timeline, steps, step, index))
    parts = breakdown(timeline, steps)
    assert (parts.time_ns.sum(axis=1) == steps.rank_end_ns - steps.rank_start_ns).all()
    times, messages = collective_times(timeline), message_times(timeline)
    for values in (parts.time_ns, times.wait_ns, times.transfer_ns, times.spread_ns, messages.wait_ns, messages.transfer_ns):
        assert (values >= 0).all()
    assert np.isfinite(times.busbw_gbs[times.transfer_ns * times.size_bytes > 0]).all()
