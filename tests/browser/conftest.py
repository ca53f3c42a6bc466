"""One service with a simulated and a real job, and one browser, for all tests of the page."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crossrank.commands.simulate import post
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.files import truth_with_costs
from crossrank.simulate.job import Simulated, simulate
from tests.support.browser import Page, require_chromium, start_driver
from tests.support.server import Service, derived

SLOW = SlowCompute(rank=5, phase="forward", steps=(4, 11), extra_ns=40_000_000)
REAL_SLOW_RANK = "slow_rank_3d_w8"
SEED = 11


@dataclass(frozen=True)
class Jobs:
    """The jobs of the service: one simulated with a slow rank, one really run with gloo."""

    simulated: Simulated
    truth: dict
    sim: str = "page-sim"
    real: str = REAL_SLOW_RANK  # the recording's own events say so


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    require_chromium()
    with Service(tmp_path_factory.mktemp("page") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def jobs(service: Service, recordings: Path) -> Jobs:
    print(f"simulator seed {SEED}")
    simulated = simulate(JobConfig(job=Jobs.sim, dp=4, tp=2, pp=2, steps=16), (SLOW,), seed=SEED)
    post(simulated, service.url)
    with service.client() as client:
        for file in sorted((recordings / "gloo" / REAL_SLOW_RANK / "events").glob("rank*.ndjson.gz")):
            body = gzip.decompress(file.read_bytes())
            client.post("/v1/events", content=body, headers={"content-type": "application/x-ndjson"}).raise_for_status()
        derived(client, Jobs.sim)
        derived(client, Jobs.real)
    return Jobs(simulated, truth_with_costs(simulated))


@pytest.fixture(scope="session")
def driver() -> Iterator:
    opened = start_driver()
    yield opened
    opened.quit()


@pytest.fixture
def page(driver, service: Service, jobs: Jobs) -> Iterator[Page]:
    """A tab on the service; whatever it complains about fails the test."""
    tab = Page(driver, service.url)
    tab.theme("light")
    yield tab
    assert tab.faults() == []
