"""Pages of any size are the same rows as one big page, whatever the events look like."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inprocess import InProcess

T0 = 1_800_000_000_000_000_000


@st.composite
def an_event(draw: st.DrawFn) -> dict[str, Any]:
    start, length = T0 + draw(st.integers(0, 6)), draw(st.integers(-3, 4))
    rank, serial = draw(st.integers(0, 2)), draw(st.integers(1, 200))
    if draw(st.integers(0, 9)) == 0:  # half of a pair
        half = draw(st.sampled_from(("start", "end")))
        return {"event": f"forward_{half}", "rank": rank, "timestamp_ns": start, "span_id": f"{serial:016x}", "attrs": {"job": "p"}}
    end = None if draw(st.integers(0, 9)) == 0 else start + length
    return {"job": "p", "rank": rank, "name": "w", "start_ns": start, "end_ns": end, "span_id": f"{serial:016x}"}


@settings(max_examples=20)
@given(events=st.lists(an_event(), min_size=1, max_size=30), limit=st.integers(1, 7))
def test_pages_join_to_the_whole(events: list[dict[str, Any]], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder, InProcess(Path(folder)) as service:
        service.post("/v1/events", "\n".join(map(json.dumps, events)).encode(), "application/x-ndjson")
        service.derive("p")
        whole = service.get("/v1/jobs/p/events", limit=1000)
        assert whole["next_cursor"] is None
        assert {(e["rank"], e["span_id"]) for e in whole["events"]} == {(e["rank"], e["span_id"]) for e in events}
        paged, cursor = [], None
        for _ in range(len(events) + 1):
            page = service.get("/v1/jobs/p/events", limit=limit, **({"cursor": cursor} if cursor else {}))
            paged += page["events"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert paged == whole["events"]
