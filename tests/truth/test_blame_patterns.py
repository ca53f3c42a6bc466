"""Named patterns that are nobody's fault: checkpoints that stop the job, and the bubble of a pipeline; known by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crossrank.analysis.bottlenecks import find_bottlenecks
from crossrank.analysis.steps import find_steps
from crossrank.model.findings import Finding
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.checkpoints import with_checkpoints
from tests.support.pipeline import timeline_of, topology_of, with_true_stamps

MS = 1_000_000


def findings(events: pa.Table, **options: Any) -> dict[str, Finding]:
    timeline = timeline_of(events, clocks="true")
    topology = topology_of(timeline)
    found = find_bottlenecks(timeline, topology, find_steps(timeline, topology), (), **options)
    return {f.class_: f for f in found}


def job(**shape: Any) -> pa.Table:
    config = JobConfig(job="patterns", steps=8, **({"dp": 4, "tp": 2, "pp": 1, "microbatches": 2} | shape))
    return with_true_stamps(simulate(config, seed=11))


@pytest.mark.parametrize("length_ns", [40 * MS, 200 * MS])
def test_checkpoints_cost_what_the_job_would_be_shorter_by(length_ns: int):
    found = findings(with_checkpoints(job(), (2, 5), length_ns))["checkpoint_stall"]
    assert found.steps == (2, 5)
    assert found.cost_ns == pytest.approx(2 * length_ns, rel=0.02)
    assert (found.ranks, found.class_) == ((), "checkpoint_stall")
    assert "in steps 2" in found.sentence


def test_checkpoints_of_other_steps_do_not_count():
    events = with_checkpoints(job(), (2, 5), 100 * MS)
    assert findings(events, first=4, last=6)["checkpoint_stall"].steps == (5,)
    assert "checkpoint_stall" not in findings(events, first=3, last=4)


def test_checkpoints_beside_the_work_cost_nothing():
    assert "checkpoint_stall" not in findings(with_checkpoints(job(), (2, 5), 40 * MS, beside=True))


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 4), (4, 8)])
def test_the_bubble_of_a_pipeline_is_near_what_its_schedule_makes_it(stages: int, microbatches: int):
    found = findings(job(dp=2, tp=1, pp=stages, microbatches=microbatches))["pipeline_bubble"]
    least = (stages - 1) / (microbatches + stages - 1)
    assert f"{stages} pipeline stages" in found.sentence
    assert f"{microbatches} microbatches" in found.sentence
    assert 0.5 * least < found.share < 1.5 * least  # a step is more than its pipeline, which ends in a collective
    assert found.ranks == ()


def test_more_microbatches_make_the_bubble_smaller():
    shares = [findings(job(dp=2, tp=1, pp=4, microbatches=m))["pipeline_bubble"].share for m in (4, 8, 16)]
    assert shares == sorted(shares, reverse=True)


def test_without_a_pipeline_there_is_no_bubble():
    assert not {"pipeline_bubble", "checkpoint_stall"} & findings(job()).keys()


def test_a_job_of_open_and_lost_messages_has_findings_without_fault():
    events = job(dp=2, tp=1, pp=2)
    kept = events.filter(pa.array(np.random.default_rng(3).random(len(events)) > 0.1))
    assert all(0 <= f.share <= 1 for f in findings(kept).values())
    assert pc.sum(kept["end_ns"].is_null()).as_py() == 0
