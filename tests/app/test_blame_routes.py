"""Breakdown, comparison, bandwidth, anomalies and metric causes over REST; the gate for CI."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crossrank.api.analysis_routes import AnomaliesAnswer, BandwidthAnswer, BreakdownAnswer, CausesAnswer, CompareAnswer
from crossrank.cli import app
from crossrank.commands.diff import share_of
from crossrank.errors import BadParameter
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

SHAPE = {"dp": 4, "tp": 2, "pp": 1, "steps": 16, "microbatches": 2, "ranks_per_host": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a`: healthy; `b`: rank 3 is 6 ms slow in each forward from step 8 on."""
    path = tmp_path_factory.mktemp("data")
    slow = (SlowCompute(rank=3, phase="forward", steps=(8, 15), extra_ns=6_000_000),)
    with InProcess(path) as service:
        for job, faults, seed in (("a", (), 1), ("b", slow, 2)):
            events = simulate(JobConfig(job=job, **SHAPE), faults, seed=seed).events
            service.post("/v1/events", encode.ndjson(events), encode.NDJSON_TYPE)
    return path


def test_breakdown_sums_to_the_step(folder: Path):
    with InProcess(folder) as service:
        answer = service.get("/v1/jobs/b/breakdown", **{"from": 3, "to": 5})
        BreakdownAnswer.model_validate(answer)
        assert answer["total"] == 3 * 8
        assert all(sum(row["parts_ns"].values()) == row["total_ns"] for row in answer["rows"])
        assert {row["rank"] for row in service.get("/v1/jobs/b/breakdown", rank=3)["rows"]} == {3}


def test_what_moved_is_named_and_noise_is_not(folder: Path):
    with InProcess(folder) as service:
        within = service.get("/v1/jobs/b/compare", base_to=7, **{"from": 8})
        CompareAnswer.model_validate(within)
        assert within["step"]["moved"]
        assert within["step"]["change_ns"] == pytest.approx(12_000_000, rel=0.15)
        moved = {(p["by"], p["what"]): p["change_ns"] for p in within["parts"] if p["moved"]}
        assert moved["phase", "compute forward"] == pytest.approx(12_000_000, rel=0.2)
        assert moved["rank", "3"] > 0
        same = service.get("/v1/jobs/a/compare", base_to=7, **{"from": 8})
        assert not same["step"]["moved"]
        assert service.request("GET", "/v1/jobs/a/compare", params={"base": "nobody"}).status_code == 404
        assert service.request("GET", "/v1/jobs/a/compare", params={"from": 99}).status_code == 400


def test_bandwidth_finds_the_lines_the_simulator_draws(folder: Path):
    with InProcess(folder) as service:
        answer = service.get("/v1/jobs/a/bandwidth")
        BandwidthAnswer.model_validate(answer)
        tensor = [s for s in answer["speeds"] if s["group"] == "tp0"]
        assert len(tensor) == 1
        assert tensor[0]["below"] is None
        slow = service.get("/v1/jobs/a/bandwidth", peak_gbs=10_000.0)["speeds"]
        assert slow[0]["below"] < 0.7
        assert slow[0]["reason"]


def test_the_gate_closes_for_what_is_slower_and_beyond_noise(folder: Path):
    run = CliRunner()
    slower = run.invoke(app, ["diff", "a", "b", "--data", str(folder), "--from", "8", "--fail-over", "3%"])
    assert slower.exit_code == 1, slower.output
    assert "median step" in slower.output
    for arguments in (["a", "a", "--fail-over", "0%"], ["a", "b", "--from", "8", "--fail-over", "90"], ["a", "b"]):
        open_ = run.invoke(app, ["diff", *arguments, "--data", str(folder)])
        assert open_.exit_code == 0, open_.output
    told = json.loads(run.invoke(app, ["diff", "b", "b", "--base-to", "7", "--from", "8", "--json", "--data", str(folder)]).stdout)
    assert (told["failed"], told["step"]["moved"]) == (False, True)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan%", "1e9"])
def test_what_is_no_percentage_is_refused(text: str):
    with pytest.raises(BadParameter):
        share_of(text)


def metrics(job: str) -> bytes:
    """120 steps: queue depth drives step time two steps later, which drives the loss; temperature follows nothing."""
    rng = np.random.default_rng(5)
    depth, heat = rng.normal(size=120), rng.normal(size=120)
    time = np.concatenate(([0, 0], 0.9 * depth[:-2])) + 0.3 * rng.normal(size=120)
    loss = 2 + 0.05 * np.concatenate(([0], 0.8 * time[:-1])) + 0.01 * rng.normal(size=120)
    loss[80] = 9.0
    grad = np.full(120, 1.5)
    grad[[40, 41]] = 2e4, 1e-7
    lines = []
    for step in range(120):
        at = 1_000_000_000 + step * 1_000_000
        for n, (name, value) in enumerate(
            {"queue_depth": depth, "temperature": heat, "step_time": time, "loss": loss, "grad_norm": grad}.items()
        ):
            lines.append(json.dumps({
                "job": job, "rank": 0, "host": "h", "lane": "m", "name": name, "kind": "metric", "step": step, "start_ns": at,
                "end_ns": at, "span_id": f"{step * 10 + n + 1:016x}", "value": float(value[step]), "attrs": {"batch_id": f"b{step}"},
            }))  # fmt: skip
    return "\n".join(lines).encode()


def test_anomalies_come_with_step_rank_and_batch_and_causes_with_paths(tmp_path: Path):
    with InProcess(tmp_path) as service:
        service.post("/v1/events", gzip.compress(metrics("m")), encode.NDJSON_TYPE, encoding="gzip")
        service.derive("m")
        answer = service.get("/v1/jobs/m/anomalies", sigmas=6)
        AnomaliesAnswer.model_validate(answer)
        assert [(a["class"], a["step"], a["rank"], a["batch"]) for a in answer["anomalies"]] == [
            ("gradient_explosion", 40, 0, "b40"),
            ("gradient_vanishing", 41, 0, "b41"),
            ("loss_spike", 80, 0, "b80"),
        ]
        found = service.get("/v1/jobs/m/causes", of="step_time")
        CausesAnswer.model_validate(found)
        assert [c["metric"] for c in found["causes"]] == ["queue_depth"]
        assert found["kind"] == "statistical"
        assert service.get("/v1/jobs/m/causes", of="temperature")["causes"] == []
        assert service.request("GET", "/v1/jobs/m/causes", params={"of": "nothing"}).status_code == 404
