"""Gauges of jobs in /metrics: right, bounded, free of derivation, documented; the dashboard names nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from crossrank.api.job_metrics import JOB_METRICS
from crossrank.limits import Limits
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "crossrank.json").read_text())
FUNCTIONS = {"deriv", "rate", "increase", "sum", "by", "label_values"}


def samples(service: InProcess) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = service.request("GET", "/metrics").text
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_gauges_say_what_the_answers_say(tmp_path: Path):
    slow = (SlowCompute(rank=3, phase="forward", steps=(4, 11), extra_ns=20_000_000),)
    config = JobConfig(job="sim", dp=4, tp=2, pp=1, steps=12, microbatches=2, ranks_per_host=2)
    with InProcess(tmp_path) as service:
        service.post("/v1/events", encode.ndjson(simulate(config, slow, seed=1).events), encode.NDJSON_TYPE)
        before = samples(service)
        assert ("crossrank_job_silent_seconds", (("job", "sim"),)) in before
        assert not any(name == "crossrank_job_step" for name, _ in before), "a scrape derived something"
        service.derive("sim")
        found = {(name, *(v for k, v in labels if k != "job")): value for (name, labels), value in samples(service).items()}
        steps = [s for s in service.get("/v1/jobs/sim/steps")["steps"] if s["complete"]]
        stragglers = service.get("/v1/jobs/sim/stragglers")["stragglers"]
        alignment = service.get("/v1/jobs/sim/clocks")["alignment"]
    lasted = sorted(s["duration_ns"] for s in steps)
    assert found["crossrank_job_step_seconds", "last"] == pytest.approx(steps[-1]["duration_ns"] / 1e9)
    assert lasted[5] / 1e9 <= found["crossrank_job_step_seconds", "median"] <= lasted[6] / 1e9
    assert found["crossrank_job_step",] == 11
    assert found["crossrank_job_straggler_cost_seconds",] == pytest.approx(stragglers[0]["cost_ns"] / 1e9)
    assert found["crossrank_job_stragglers",] == 1
    assert found["crossrank_job_clock_bound_seconds",] == pytest.approx(alignment["bound_ns"] / 1e9)
    assert found["crossrank_job_clock_components",] == 1
    assert (found["crossrank_job_ranks", "seen"], found["crossrank_job_ranks", "missing"]) == (8, 0)
    assert 0 <= found["crossrank_job_behind_seconds",] < 1
    assert 0 <= found["crossrank_job_exposed_communication_ratio",] <= 1


def test_jobs_are_bounded_and_their_names_harmless(tmp_path: Path):
    names = ['a"b', "line\nbreak", "back\\slash", 'evil{job="x"} 1', "e"]
    with InProcess(tmp_path, Limits(job_metrics=3)) as service:
        for job in names:
            event = {"job": job, "rank": 0, "name": "n", "span_id": "1" * 16, "start_ns": 10**18, "end_ns": 10**18 + 1}
            service.post("/v1/events", json.dumps(event).encode(), "application/x-ndjson")
            service.rooms.deriver.current(job)
        told = {dict(labels)["job"] for name, labels in samples(service) if name == "crossrank_job_clock_components"}
    assert told == set(names[2:])


def test_every_gauge_is_documented():
    text = (ROOT / "docs" / "operations.md").read_text()
    assert [name for name, meaning in JOB_METRICS.items() if f"`crossrank_job_{name}{{job" not in text or meaning not in text] == []


def test_the_dashboard_names_exported_metrics_only(tmp_path: Path):
    config = JobConfig(job="sim", dp=2, tp=1, pp=1, steps=4, microbatches=1)
    with InProcess(tmp_path) as service:
        service.post("/v1/events", encode.ndjson(simulate(config, (), seed=1).events), encode.NDJSON_TYPE)
        service.derive("sim")
        families = text_string_to_metric_families(service.request("GET", "/metrics").text)
        exported = {f.name + ("_total" if f.type == "counter" else "") for f in families}
    exprs = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    exprs += [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    assert len(exprs) > 10
    for expr in exprs:
        bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\([a-z]+\) ", " ", expr)
        words = set(re.findall(r"[a-z_]{2,}", bare)) - FUNCTIONS - {"job"}
        assert words, expr
        assert words <= exported, expr
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
