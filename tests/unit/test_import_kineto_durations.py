"""Durations that cannot be, and what must not become of them: reports 18, 19 and 25 from the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossrank.analysis.breakdown import CATEGORIES, breakdown
from crossrank.analysis.steps import find_steps
from crossrank.model.flags import EventFlag
from tests.support.pipeline import timeline_of, topology_of
from tests.support.server import Service, derived
from tests.support.two_formats import imported
from tests.unit.test_import_kineto import BASE, read, rows, span, trace

KERNEL: dict[str, Any] = {"cat": "kernel", "pid": 0, "tid": 7}


def kernel(name: str, ts: object, dur: object, **more: Any) -> str:
    return span(name, ts, dur, **{**KERNEL, **more})


def times(data: bytes) -> list[tuple[int, int, bool]]:
    """(start, length, clipped) in us of every span."""
    return [
        ((r["start_ns"] - BASE) // 1000, (r["end_ns"] - r["start_ns"]) // 1000, bool(r["flags"] & EventFlag.CLIPPED))
        for r in rows(data)
    ]


def test_a_duration_that_runs_over_the_next_kernels_is_cut_and_kept_beside():
    """Report 19."""
    data = trace(kernel("bad", 1, 1_600_000), kernel("next", 101, 50), kernel("other stream", 1, 30, tid=8))
    assert times(data) == [(1, 100, True), (101, 50, False), (1, 30, False)]
    found = rows(data)
    assert found[0]["attrs"]["recorded_ns"] == 1_600_000_000
    assert "recorded_ns" not in found[1]["attrs"]
    assert any("1 spans of the device" in w for w in read(data).warnings)


def test_kernels_that_start_before_the_one_before_has_ended_stay_as_they_are():
    """Report 18: programmatic dependent launch."""
    data = trace(kernel("a", 1, 100), kernel("b", 91, 60), span("Stream Sync", 1, 200, cat="cuda_sync", pid=0, tid=7))
    assert times(data) == [(1, 100, False), (91, 60, False), (1, 200, False)]


def test_what_ends_long_after_the_host_stopped_is_cut_there():
    data = trace(span("host", 1, 500), kernel("last", 100, 9_000_000))
    assert times(data)[1] == (100, 401, True)
    assert times(trace(span("host", 1, 500), kernel("last", 100, 90_000)))[1] == (100, 90_000, False)


@pytest.mark.parametrize(
    "dur", ["9223372036854775", "1e30", "-5", "Infinity", "inf", "nan", "18446744073709551.615", "700000000000"]
)
@pytest.mark.parametrize("category", ["kernel", "cpu_op"])
def test_a_duration_beyond_any_profile_is_a_moment(dur: str, category: str):
    data = trace(span("bad", 5, dur, cat=category), span("good", 6, 2))
    assert [(start, length) for start, length, _ in times(data)] == [(5, 0), (6, 2)]
    assert any("no usable duration" in w or "inf or nan" in w for w in read(data).warnings)


@pytest.mark.parametrize("ts", ["9223372036854775", "1e19", "-9223372036854775"])
def test_a_time_beyond_int64_is_refused(ts: str):
    decoded = read(trace(span("bad", ts, 1), span("good", 6, 2)))
    assert [r.reason for r in decoded.rejections] == ["bad_type"]
    assert decoded.rows.num_rows == 1


def test_a_base_beyond_int64_is_none():
    data = trace(span("good", 6, 2), before='"baseTimeNanoseconds": 9223372036854775807')
    assert any("not since the epoch" in w for w in read(data).warnings)


def test_a_long_kernel_alone_on_its_stream_is_believed():
    assert times(trace(kernel("long", 1, 3_000_000)))[0] == (1, 3_000_000, False)


def parts_of(*events: str) -> dict[str, int]:
    """us of every part in step 0 of rank 3."""
    timeline = timeline_of(imported([("kineto", trace(*events), 3)]), job="both")
    found = breakdown(timeline, find_steps(timeline, topology_of(timeline)))
    return {part: ns // 1000 for part, ns in zip(CATEGORIES, found.time_ns[0].tolist(), strict=True)}


NCCL: dict[str, Any] = {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[3]"}


def test_busy_time_is_the_union_of_overlapping_kernels_and_no_sync():
    """Report 18: 150 of 200, not 160; the sync row is no work."""
    found = parts_of(
        span("ProfilerStep#0", 1, 200, cat="user_annotation"),
        kernel("a", 1, 100),
        kernel("b", 91, 60),
        span("Stream Sync", 1, 200, cat="cuda_sync", pid=0, tid=7),
    )
    assert found["compute"] == 150
    assert sum(found.values()) == 200


def test_what_overlaps_is_measured_against_compute_and_not_against_a_sync():
    """Report 25: compute [0,50], communication [40,100], a sync over all: 50 exposed of 60, nothing idle."""
    found = parts_of(
        span("ProfilerStep#0", 1, 100, cat="user_annotation"),
        kernel("gemm", 1, 50),
        kernel("ncclDevKernel_AllReduce", 41, 60, tid=20, **NCCL),
        span("Stream Sync", 1, 100, cat="cuda_sync", pid=0, tid=7),
    )
    assert found["compute"] == 50
    assert sum(ns for part, ns in found.items() if part in ("wait", "transfer")) == 50
    assert found["idle"] == found["sync"] == 0


def test_totals_stay_within_the_wall():
    """Report 19."""
    found = parts_of(span("ProfilerStep#0", 1, 300, cat="user_annotation"), kernel("bad", 1, 1_600_000), kernel("next", 101, 50))
    assert sum(found.values()) == 300
    assert found["compute"] == 150


def test_a_service_keeps_the_job_within_its_trace(tmp_path: Path):
    data = trace(span("ProfilerStep#0", 1, 300, cat="user_annotation"), kernel("bad", 1, 1_600_000), kernel("next", 101, 50))
    with Service(tmp_path / "data") as service, service.client() as client:
        client.post("/v1/import", params={"format": "kineto", "job": "rocm"}, content=data).raise_for_status()
        derived(client, "rocm")
        summary = client.get("/v1/jobs/rocm").json()
        (event,) = [e for e in client.get("/v1/jobs/rocm/events").json()["events"] if e["name"] == "bad"]
    assert summary["span"]["duration_ns"] == 300_000
    attrs = event["attrs"] if isinstance(event["attrs"], dict) else json.loads(event["attrs"])
    assert attrs["recorded_ns"] == 1_600_000_000
