"""Pages of any size are the same rows as one big page, whatever the events look like."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inprocess import InProcess

T0 = 1_800_000_000_000_000_000
JOBS = map("job-{}".format, itertools.count())


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with InProcess(tmp_path_factory.mktemp("data")) as running:
        yield running


@st.composite
def an_event(draw: st.DrawFn) -> dict[str, Any]:
    start, length = T0 + draw(st.integers(0, 6)), draw(st.integers(-3, 4))
    rank, serial = draw(st.integers(0, 2)), draw(st.integers(1, 200))
    if draw(st.integers(0, 9)) == 0:  # half of a pair
        half = draw(st.sampled_from(("start", "end")))
        return {"event": f"forward_{half}", "rank": rank, "timestamp_ns": start, "span_id": f"{serial:016x}", "attrs": {}}
    end = None if draw(st.integers(0, 9)) == 0 else start + length
    return {"rank": rank, "name": "w", "start_ns": start, "end_ns": end, "span_id": f"{serial:016x}"}


@settings(max_examples=20)
@given(events=st.lists(an_event(), min_size=1, max_size=30), limit=st.integers(1, 7))
def test_pages_join_to_the_whole(service: InProcess, events: list[dict[str, Any]], limit: int) -> None:
    job = next(JOBS)  # every example is a job of its own in one service
    named = [e | {"attrs": {"job": job}} if "attrs" in e else e | {"job": job} for e in events]
    service.post("/v1/events", "\n".join(map(json.dumps, named)).encode(), "application/x-ndjson")
    service.derive(job)
    whole = service.get(f"/v1/jobs/{job}/events", limit=1000)
    assert whole["next_cursor"] is None
    assert {(e["rank"], e["span_id"]) for e in whole["events"]} == {(e["rank"], e["span_id"]) for e in events}
    paged, cursor = [], None
    for _ in range(len(events) + 1):
        page = service.get(f"/v1/jobs/{job}/events", limit=limit, **({"cursor": cursor} if cursor else {}))
        paged += page["events"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == whole["events"]
