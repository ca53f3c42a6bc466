"""Perfetto and Chrome exports against the events, collectives and critical path that the service itself tells."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crossrank.limits import Limits
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess
from tests.support.trace_files import TraceFile, read_chrome, read_perfetto

READ = {"perfetto": read_perfetto, "chrome": read_chrome}
HOSTILE = '</script><script>alert("1")</script>\u2028\x01\\"\'}],'
T0 = 1_800_000_000_000_000_123  # not a multiple of 256: a double would lose it


@cache
def body() -> bytes:
    """A job of 16 ranks, rank 3 is slow in some steps."""
    slow = (SlowCompute(rank=3, phase="forward", steps=(2, 5), extra_ns=6_000_000),)
    config = JobConfig(job="sim", dp=4, tp=2, pp=2, steps=6, microbatches=2, ranks_per_host=2)
    return encode.ndjson(simulate(config, slow, seed=1).events)


@contextmanager
def serving(folder: Path, limits: Limits | None = None) -> Iterator[InProcess]:
    with InProcess(folder, limits) as running:
        running.post("/v1/events", body(), encode.NDJSON_TYPE)
        running.derive("sim")
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        yield running


def exported(service: InProcess, job: str, how: str, **params: Any) -> TraceFile:
    answer = service.request("GET", f"/v1/jobs/{job}/export", params={"format": how, **params})
    assert answer.status_code == 200, answer.text
    return READ[how](answer.content)


def told(service: InProcess, job: str, aligned: str = "repaired", **params: Any) -> list[dict[str, Any]]:
    return service.get(f"/v1/jobs/{job}/events", aligned=aligned, limit=100_000, **params)["events"]


def post(service: InProcess, job: str, *events: dict[str, Any]) -> None:
    rows = [{"job": job, "host": "h", "span_id": f"{i + 1:016x}", **e} for i, e in enumerate(events)]
    service.post("/v1/events", "\n".join(json.dumps(r) for r in rows).encode(), "application/x-ndjson")
    service.derive(job)


@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize("aligned", ["raw", "fit", "repaired"])
def test_spans_and_times_are_those_of_events(service: InProcess, how: str, aligned: str):
    trace = exported(service, "sim", how, ranks="0,3,8-10", aligned=aligned, **{"from": 2, "to": 4})
    events = [e for r in (0, 3, 8, 9, 10) for e in told(service, "sim", aligned, rank=r) if 2 <= e["step_inferred"] <= 4]
    drawn = Counter((s.track[0], s.args["span_id"], s.name, s.category, s.start_ns, s.end_ns) for s in trace.of_ranks())
    expected = Counter(
        (f"rank {e['rank']}", e["span_id"], e["name"], e["kind"], e["aligned_start_ns"], e.get("aligned_end_ns")) for e in events
    )
    assert drawn == expected
    assert len(drawn) == 5 * 3 * 24
    attributes = {(s.track[0], s.args["span_id"]): s.args for s in trace.of_ranks()}
    for event in events:
        args = attributes[f"rank {event['rank']}", event["span_id"]]
        assert args.get("attrs") == event.get("attrs")
        assert args.get("group") == event.get("group")
        assert int(args["raw_start_ns"]) == event["start_ns"]
        assert args["bound_ns"] == event["bound_ns"]
    assert trace.notes["times"] == aligned
    assert trace.notes["clock_reference"]


@pytest.mark.parametrize("how", READ)
def test_arrows_go_from_the_last_arriver_to_those_who_waited(service: InProcess, how: str):
    trace = exported(service, "sim", how, top=16)
    events = told(service, "sim")
    collectives = service.get("/v1/jobs/sim/collectives", limit=100_000)["collectives"]
    span = {(e["group"], e["seq"], e["rank"]): e for e in events if e["kind"] == "collective"}
    expected = set()
    for c in collectives:
        last = c["last_arriver"]
        if last is None:
            continue
        cause = span[c["group"], c["seq"], last]
        for rank in c["members"]:
            effect = span[c["group"], c["seq"], rank]
            if effect["aligned_start_ns"] < c["last_arrival_ns"]:
                expected.add(((f"rank {last}", cause["span_id"]), (f"rank {rank}", effect["span_id"])))
    sends = {(e["group"], e["seq"], e["rank"], e["peer"]): e for e in events if e["kind"] == "send"}
    for e in events:
        if e["kind"] == "recv":
            sent = sends[e["group"], e["seq"], e["peer"], e["rank"]]
            expected.add(((f"rank {sent['rank']}", sent["span_id"]), (f"rank {e['rank']}", e["span_id"])))
    assert trace.arrows() == expected
    assert len(expected) > 300
    assert trace.notes["arrows"] == len(expected)


@pytest.mark.parametrize("how", READ)
def test_the_critical_path_has_a_track_of_its_own(service: InProcess, how: str):
    trace = exported(service, "sim", how, ranks="0", **{"from": 3, "to": 3})
    path = service.get("/v1/jobs/sim/steps/3/critical-path")
    drawn = trace.on("critical path", "critical path")
    assert [(s.args["rank"], s.args["lane"], s.start_ns, s.end_ns) for s in drawn] == [
        (s["rank"], s["lane"], s["start_ns"], s["end_ns"]) for s in path["segments"]
    ]
    assert [s.name for s in trace.on("critical path", "steps")] == ["step 3"]


def test_ranks_are_chosen_by_what_they_tell(service: InProcess):
    one = exported(service, "sim", "perfetto", top=1)
    assert {s.track[0] for s in one.of_ranks()} == {"rank 3"}
    assert one.notes["ranks"] == [{"rank": 3, "why": "named by a finding: straggler", "spans": 144}]
    assert "host1, named by a finding: straggler" in one.labels["rank 3"]
    assert "right within" in one.labels["rank 3"]
    for params, field in (
        ({"ranks": "99"}, "ranks"),
        ({"ranks": "1;2"}, "ranks"),
        ({"ranks": "1", "top": 2}, "top"),
        ({"top": 0}, "top"),
        ({"format": "parquet", "top": 2}, "top"),
        ({"format": "svg"}, "format"),
    ):
        answer = service.request("GET", "/v1/jobs/sim/export", params={"format": "chrome", **params})
        assert answer.status_code in (400, 404), params
        assert answer.json()["error"]["detail"]["field"] == field


def test_what_does_not_fit_is_left_out_from_a_moment_on(tmp_path: Path):
    with serving(tmp_path, Limits(export_spans=500)) as service:
        answer = service.request("GET", "/v1/jobs/sim/export", params={"format": "chrome", "top": 16})
    trace = read_chrome(answer.content)
    assert answer.headers["x-crossrank-truncated"] == "true"
    assert trace.notes["truncated"] is True
    assert 0 < len(trace.of_ranks()) <= 500
    assert max(s.start_ns for s in trace.of_ranks()) < int(trace.notes["left_out_from_ns"])


@pytest.mark.parametrize("how", READ)
def test_overlapping_spans_go_to_tracks_of_their_own(tmp_path: Path, how: str):
    spans = {
        "outer": (0, 100),
        "inner": (10, 50),
        "crossing": (40, 120),
        "later": (100, 130),
        "again": (110, 140),
        "touching": (50, 60),
    }
    with InProcess(tmp_path) as service:
        post(
            service,
            "o",
            *({"rank": 0, "lane": "l", "name": n, "start_ns": T0 + a, "end_ns": T0 + b} for n, (a, b) in spans.items()),
        )
        trace = exported(service, "o", how)
    assert {s.name: (s.start_ns - T0, (s.end_ns or 0) - T0) for s in trace.of_ranks()} == spans
    where = {s.name: (s.track[1], s.depth) for s in trace.of_ranks()}
    assert where == {
        "outer": ("l", 0),
        "inner": ("l", 1),
        "touching": ("l", 1),
        "crossing": ("l +1", 0),
        "later": ("l", 0),
        "again": ("l +2", 0),
    }


@pytest.mark.parametrize("how", READ)
def test_open_spans_marks_samples_and_hostile_names(tmp_path: Path, how: str):
    with InProcess(tmp_path) as service:
        post(
            service,
            "x",
            {"rank": 0, "lane": HOSTILE, "name": "open", "start_ns": T0, "end_ns": None},
            {
                "rank": 0,
                "lane": HOSTILE,
                "name": HOSTILE,
                "start_ns": T0 + 5,
                "end_ns": T0 + 6,
                "attrs": {HOSTILE: HOSTILE, "n": 2**60 + 1},
            },
            {"rank": 0, "lane": HOSTILE, "name": "mark", "kind": "mark", "start_ns": T0 + 7, "end_ns": T0 + 7},
            {"rank": 0, "lane": "m", "name": "loss", "kind": "metric", "start_ns": T0 + 1, "end_ns": T0 + 1, "value": 0.1},
            {"rank": 0, "lane": "m", "name": "loss", "kind": "metric", "start_ns": T0 + 9, "end_ns": T0 + 9, "value": -2.5},
            {"rank": 70_000, "lane": "m", "name": "n", "start_ns": T0, "end_ns": T0 + 2**40, "host": HOSTILE},
        )
        trace = exported(service, "x", how)
    by_name = {s.name: s for s in trace.of_ranks()}
    assert by_name["open"].end_ns is None
    assert by_name["open"].track == ("rank 0", HOSTILE)
    assert (by_name[HOSTILE].start_ns, by_name[HOSTILE].end_ns, by_name[HOSTILE].depth) == (T0 + 5, T0 + 6, 1)
    assert by_name[HOSTILE].args["attrs"] == {HOSTILE: HOSTILE, "n": 2**60 + 1}
    assert (by_name["mark"].start_ns, by_name["mark"].end_ns) == (T0 + 7, T0 + 7)
    assert trace.samples == [(("rank 0", "loss"), T0 + 1, 0.1), (("rank 0", "loss"), T0 + 9, -2.5)]
    assert by_name["n"].end_ns == T0 + 2**40
    assert trace.labels[f"rank {70_000}"].startswith(HOSTILE)


@pytest.mark.parametrize("how", READ)
def test_a_job_without_anything_to_draw(tmp_path: Path, how: str):
    with InProcess(tmp_path) as service:
        post(service, "e", {"rank": 0, "lane": "l", "name": "n", "start_ns": T0, "end_ns": T0 + 1, "step": 1})
        trace = exported(service, "e", how, **{"from": 7})
    assert trace.of_ranks() == []
    assert trace.notes["arrows"] == 0
