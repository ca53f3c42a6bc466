"""The critical path and the last arrivers on real recordings with known faults, with right and with wrong clocks."""

import pyarrow as pa
import pytest

from crossrank.analysis.breakdown import breakdown
from crossrank.analysis.critical_path import critical_path, path_index
from crossrank.analysis.steps import find_steps
from crossrank.analysis.waits import collective_times
from crossrank.model.kinds import COLLECTIVE
from tests.support.naive_critical_path import check_path
from tests.support.pipeline import recorded_events, timeline_of, topology_of

SCENARIOS = ("slow_rank_3d_w8", "slow_loader_ddp_w4", "healthy_zero_w4", "desync_skip_ddp_w4")
SKEW = {"host0": (0, 0), "host1": (180_000_000, 30e-6), "host2": (-120_000_000, -25e-6), "host3": (90_000_000, 10e-6)}


def timeline(recordings, scenario):
    return timeline_of(recorded_events(recordings / "gloo" / scenario), clocks="true")


def skewed(events: pa.Table) -> pa.Table:
    """The same events by clocks with offset and drift, one per host."""
    hosts = events.column("host").to_pylist()
    base = min(events.column("start_ns").to_pylist())
    for name in ("start_ns", "end_ns"):
        wrong = [
            None if t is None else t + SKEW[h][0] + round((t - base) * SKEW[h][1])
            for t, h in zip(events.column(name).to_pylist(), hosts, strict=True)
        ]
        events = events.set_column(events.schema.get_field_index(name), events.schema.field(name), pa.array(wrong, pa.int64()))
    return events


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_step_is_explained_to_the_nanosecond(recordings, scenario):
    found = timeline(recordings, scenario)
    steps, index = find_steps(found, topology_of(found)), path_index(found)
    for step in steps.step.tolist():
        check_path(found, critical_path(found, steps, step, index))
    parts = breakdown(found, steps)
    assert (parts.time_ns.sum(axis=1) == steps.rank_end_ns - steps.rank_start_ns).all()
    assert (parts.time_ns >= 0).all()


@pytest.mark.parametrize(
    ("scenario", "rank", "name", "steps", "injected_ns", "at_least"),
    [("slow_loader_ddp_w4", 1, "dataloader", (4, 11), 40_000_000, 7), ("slow_rank_3d_w8", 2, "forward", (5, 9), 120_000_000, 3)],
)
def test_the_injected_delay_is_on_the_path_of_its_steps(recordings, scenario, rank, name, steps, injected_ns, at_least):
    """Some steps of these recordings were held up even more by the loaded machine: there the path may rightly lead elsewhere."""
    found = timeline(recordings, scenario)
    table, index = find_steps(found, topology_of(found)), path_index(found)
    seen = []
    for step in table.step.tolist():
        path = critical_path(found, table, step, index)
        on_path = sum(s.on_path_ns for s in path.segments if (s.rank, s.name) == (rank, name))
        if on_path > 0.9 * injected_ns:
            seen.append(step)
    assert len(seen) >= at_least
    assert steps[0] <= min(seen)
    assert max(seen) <= steps[1]


def test_wrong_clocks_change_neither_steps_nor_last_arrivers(recordings):
    """Clocks made wrong here, and where the full set is at hand also the recorded twin, one of whose clocks jumps in mid-run."""
    events = recorded_events(recordings / "gloo" / "healthy_3d_w8")
    twin = recordings / "gloo" / "healthy_3d_w8__skew200ms_ntpstep"
    right = timeline_of(events, clocks="true")
    one, table = collective_times(right), find_steps(right, topology_of(right))
    for wrong_events in [skewed(events), *([recorded_events(twin)] if twin.is_dir() else [])]:
        wrong = timeline_of(wrong_events, clocks="fit")
        two, other = collective_times(wrong), find_steps(wrong, topology_of(wrong))
        sure = two.decided & one.decided
        assert sure.sum() > 500
        assert (one.last_arriver == two.last_arriver)[sure].all()
        assert table.step.tolist() == other.step.tolist()
        assert all(other.last_rank_of(row) in (None, table.last_rank_of(row)) for row in range(len(table)))


def test_a_missing_rank_decides_nothing_and_a_hang_shows_what_is_open(recordings):
    lost = timeline(recordings, "desync_skip_ddp_w4")
    assert topology_of(lost).missing == (2,)
    assert not collective_times(lost).decided.any()
    trace = timeline(recordings, "hang_ddp_w4").trace
    assert set(trace.rank[trace.is_open].tolist()) == {0, 1, 2, 3}
    assert set(trace.rank[trace.is_open & (trace.kind == COLLECTIVE)].tolist()) == {0, 2, 3}
