"""Ranks that believe different memberships of one group, over HTTP: as events while the job hangs, and as dumps afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_app_verdicts import SECOND, Clock, with_clock
from tests.support.inprocess import InProcess
from tests.support.server import Service, derived

AT = 1_780_000_000_000_000_000
PERIOD = 100_000_000


def posted(belief: dict[int, list[int]], steps: int = 5) -> bytes:
    """One all-reduce a step of group dp, the last one open; every rank gives the members it believes in."""
    rows: list[dict[str, Any]] = []
    for rank, members in belief.items():
        for step in range(steps):
            at, last = AT + step * PERIOD, step == steps - 1
            common = {"job": "m", "rank": rank, "host": f"h{rank}", "step": step}
            ends = (None, None) if last else (at + 60_000_000, at + 99_000_000)
            ids = (f"{rank:08x}{2 * step + 1:08x}", f"{rank:08x}{2 * step + 2:08x}")
            rows.append(common | {"kind": "step", "name": "step", "start_ns": at, "end_ns": ends[1], "span_id": ids[0]})
            rows.append(
                common | {
                    "kind": "collective", "name": "all_reduce", "op": "all_reduce", "group": "dp", "group_ranks": members, "seq": step + 1,
                    "bytes": 64, "start_ns": at + 50_000_000, "end_ns": ends[0], "span_id": ids[1],
                }
            )  # fmt: skip
    return "\n".join(map(json.dumps, rows)).encode()


def asked(folder: Path, belief: dict[int, list[int]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    with InProcess(folder / "data") as service:
        clock = Clock(AT + SECOND)
        with_clock(service, clock)
        service.post("/v1/events", posted(belief), "application/x-ndjson")
        service.derive("m")
        clock.now_ns += 60 * SECOND
        return service.get("/v1/jobs/m/mismatches")["mismatches"], service.get("/v1/jobs/m/hangs")


def test_the_one_that_believes_something_else_is_named_and_its_victims_are_not(tmp_path: Path):
    (found,), hang = asked(tmp_path, {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1, 2, 3], 3: [0, 1, 3]})
    assert (found["class"], found["group"], found["odd_ranks"], found["seq"]) == ("membership", "dp", [3], 1)
    assert found["odd"] == [{"rank": 3, "called": "ranks 0-1, 3"}]
    assert [(c["rank"], c["reason"]) for c in hang["culprits"]] == [(3, "desynchronised")]
    assert sorted(w["rank"] for w in hang["waiting"] if w["rank"] != 3) == [0, 1, 2]


def test_of_two_that_differ_nobody_is_named(tmp_path: Path):
    (found,), hang = asked(tmp_path, {0: [0, 1], 1: [0, 1, 2]})
    assert (found["class"], found["odd_ranks"], found["candidates"]) == ("membership", [], [0, 1])
    assert "nobody can tell" in found["sentence"]
    assert hang["culprits"] == []


@pytest.mark.parametrize(
    "belief",
    [{0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}, {r: [0, 1, 2, 3] for r in range(4)}],
    ids=["two groups of a name", "one"],
)
def test_who_agrees_is_not_accused(tmp_path: Path, belief: dict[int, list[int]]):
    found, hang = asked(tmp_path, belief)
    assert found == []
    assert hang["culprits"] == []


def dump(rank: int, members: list[int]) -> bytes:
    entries = [
        {
            "record_id": seq, "process_group": ["7", "dp"], "collective_seq_id": seq, "profiling_name": "nccl:all_reduce", "state": "scheduled",
            "retired": seq < 5, "time_created_ns": AT + seq * PERIOD + rank, "input_sizes": [[16]], "input_dtypes": ["Float"],
            "output_sizes": [[16]], "output_dtypes": ["Float"],
        }
        for seq in range(1, 6)
    ]  # fmt: skip
    return json.dumps({"version": "2.9", "entries": entries, "pg_config": {"7": {"name": "7", "ranks": str(members)}}}).encode()


def test_dumps_imported_into_a_service_tell_the_same(tmp_path: Path):
    belief = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1, 2], 3: [0, 1, 2, 3]}
    with Service(tmp_path / "data") as service, service.client() as client:
        for rank in (2, 0, 3, 1):
            params: dict[str, Any] = {"format": "flight_recorder", "job": "d", "rank": rank}
            client.post("/v1/import", params=params, content=dump(rank, belief[rank])).raise_for_status()
        derived(client, "d")
        found = client.get("/v1/jobs/d/mismatches").json()["mismatches"]
        hang = client.get("/v1/jobs/d/hangs").json()
    assert [(m["class"], m["odd_ranks"]) for m in found] == [("membership", [2])]
    assert [(c["rank"], c["reason"]) for c in hang["culprits"]] == [(2, "desynchronised")]
