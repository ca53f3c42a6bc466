"""Stragglers and slow links in real recordings whose injected faults are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.steps import find_steps
from crossrank.analysis.stragglers import find_stragglers
from crossrank.model.findings import Finding, Straggler
from tests.support.pipeline import recorded_events, timeline_of, topology_of

EXPECTED = {
    "slow_rank_3d_w8": (2, "compute", "forward", range(5, 10)),
    "slow_rank_ddp_w4": (2, "compute", "forward", range(5, 10)),
    "slow_loader_ddp_w4": (1, "data", "dataloader", range(4, 12)),
}
HEALTHY = (
    "healthy_ddp_w4", "healthy_zero_w4", "healthy_3d_w8", "netns_healthy_ddp_w4", "healthy_3d_w8__skew200ms_ntpstep",
    "healthy_ddp_60s_w4__skew200ms_ntpstep",
)  # fmt: skip


def analysed(recordings: Path, scenario: str) -> tuple[tuple[Straggler, ...], tuple[Finding, ...]]:
    folder = recordings / "gloo" / scenario
    if not folder.is_dir():
        pytest.skip(f"{scenario} is not in the committed sample")
    timeline = timeline_of(recorded_events(folder))
    topology = topology_of(timeline)
    steps = find_steps(timeline, topology)
    stragglers = find_stragglers(timeline, topology, steps)
    return stragglers, find_bottlenecks(timeline, topology, steps, stragglers)


@pytest.mark.parametrize("scenario", EXPECTED)
def test_injected_fault_is_first(recordings: Path, scenario: str):
    rank, kind, name, steps = EXPECTED[scenario]
    stragglers, findings = analysed(recordings, scenario)
    first = stragglers[0]
    assert (first.rank, first.cause.kind, first.cause.name, list(first.steps)) == (rank, kind, name, list(steps))
    assert first.confidence > 0.95
    assert len(stragglers) == 1
    assert findings[0].class_ == ("data_stall" if kind == "data" else "straggler")
    assert findings[0].ranks == (rank,)


@pytest.mark.parametrize("scenario", HEALTHY)
def test_nobody_is_accused_in_a_healthy_job(recordings: Path, scenario: str):
    stragglers, findings = analysed(recordings, scenario)
    assert [s for s in stragglers if s.confidence > 0.9] == []
    assert [f for f in findings if f.class_ in {"straggler", "data_stall", "jitter", "slow_link", "mismatch"}] == []


def test_a_send_that_blocks_is_a_slow_link_and_no_straggler(recordings: Path):
    stragglers, findings = analysed(recordings, "slow_link_sleep_3d_w4")
    assert stragglers == ()
    assert (findings[0].class_, findings[0].ranks, findings[0].steps) == ("slow_link", (1, 3), (5, 6, 7, 8, 9))
