"""Execution graphs joined to the profile recorded with them by the number of the record function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crossrank.model.trace import JobTrace, trace_from_arrow
from tests.support.inprocess import InProcess
from tests.support.server import Service, derived
from tests.support.two_formats import imported

AT_US = 1_711_964_646_000_000
CALLS = (
    ("step", 0, 100, 1),
    ("aten::linear", 10, 20, 2),
    ("aten::mm", 12, 10, 3),
    ("aten::add", 40, 5, 4),
    ("unnumbered", 50, 5, 0),
)


def profile(rank: int = 3) -> bytes:
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": 1,
            "tid": 2,
            "ts": AT_US + at,
            "dur": dur,
            "args": {"Record function id": number},
        }
        for name, at, dur, number in CALLS
    ]
    return json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}).encode()


def node(id_: int, rf_id: int | None, ctrl: Any = (), data: Any = (), **more: Any) -> dict[str, Any]:
    attrs = [{"name": "rf_id", "type": "uint64", "value": rf_id}] if rf_id is not None else []
    return {"id": id_, "name": f"node {id_}", "ctrl_deps": ctrl, "data_deps": data, "attrs": attrs, **more}


GRAPH = [
    node(1, 1),
    node(2, 2, ctrl=1),
    node(3, 3, ctrl=[2]),
    node(7, 999, data=[3]),  # not in the profile: what depends on it depends on node 3
    node(4, 4, ctrl=[1], data=[7]),
    node(5, 0, ctrl=[1]),  # 0 is no number
]


def graph(nodes: list[dict[str, Any]]) -> bytes:
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}).encode()


def trace_of_files(*files: tuple[str, bytes, int]) -> JobTrace:
    return trace_from_arrow(imported(files), job="both", attempt=0)


def linked(trace: JobTrace) -> list[tuple[str, str]]:
    name = [trace.names[n] for n in trace.name.tolist()]
    return sorted((name[c], name[e]) for c, e in zip(trace.link_cause.tolist(), trace.link_effect.tolist(), strict=True))


EDGES = [("aten::linear", "aten::mm"), ("aten::mm", "aten::add"), ("step", "aten::add"), ("step", "aten::linear")]


def test_dependencies_of_nodes_become_links_of_spans():
    trace = trace_of_files(("kineto", profile(), 3), ("chakra", graph(GRAPH), 3))
    assert linked(trace) == EDGES
    assert len(trace) == len(CALLS)
    assert trace.nodes == {"nodes_joined": 4, "nodes_without_span": 1}
    assert (trace.link_effect[1:] >= trace.link_effect[:-1]).all()


def test_numbers_count_within_a_rank():
    trace = trace_of_files(("kineto", profile(3), 3), ("kineto", profile(4), 4), ("chakra", graph(GRAPH), 4))
    assert linked(trace) == EDGES
    assert set(trace.rank[trace.link_effect].tolist()) == {4}


def test_nodes_with_times_are_spans_until_the_profile_comes():
    timed = [n | {"type": "COMP_NODE", "start_time_micros": AT_US + 10 * n["id"], "duration_micros": 5} for n in GRAPH]
    alone = trace_of_files(("chakra", graph(timed), 3))
    assert len(alone) == len(GRAPH)
    assert len(alone.link_effect) == 6
    both = trace_of_files(("chakra", graph(timed), 3), ("kineto", profile(), 3))
    assert len(both) == len(CALLS) + 2  # those without a span stay spans
    assert set(EDGES) <= set(linked(both))


def test_a_graph_alone_is_on_no_timeline():
    trace = trace_of_files(("chakra", graph(GRAPH), 3))
    assert (len(trace), trace.nodes) == (0, {"nodes_without_span": 5})


def test_a_circle_of_nodes_without_spans_ends():
    circle = [node(8, 500, data=[9]), node(9, 501, data=[8]), node(4, 4, data=[8])]
    assert linked(trace_of_files(("kineto", profile(), 3), ("chakra", graph(circle), 3))) == []


@pytest.mark.parametrize("permuted", [False, True])
def test_the_order_of_files_does_not_matter(permuted: bool):
    files = [("kineto", profile(), 3), ("chakra", graph(GRAPH), 3)]
    events = imported(files[::-1] if permuted else files)
    assert linked(trace_from_arrow(events.take(pa.array(range(len(events))[::-1])), job="both", attempt=0)) == EDGES


def test_over_a_real_service_links_are_causes(tmp_path: Path):
    with Service(tmp_path / "data") as service, service.client() as client:
        for format_, body in (("chakra", graph(GRAPH)), ("kineto", profile())):
            params: dict[str, Any] = {"format": format_, "job": "both", "rank": 3}
            client.post("/v1/import", params=params, content=body).raise_for_status()
        derived(client, "both")
        summary = client.get("/v1/jobs/both").json()
        events = client.get("/v1/jobs/both/events", params={"limit": 100}).json()["events"]
        ids = {e["name"]: f"3:{e['span_id']}" for e in events}
        relation = client.get("/v1/jobs/both/causality", params={"a": ids["aten::mm"], "b": ids["aten::add"]}).json()
    assert summary["joins"] == {"nodes_joined": 4, "nodes_without_span": 1}
    assert summary["span"]["duration_ns"] == 100_000
    assert relation["relation"] == "before"


def test_a_graph_without_any_number_is_refused(tmp_path: Path):
    with InProcess(tmp_path / "data") as service:
        answer = service.request(
            "POST", "/v1/import", content=graph([node(1, None)]), params={"format": "chakra", "job": "j", "rank": 0}
        )
        assert answer.status_code == 400
        assert "Kineto" in answer.json()["error"]["message"]
