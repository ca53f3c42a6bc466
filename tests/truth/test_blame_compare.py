"""A slow link inside a ring, found by comparing with a healthy run of the same job; nothing between two healthy ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossrank.analysis.compare import Comparison, Side, compare
from crossrank.analysis.critical_path import path_index
from crossrank.analysis.steps import find_steps
from tests.support.pipeline import recorded_events, timeline_of, topology_of


def side(folder: Path) -> Side:
    timeline = timeline_of(recorded_events(folder))
    steps = find_steps(timeline, topology_of(timeline))
    return Side(timeline, steps, path_index(timeline), np.flatnonzero(steps.closed))


def compared(recordings: Path, before: str, after: str) -> Comparison:
    folders = [recordings / "gloo" / name for name in (before, after)]
    if not all(f.is_dir() for f in folders):
        pytest.skip("these recordings are not in the committed sample")
    return compare(*(side(f) for f in folders))


def test_the_link_behind_a_slow_ring_is_named(recordings: Path):
    found = compared(recordings, "netns_healthy_ddp_w4", "slow_link_tbf_ddp_w4")
    assert found.step.moved
    assert found.step.change_ns > 0
    (link,) = found.links  # what rank 1 sends is slow; the ring of gloo sends to the rank below
    assert (link.to_rank, link.from_ranks) == (0, (1, 3))
    assert link.transfer_after_ns > 2 * link.transfer_before_ns
    assert compared(recordings, "slow_link_tbf_ddp_w4", "netns_healthy_ddp_w4").links == ()


def test_a_job_is_no_different_from_itself(recordings: Path):
    found = compared(recordings, "healthy_ddp_w4", "healthy_ddp_w4")
    assert (found.step.change_ns, found.links, [c for c in found.parts if c.moved]) == (0, (), [])
