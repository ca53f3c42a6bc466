"""Verdicts on real recordings whose truth is known: events and flight recorder dumps of jobs that hang or disagree."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crossrank.analysis.hangs import hang_at, receipts_of, silence_at
from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.standstill import find_standstill
from crossrank.analysis.steps import find_steps
from crossrank.model.progress import reported_progress
from crossrank.model.verdicts import Hang, Mismatch
from tests.support.dumps import dump_events
from tests.support.pipeline import recorded_events, timeline_of, topology_of

SECOND = 1_000_000_000
HEALTHY = (
    "healthy_ddp_w4", "healthy_zero_w4", "healthy_3d_w8", "netns_healthy_ddp_w4", "healthy_3d_w8__skew200ms_ntpstep",
    "healthy_ddp_60s_w4__skew200ms_ntpstep", "slow_rank_3d_w8", "slow_link_sleep_3d_w4",
)  # fmt: skip


def folder_of(recordings: Path, *parts: str) -> Path:
    folder = recordings.joinpath(*parts)
    if not folder.is_dir():
        pytest.skip(f"{'/'.join(parts)} is not in the committed sample")
    return folder


def verdicts(events: pa.Table, later_ns: int = 600 * SECOND) -> tuple[tuple[Mismatch, ...], Hang]:
    """Asked some time after the last event, which was received when it happened."""
    timeline = timeline_of(events, job="job")
    topology = topology_of(timeline)
    found = find_mismatches(timeline)
    standstill = find_standstill(timeline, topology, reported_progress(events, timeline.trace), found)
    end = int(max(timeline.start_ns.max(), timeline.end_ns.max()))
    receipts = receipts_of(events["received_ns"].to_numpy() * 0 + end, np.ones(len(events), dtype=bool))
    steps = find_steps(timeline, topology)
    return found, hang_at(timeline, standstill, silence_at(timeline, steps, receipts, end + later_ns, dumped=standstill.dumped))


def test_the_rank_that_stays_away_hangs_the_job(recordings: Path):
    folder = folder_of(recordings, "gloo", "hang_ddp_w4")
    expected = json.loads((folder / "truth.json").read_text())["expected"]
    found, hang = verdicts(recorded_events(folder))
    assert found == ()
    assert hang.hung
    assert [(c.rank, c.reason, c.op) for c in hang.culprits] == [(expected["culprit"], "not_entered", expected["op"])]
    assert hang.standstill.pending[0].waiting == tuple(expected["waiting"])
    assert hang.standstill.pending[0].step == expected["step"]


def test_it_is_no_hang_before_its_time(recordings: Path):
    _, hang = verdicts(recorded_events(folder_of(recordings, "gloo", "hang_ddp_w4")), later_ns=SECOND // 2)
    assert not hang.hung
    assert hang.culprits == ()


def test_a_skipped_operation_is_found_although_a_rank_has_no_data(recordings: Path):
    found, hang = verdicts(recorded_events(folder_of(recordings, "gloo", "desync_skip_ddp_w4")))
    assert [(m.class_, m.odd_ranks, m.step, m.unseen) for m in found] == [("skipped", (3,), 10, (2,))]
    assert [c.rank for c in hang.culprits] == [3]
    assert hang.sentence.startswith("Nothing has come from rank 2.")


def test_a_wrong_size_is_found(recordings: Path):
    found, hang = verdicts(recorded_events(folder_of(recordings, "gloo", "desync_size_alldumps_w4")))
    assert [(m.class_, m.odd_ranks, m.step) for m in found] == [("size", (3,), 10)]
    assert [c.rank for c in hang.culprits] == [3]


@pytest.mark.parametrize("scenario", HEALTHY)
def test_nothing_is_found_in_a_job_without_such_a_fault(recordings: Path, scenario: str):
    found, hang = verdicts(recorded_events(folder_of(recordings, "gloo", scenario)))
    assert found == ()
    assert not hang.hung


@pytest.mark.parametrize(("scenario", "reason"), [("gpu_error_2nd", "device_stopped"), ("lock_gil_1st", "host_stopped")])
def test_dumps_tell_who_stopped_and_on_which_side(recordings: Path, scenario: str, reason: str):
    folder = folder_of(recordings, "flight_recorder", scenario)
    injected = json.loads((folder / "fault_injection.log").read_text().splitlines()[0].partition(":")[2])
    found, hang = verdicts(dump_events(sorted(folder.glob("_dump_*"))))
    assert found == ()
    assert hang.hung
    assert [(c.rank, c.reason) for c in hang.culprits] == [(r, reason) for r in injected]
    assert hang.standstill.suspects == hang.standstill.unseen == hang.standstill.cycle == ()


@pytest.mark.parametrize("form", ["fr", "fr_json"])
def test_dumps_of_gloo_name_the_rank_that_stays_away(recordings: Path, form: str):
    _, hang = verdicts(dump_events(sorted(folder_of(recordings, "gloo", "hang_ddp_w4", form).iterdir())))
    assert [(c.rank, c.reason) for c in hang.culprits] == [(1, "host_stopped")]


def test_the_order_of_the_files_does_not_matter(recordings: Path):
    files = sorted(folder_of(recordings, "gloo", "desync_size_alldumps_w4", "fr_json").iterdir())
    dumps = [dump_events([file]) for file in files]
    for order in itertools.permutations(range(4)):
        found, hang = verdicts(pa.concat_tables([dumps[i] for i in order]).unify_dictionaries())
        assert [(m.class_, m.odd_ranks) for m in found] == [("size", (3,))], order
        assert [c.rank for c in hang.culprits] == [3], order


def test_the_skipped_operation_is_found_in_three_dumps_of_four(recordings: Path):
    found, hang = verdicts(dump_events(sorted(folder_of(recordings, "gloo", "desync_skip_ddp_w4", "fr_json").iterdir())))
    assert [(m.class_, m.odd_ranks, m.unseen) for m in found] == [("skipped", (3,), (2,))]
    assert [c.rank for c in hang.culprits] == [3]
    assert hang.standstill.unseen == (2,)


def test_without_the_dump_of_the_culprit_nobody_is_named(recordings: Path):
    files = sorted(folder_of(recordings, "gloo", "hang_ddp_w4", "fr_json").iterdir())
    _, hang = verdicts(dump_events([f for f in files if "rank1" not in f.name]))
    assert hang.hung
    assert hang.culprits == ()
    assert hang.standstill.unseen == (1,)
    assert hang.sentence.startswith("Nothing has come from rank 1.")
    assert "rank 1" in hang.collect
