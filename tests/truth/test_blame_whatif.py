"""Predictions against the simulator run without the fault."""

from __future__ import annotations

import pytest

from crossrank.analysis.replay import build_replay
from crossrank.analysis.whatif import Change, predict
from crossrank.errors import BadParameter
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute, SlowLink
from crossrank.simulate.job import simulate
from crossrank.simulate.truth import true_cost
from tests.support.pipeline import timeline_of, topology_of

CONFIG = JobConfig(dp=8, tp=2, pp=2, steps=10)


def test_nothing_changed_is_the_recording():
    timeline = timeline_of(simulate(CONFIG, [SlowCompute(rank=9, extra_ns=9_000_000)], seed=4).events)
    found = predict(build_replay(timeline), topology_of(timeline), [])
    assert (found.replay_error, found.saving_ns) == (0.0, 0)
    assert found.predicted_ns == found.baseline_ns
    assert all(s.recorded_ns == s.predicted_ns for s in found.steps)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_slow_rank_at_its_peers_median_saves_what_the_fault_cost(phase: str):
    faults = [SlowCompute(rank=9, phase=phase, extra_ns=6_000_000)]
    cost = true_cost(CONFIG, faults, 4)
    timeline = timeline_of(simulate(CONFIG, faults, seed=4).events)
    found = predict(build_replay(timeline), topology_of(timeline), [Change(rank=9, name=phase, becomes="median")])
    assert found.saving_ns == pytest.approx(cost.fault_ns[0], abs=0.01 * found.baseline_ns)


def test_a_link_at_the_median_saves_what_its_slowness_cost():
    faults = [SlowLink(src=3, dst=19, extra_ns=6_000_000)]
    cost = true_cost(CONFIG, faults, 4)
    timeline = timeline_of(simulate(CONFIG, faults, seed=4).events)
    found = predict(build_replay(timeline), topology_of(timeline), [Change(kind="recv", becomes="median")])
    assert found.saving_ns == pytest.approx(cost.fault_ns[0], abs=0.01 * found.baseline_ns)


def test_ideal_is_the_job_without_stragglers():
    faults = [SlowCompute(rank=9, phase="forward", steps=(2, 6), extra_ns=9_000_000)]
    cost = true_cost(CONFIG, faults, 4)
    timeline = timeline_of(simulate(CONFIG, faults, seed=4).events)
    found = predict(build_replay(timeline), topology_of(timeline), [Change(kind="*", becomes="ideal")])
    # Without noise waits vanish too, so it saves more than the fault cost, and not more than a few percent of the job.
    assert cost.fault_ns[0] <= found.saving_ns < cost.fault_ns[0] + 0.1 * found.baseline_ns


def test_scale_and_cap_shorten_in_proportion():
    config = JobConfig(dp=1, tp=1, pp=1, steps=4, ranks_per_host=1, compute_noise=0.0, hiccup_probability=0.0)
    timeline = timeline_of(simulate(config, seed=1).events)
    graph, topology = build_replay(timeline), topology_of(timeline)
    half = predict(graph, topology, [Change(name="backward", scale=0.5)])
    assert half.saving_ns == pytest.approx(4 * 4 * 12_000_000, rel=1e-3)
    capped = predict(graph, topology, [Change(name="backward", cap_ns=6_000_000, first=1, last=2)])
    assert capped.saving_ns == pytest.approx(2 * 4 * 18_000_000, rel=1e-3)
    assert [round((s.recorded_ns - s.predicted_ns) / 1e6) for s in capped.steps] == [0, 72, 72, 0]


@pytest.mark.parametrize(
    ("change", "field"),
    [({}, "changes"), ({"scale": -1.0}, "scale"), ({"cap_ns": -5}, "cap_ns"), ({"kind": "naps", "scale": 1.0}, "kind")],
)
def test_unusable_changes_name_their_field(change: dict[str, object], field: str):
    with pytest.raises(BadParameter) as caught:
        Change(**change)
    assert caught.value.detail["field"] == field
