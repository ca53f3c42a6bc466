"""After a restart the list of jobs says again how its latest jobs are, without anybody opening them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from crossrank.limits import Limits
from crossrank.query.catch_up import latest_within
from crossrank.store.facts import JobEntry
from tests.support.server import Service

NDJSON = "application/x-ndjson"
PATIENCE_S = 60


def lines(job: str, steps: int) -> bytes:
    rows = []
    for step in range(steps):
        begin = 1_780_000_000_000_000_000 + step * 1_000_000
        row = {"job": job, "rank": 0, "name": "step", "kind": "step", "step": step, "start_ns": begin, "end_ns": begin + 900_000}
        rows.append(json.dumps({**row, "span_id": f"{step + 1:016x}"}))
    return "\n".join(rows).encode()


def test_old_jobs_have_their_spark_line_after_a_restart(tmp_path: Path):
    with Service(tmp_path / "data") as service, service.client() as client:
        for job in ("a", "b"):
            client.post("/v1/events", content=lines(job, 5), headers={"Content-Type": NDJSON}).raise_for_status()
    with Service(tmp_path / "data") as service, service.client() as client:
        deadline = time.monotonic() + PATIENCE_S
        while any(job["version"] is None for job in client.get("/v1/jobs").json()["jobs"]):
            assert time.monotonic() < deadline
        found = client.get("/v1/jobs").json()["jobs"]
        assert {job["job"]: (job["steps"], job["spark_ns"]) for job in found} == dict.fromkeys("ab", (5, [900_000] * 5))


ENTRIES = [JobEntry("old", (0,), 1, 3, 10), JobEntry("large", (0,), 2, 20, 20), JobEntry("new", (0,), 3, 5, 30)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), ["new", "large", "old"]),
        (Limits(catch_up_events=12), ["new", "old"]),  # the large one does not fit beside the newest, the old one does
        (Limits(derived_jobs=1), ["new"]),
        (Limits(catch_up_events=0), []),
    ],
)
def test_catching_up_is_bounded(limits: Limits, expected: list[str]):
    assert latest_within(ENTRIES, limits) == expected
