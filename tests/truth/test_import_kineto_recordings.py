"""Every recorded Kineto trace imports whole: counts, durations, links and overlap equal an independent reading of the file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crossrank.importers.kineto import read
from crossrank.importers.source import Source
from crossrank.limits import Limits


def traces(recordings: Path) -> list[Path]:
    return sorted([*recordings.glob("kineto/**/*.json.gz"), *recordings.glob("gloo/*/kineto/*.json.gz")])


def imported(path: Path) -> pa.Table:
    with path.open("rb") as file:
        parts = list(read(file, Source(path.name, None, 1), Limits()).batches)
    assert [r for part in parts for r in part.rejections] == []
    return pa.concat_tables([part.rows for part in parts])


def written(path: Path) -> dict[str, Any]:
    """The file by the standard library, numbers with a fraction as their text."""
    return json.loads(gzip.decompress(path.read_bytes()), parse_float=str)


def nanoseconds(value: int | str) -> int:
    """Microseconds with at most three decimals."""
    whole, _, fraction = str(value).partition(".")
    assert len(fraction) <= 3
    return int(whole + fraction.ljust(3, "0"))


def test_every_trace_equals_an_independent_reading(recordings):
    for path in traces(recordings):
        truth, rows = written(path), imported(path)
        spans = [e for e in truth["traceEvents"] if e["ph"] == "X"]
        base = truth.get("baseTimeNanoseconds", 0)
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        assert len(rows) == len(spans), path
        assert start.tolist() == [base + nanoseconds(e["ts"]) for e in spans]
        assert int((end - start).sum()) == sum(nanoseconds(e["dur"]) for e in spans)
        assert set(rows["rank"].to_pylist()) == {truth["distributedInfo"]["rank"]}
        assert len(set(rows["span_id"].to_pylist())) == len(spans)
        assert Counter(rows["name"].to_pylist()) == Counter(e["name"] for e in spans)
        annotations = [e["name"] for e in spans if e["cat"] == "user_annotation" and e["name"].startswith("ProfilerStep")]
        is_step = pc.equal(rows["kind"], "step")
        assert rows["step"].filter(is_step).to_pylist() == [int(name.partition("#")[2]) for name in annotations]
        check_launches(spans, rows)
        check_arrows(truth["traceEvents"], rows)


def check_launches(spans: list[dict[str, Any]], rows: pa.Table) -> None:
    """All work on the device is linked to the call that launched it, where that is in the trace."""
    if not any(e["cat"] == "kernel" for e in spans):
        return
    place = {id_: i for i, id_ in enumerate(rows["span_id"].to_pylist())}
    launches = {e["args"]["correlation"]: i for i, e in enumerate(spans) if e["cat"] == "cuda_runtime"}
    for i, links in enumerate(rows["links"].to_pylist()):
        if spans[i]["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            expected = launches.get(spans[i]["args"]["correlation"])
            assert [place[link] for link in links or []] == ([] if expected is None else [expected])


def check_arrows(events: list[dict[str, Any]], rows: pa.Table) -> None:
    """Every arrow whose two ends are operators that start there becomes one link."""
    operators = {(e["tid"], e["ts"]) for e in events if e["ph"] == "X" and e["cat"] == "cpu_op"}
    ends = {(e["id"], e["ph"]): (e["tid"], e["ts"]) in operators for e in events if e.get("cat") == "fwdbwd"}
    whole = [i for i, ph in ends if ph == "f" and ends[i, "f"] and ends.get((i, "s"))]
    on_host = rows.filter(pc.starts_with(rows["lane"], "cpu:"))
    assert pc.sum(pc.list_value_length(on_host["links"])).as_py() in (len(whole), None if not whole else -1)


def merged(intervals: np.ndarray) -> np.ndarray:
    """Disjoint intervals with the same union."""
    ordered = intervals[np.argsort(intervals[:, 0])]
    reach = np.maximum.accumulate(ordered[:, 1])
    first = np.append(True, ordered[1:, 0] > reach[:-1])
    ends = reach[np.append(np.flatnonzero(first)[1:] - 1, len(reach) - 1)]
    return np.stack([ordered[first, 0], ends], axis=1)


def overlap(a: np.ndarray, b: np.ndarray) -> int:
    """Time in both unions: with unions of lengths A and B and of both together C, it is A + B - C."""
    length = [int(np.diff(merged(x), axis=1).sum()) for x in (a, b, np.concatenate([a, b]))]
    return length[0] + length[1] - length[2]


def test_overlap_of_communication_and_computation_is_what_holistic_trace_analysis_reports(recordings):
    path = recordings / "kineto" / "nccl_data.json.gz"
    if not path.exists():
        pytest.skip("this recording is not in the committed sample")
    rows = imported(path).to_pylist()
    # That tool leaves out what was launched in the last step, and rounds every kernel inwards to whole microseconds.
    launch_ns = {r["span_id"]: r["start_ns"] for r in rows}
    last_step_ns = max(r["start_ns"] for r in rows if r["kind"] == "step")
    times = {
        kind: np.array(
            [
                (-(-r["start_ns"] // 1000), max(-(-r["start_ns"] // 1000), r["end_ns"] // 1000))
                for r in rows
                if r["kind"] == kind and launch_ns[r["links"][0]] < last_step_ns
            ]
        )
        for kind in ("collective", "compute")
    }
    share = overlap(times["collective"], times["compute"]) / np.diff(merged(times["collective"]), axis=1).sum()
    assert 100 * share == pytest.approx(14.31, abs=0.05)


def test_communication_carries_its_group_and_members(recordings):
    for path in traces(recordings):
        if path.name == "nccl_data.json.gz":
            rows = [r for r in imported(path).to_pylist() if r["kind"] == "collective" and r["bytes"] is not None]
            assert {(r["group"], tuple(r["group_ranks"]), r["dtype"]) for r in rows} >= {("0", (0, 1), "Float")}
            assert {r["op"] for r in rows} == {"all_reduce", "broadcast"}
