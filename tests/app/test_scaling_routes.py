"""Scaling over REST and on the command line: three runs of a job, and a token that may see one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossrank.api.scaling_routes import ScalingAnswer
from crossrank.auth.tokens import create_token
from crossrank.cli import app
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import ARROW_TYPE, arrow_stream
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

NAMES = {2: "run-2", 4: "run,4", 8: "run/8"}
ALL = "run-2,run%2C4,run/8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scaling") / "data"
    with InProcess(path) as service:
        for ranks, name in NAMES.items():
            config = JobConfig(job=name, dp=ranks, tp=1, pp=1, steps=6, microbatches=1)
            service.post("/v1/events", arrow_stream(simulate(config, seed=ranks).events), ARROW_TYPE)
    return path


def test_efficiency_falls_by_the_communication_that_grows(folder: Path):
    with InProcess(folder) as service:
        answer = service.get("/v1/scaling", jobs=ALL)
    ScalingAnswer.model_validate(answer)
    assert answer["mode"] == "weak"
    assert [p["ranks"] for p in answer["points"]] == [2, 4, 8]
    assert [p["efficiency"] for p in answer["points"]] == sorted((p["efficiency"] for p in answer["points"]), reverse=True)
    shares = answer["points"][-1]["loss_shares"]
    assert max(shares, key=shares.get) == "communication"
    assert "communication" in answer["sentence"]


@pytest.mark.parametrize(
    ("jobs", "status"),
    [("run-2", 400), ("run-2,run-2", 400), ("run-2,nobody", 404), ("", 400), (",".join(map(str, range(17))), 400)],
)
def test_what_cannot_be_answered_is_refused(folder: Path, jobs: str, status: int):
    with InProcess(folder) as service:
        assert service.request("GET", "/v1/scaling", params={"jobs": jobs}).status_code == status


def test_the_command_prints_a_row_a_job(folder: Path):
    run = CliRunner()
    told = run.invoke(app, ["scaling", *NAMES.values(), "--data", str(folder)])
    assert told.exit_code == 0, told.output
    assert all(name in told.output for name in NAMES.values())
    assert "weak scaling" in told.output
    found = json.loads(run.invoke(app, ["scaling", *NAMES.values(), "--json", "--mode", "strong", "--data", str(folder)]).stdout)
    assert found["mode"] == "strong"
    wrong = run.invoke(app, ["scaling", *NAMES.values(), "--mode", "fast", "--data", str(folder)])
    assert wrong.exit_code != 0


def test_a_token_of_one_job_sees_no_other_in_the_list(folder: Path, tmp_path: Path):
    _, own = create_token(tmp_path, "read", "run-2", 0)
    _, every = create_token(tmp_path, "read", None, 0)
    _, writer = create_token(tmp_path, "ingest", None, 0)
    with InProcess(tmp_path) as service:

        def asked(token: str) -> tuple[int, str]:
            answer = service.request(
                "GET", "/v1/scaling", params={"jobs": "run-2,run/8"}, headers={"Authorization": f"Bearer {token}"}
            )
            return answer.status_code, answer.text

        assert asked(writer)[0] == 403
        assert asked(own)[0] == 404
        assert "run/8" in asked(own)[1]
        assert "run-2" in asked(every)[1]  # may see both, but there is none
