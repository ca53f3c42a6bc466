"""The notebook client against a real service."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import polars as pl
import pyarrow as pa
import pytest

import crossrank
from crossrank.errors import BadParameter, NotFound, Unreachable
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import ARROW_TYPE, arrow_stream
from crossrank.simulate.faults import Hang, SlowCompute
from crossrank.simulate.job import simulate
from tests.support.server import Service, derived

JOB, SLOW = "team/simulated", 2


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory):
    config = JobConfig(job=JOB, dp=2, tp=2, pp=1, steps=6, ranks_per_host=2)
    job = simulate(config, [SlowCompute(SLOW, extra_ns=10_000_000), Hang(1, step=5)], seed=8)
    with Service(tmp_path_factory.mktemp("notebook") / "data") as service:
        with service.client() as http:
            http.post("/v1/events", content=arrow_stream(job.events), headers={"Content-Type": ARROW_TYPE}).raise_for_status()
            derived(http, JOB)
        with crossrank.Client(service.url) as client:
            yield client


def exact(values: list[int | None]) -> list[int]:
    return [v for v in values if v is not None]


def test_every_question_comes_in_every_form(client):
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "steps": ("steps", {"last": 3}), "stragglers": ("stragglers", {}), "bottlenecks": ("findings", {}), "ranks": ("ranks", {}),
        "collectives": ("collectives", {"step": 2}), "clocks": ("domains", {}), "breakdown": ("rows", {"rank": 1}),
        "bandwidth": ("speeds", {}), "mismatches": ("mismatches", {}), "quality": ("rows", {}),
        "compare": ("parts", {"base_to": 1, "first": 2}), "critical_path": ("segments", {"step": 2}),
    }  # fmt: skip
    for name, (rows, params) in asked.items():
        answer = getattr(client, name)(JOB, **params)
        for as_, kind in (("arrow", pa.Table), ("pandas", pd.DataFrame), ("polars", pl.DataFrame)):
            table = getattr(client, name)(JOB, as_=as_, **params)
            assert isinstance(table, kind), name
            assert len(table) == len(answer[rows]), name
    assert client.summary(JOB)["world_size"] == 4
    assert client.jobs(as_="pandas")["job"].tolist() == [JOB]
    assert client.hangs(JOB)["culprits"]
    assert client.whatif(JOB, [{"rank": SLOW, "kind": "compute", "as": "median"}])["saving_ns"] > 0


@pytest.mark.parametrize("timestamps", [False, True])
def test_no_nanosecond_is_lost_even_where_ends_are_missing(client, timestamps):
    told = client.get("/v1/jobs/team%2Fsimulated/events", limit=100_000)["events"]
    ends = [e["end_ns"] for e in told]
    assert None in ends
    for as_ in ("arrow", "pandas", "polars"):
        table = client.events(JOB, as_=as_, timestamps=timestamps)
        assert len(table) == len(told)
        if as_ == "pandas":
            column = table["end_ns"].dropna()
            found = [int(t.value) for t in column] if timestamps else [int(v) for v in column]
            assert "float" not in str(table["end_ns"].dtype)
        elif as_ == "polars":
            found = table["end_ns"].cast(pl.Int64).drop_nulls().to_list()
        else:
            found = table["end_ns"].cast(pa.int64()).drop_null().to_pylist()
        assert found == exact(ends)


def test_events_are_read_page_by_page_up_to_the_limit(client, monkeypatch):
    whole = client.events(JOB)
    monkeypatch.setattr("crossrank.notebook.client._PAGE", 100)
    assert client.events(JOB)["span_id"].to_pylist() == whole["span_id"].to_pylist()
    assert client.events(JOB, limit=150)["span_id"].to_pylist() == whole["span_id"].to_pylist()[:150]
    assert len(client.events(JOB, as_="dict", rank=1, kind="step")) == 6


def test_the_figure_is_the_one_of_the_page(client):
    figure = client.figure("heatmap", JOB, theme="dark")
    assert isinstance(figure, go.Figure)
    page = client.get("/v1/jobs/team%2Fsimulated/figures/heatmap", theme="dark")
    assert figure.layout.paper_bgcolor == page["layout"]["paper_bgcolor"]
    assert list(figure.data[0].y) == [0, 1, 2, 3]
    delay = client.heatmap(JOB)
    assert delay["hottest_rank"] == SLOW
    assert int(np.nansum(delay["delay_ns"], axis=1).argmax()) == SLOW


def test_faults_are_those_of_the_service(client):
    with pytest.raises(NotFound, match="no job"):
        client.steps("none")
    with pytest.raises(BadParameter, match="name"):
        client.figure("nope", JOB)
    with pytest.raises(BadParameter, match="as_"):
        client.steps(JOB, as_="excel")
    with pytest.raises(Unreachable):
        crossrank.Client("http://127.0.0.1:9").jobs()


def test_importing_crossrank_stays_cheap():
    script = "import sys, crossrank; print([m for m in ('httpx', 'pyarrow', 'plotly', 'numpy', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
