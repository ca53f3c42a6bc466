"""Coordinates of ranks, posted or inferred from groups, and what each rank waited and kept waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossrank.analysis.rank_waits import rank_waits
from crossrank.analysis.waits import collective_times
from crossrank.importers import flight_recorder
from crossrank.importers.source import Source
from crossrank.limits import Limits
from crossrank.model.topology import Group
from crossrank.model.trace import trace_from_arrow
from crossrank.query.topology_post import merged_topology
from crossrank.reconstruct.coordinates import coordinates
from crossrank.reconstruct.group_kinds import described_kind, named_kind
from crossrank.reconstruct.match import match
from crossrank.reconstruct.topology import infer_topology
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.dumps import dump_events
from tests.support.events import collective, message
from tests.support.timelines import timeline_of


@pytest.mark.parametrize(("dp", "tp", "pp"), [(2, 2, 2), (4, 2, 1), (2, 4, 2), (8, 1, 1), (2, 1, 4)])
def test_coordinates_from_the_members_of_groups_are_those_of_the_job(dp: int, tp: int, pp: int):
    job = simulate(JobConfig(dp=dp, tp=tp, pp=pp, steps=2, microbatches=2), seed=1)
    trace = trace_from_arrow(job.events, job="simulated", attempt=0)
    found = infer_topology(trace, match(trace), None)
    for row in job.topology["ranks"]:
        known = {d: place for d, place in row["coords"].items() if {"dp": dp, "tp": tp, "pp": pp}[d] > 1}
        assert found.coords[row["rank"]] == known
    assert found.sizes == {d: n for d, n in sorted({"dp": dp, "tp": tp, "pp": pp}.items()) if n > 1}


def test_groups_are_within_a_host_or_between_hosts():
    job = simulate(JobConfig(dp=2, tp=4, pp=1, steps=1, ranks_per_host=4), seed=1)
    trace = trace_from_arrow(job.events, job="simulated", attempt=0)
    scope = {g.name: g.scope for g in infer_topology(trace, match(trace), None).groups}
    assert scope["tp0"] == scope["tp1"] == "intra_host"
    assert scope["dp0"] == scope["world"] == "inter_host"


def a_group(name: str, kind: Any, *ranks: int) -> Group:
    return Group(name, ranks, kind)


def test_posted_coordinates_go_first_and_contradictions_are_told():
    said = {0: {"rank": 0, "coords": {"tp": 5}}, 1: {"rank": 1, "coords": {"tp": 5, "cp": 1}}}
    coords, sizes, conflicts = coordinates([a_group("tp0", "tp", 0, 1)], (0, 1), (0, 0), said)
    assert coords == {0: {"tp": 5}, 1: {"cp": 1, "tp": 5}}
    assert sizes == {"cp": 2, "tp": 6}
    assert len(conflicts) == 1
    assert "ranks 0 and 1" in conflicts[0]


def test_the_smallest_group_of_a_kind_gives_the_place():
    groups = [a_group("dp", "dp", 0, 1, 2, 3), a_group("dp_of_cp", "dp", 2, 3)]
    assert coordinates(groups, (0, 1, 2, 3), (0,) * 4, {})[0][3] == {"dp": 1}


def test_stages_stand_in_for_pipeline_groups():
    assert coordinates([], (0, 1), (0, 1), {})[0] == {0: {"pp": 0}, 1: {"pp": 1}}


def test_waits_are_suffered_by_who_comes_early_and_caused_by_who_comes_last():
    rows = [collective(0, 1, (0, 110)), collective(1, 1, (40, 110)), collective(2, 1, (100, 110))]
    rows += [message("send", 0, 1, 1, (150, 151)), message("recv", 1, 0, 1, (120, 155))]
    timeline = timeline_of(*rows)
    found = rank_waits(timeline, collective_times(timeline))
    assert found.rank.tolist() == [0, 1, 2]
    assert found.suffered_ns.tolist() == [100, 60 + 30, 0]
    assert found.caused_ns.tolist() == [30, 0, 160]
    assert found.came_last.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "other"),
        ("EXPERT_DATA_PARALLEL_GROUP", "other"),
        ("MODEL_PARALLEL_GROUP", None),
        ("default_pg", "world"),
        ("tensor parallel", "tp"),
        ("", None),
    ],
)
def test_what_a_description_says(description: str, kind: str | None):
    assert described_kind(description) == kind


@pytest.mark.parametrize(
    ("name", "kind"), [("dp3", "dp"), ("tp_0", "tp"), ("world", "world"), ("default_pg", "world"), ("37", None)]
)
def test_what_a_name_says(name: str, kind: str | None):
    assert named_kind(name) == kind


def test_dumps_of_a_job_give_its_coordinates(recordings: Path):
    folder = recordings / "flight_recorder" / "gpu_error_2nd"
    if not folder.is_dir():
        pytest.skip("dumps are not in the committed sample")
    posted: dict[str, Any] | None = None
    files = sorted(folder.glob("_dump_*"))
    for file in files:
        with file.open("rb") as body:
            stated = flight_recorder.read(body, Source(file.name, None, 1), Limits()).topology
        posted = merged_topology(posted, dict(stated or {}))
    events = dump_events(files)
    trace = trace_from_arrow(events, job="dumps", attempt=0)
    found = infer_topology(trace, match(trace), posted)
    assert found.world_size == 16
    for rank in range(16):  # tensor parallelism fastest, then data, then the pipeline
        coords = found.coords[rank]
        assert (coords["tp"], coords["dp"], coords["pp"]) == (rank % 4, rank // 4 % 2, rank // 8)
