"""What the page asks for, over a simulated job whose faults are known."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.encode import ARROW_TYPE, arrow_stream
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

JOB, SLOW = "simulated", 5
STEPS = 12
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory):
    config = JobConfig(dp=4, tp=2, pp=1, steps=STEPS, ranks_per_host=4, clocks=ClockConfig(offset_ns=20_000_000))
    job = simulate(config, [SlowCompute(SLOW, phase="backward", steps=(4, 9), extra_ns=15_000_000)], seed=4)
    with InProcess(tmp_path_factory.mktemp("views") / "data") as running:
        running.post("/v1/events", arrow_stream(job.events), ARROW_TYPE)
        running.derive(JOB)
        yield running


def ask(service: InProcess, path: str, **params: Any) -> dict[str, Any]:
    return service.get(f"/v1/jobs/{JOB}{path}", **params)


def spans(answer: dict[str, Any]) -> list[dict[str, Any]]:
    columns = answer["spans"]
    assert len({len(c) for c in columns.values()}) == 1
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def matrix(z: dict[str, str]) -> np.ndarray:
    assert z["dtype"] == "f4"
    return np.frombuffer(base64.b64decode(z["bdata"]), dtype="<f4").reshape([int(n) for n in z["shape"].split(", ")])


# --- timeline ---


def test_fine_pixels_show_every_span_as_the_events_have_it(service):
    answer = ask(service, "/timeline", ranks="5", width=16_384, **{"from": 0, "to": 200_000_000})
    base = int(answer["base_ns"])
    shown = {row["id"]: (row["start"], row["end"]) for row in spans(answer) if row["count"] == 1}
    events = ask(service, "/events", rank=5, to_ns=base + 200_000_000, limit=100_000)["events"]
    told = {e["span_id"]: (e["aligned_start_ns"] - base, e["aligned_end_ns"] - base) for e in events}
    assert shown.items() <= told.items()
    assert sum(row["count"] for row in spans(answer)) == len(told)


def test_no_span_is_lost_however_few_the_pixels(service):
    total = ask(service, "")["events"]["stored"]
    for width in (1, 50, 5000):
        assert sum(row["count"] for row in spans(ask(service, "/timeline", width=width))) == total


def test_raw_times_differ_between_hosts_and_repaired_do_not(service):
    lengths = {}
    for how in ("raw", "fit", "repaired"):
        answer = ask(service, "/timeline", aligned=how, kinds="step", width=16_384)
        firsts = [min(r["start"] for r in spans(answer) if r["row"] == row) for row in range(len(answer["rows"]))]
        lengths[how] = max(firsts) - min(firsts)
    assert lengths["raw"] > 1_000_000 > lengths["repaired"]
    assert lengths["fit"] < 1_000_000


def test_rows_are_paged_and_a_rank_is_found(service):
    answer = ask(service, "/timeline", row_from=2, rows=3, locate=SLOW)
    assert [row["rank"] for row in answer["rows"]] == [2, 3, 4]
    assert (answer["located_row"], answer["total_rows"], answer["truncated"]) == (5, 8, True)
    assert {row["row"] for row in spans(answer)} == {0, 1, 2}
    assert [row["rank"] for row in ask(service, "/timeline", ranks="0-1,7")["rows"]] == [0, 1, 7]


def test_the_path_fills_each_step_and_arrows_leave_the_slow_rank(service):
    answer = ask(service, "/timeline")
    step = next(s for s in answer["steps"] if s["step"] == 6)
    path = [p for p in answer["path"] if p["step"] == 6]
    assert sum(p["end"] - p["start"] for p in path) == step["end"] - step["start"]
    assert all(a["end"] == b["start"] for a, b in pairwise(path))
    worst = answer["arrows"][0]
    assert worst["from"]["rank"] in (SLOW, SLOW ^ 1)  # itself, or its partner that waited for it before
    assert all(head["at"] >= worst["from"]["at"] for head in worst["to"])


def test_search_and_hits_agree(service):
    found = ask(service, "/timeline/search", q="OPTIM", limit=1000)
    assert {row["name"] for row in found["found"]} == {"optimizer"}
    answer = ask(service, "/timeline", q="optim", **{"from": 0, "to": 1})
    assert answer["hits"]["total"] == found["total"] == 8 * STEPS
    assert answer["hits"]["next"]["start"] == found["found"][0]["start"]
    assert answer["hits"]["previous"] is None


@pytest.mark.parametrize(
    "params", [{"ranks": "a"}, {"kinds": "nope"}, {"from": 5, "to": 5}, {"width": 0}, {"aligned": "x"}, {"from_ns": "1e9"}]
)
def test_bad_parameters_are_named(service, params):
    answer = service.request("GET", f"/v1/jobs/{JOB}/timeline", params=params)
    assert answer.status_code == 400
    assert answer.json()["error"]["detail"]["field"]


# --- one span ---


def test_a_span_names_its_last_arriver_and_that_one_names_its_waiters(service):
    arrow = max(ask(service, "/timeline", width=16_384)["arrows"], key=lambda a: a["wait_ns"])
    found = ask(service, "/timeline/search", q=arrow["group"], limit=1000)["found"]
    cause = next(f for f in found if (f["rank"], f["start"]) == (arrow["from"]["rank"], arrow["from"]["at"]))
    told = ask(service, f"/spans/{cause['rank']}/{cause['id']}")
    assert told["span"]["start"] == cause["start"]
    assert told["span"]["group"] == arrow["group"]
    assert {w["rank"] for w in told["waited"]} == {head["rank"] for head in arrow["to"]}
    longest = told["waited"][0]
    back = ask(service, f"/spans/{longest['rank']}/{longest['span_id']}")
    across = next(b for b in back["before"] if b["edge"] == "collective")
    assert (across["rank"], across["span_id"], across["certain"]) == (cause["rank"], cause["id"], True)
    assert across["wait_ns"] == longest["wait_ns"]
    assert back["collective"]["last_arriver"] == cause["rank"]


def test_unknown_and_malformed_span_ids(service):
    assert service.request("GET", f"/v1/jobs/{JOB}/spans/0/xyz").status_code == 400
    assert service.request("GET", f"/v1/jobs/{JOB}/spans/0/00000000000000ff").status_code == 404
    assert service.request("GET", f"/v1/jobs/{JOB}/spans/x/00000000000000ff").status_code == 400


# --- heatmap, figures, list, quality ---


def test_the_slow_rank_is_the_hottest_row_in_its_steps_only(service):
    answer = ask(service, "/heatmap")
    delay = matrix(answer["z"])
    assert answer["hottest_rank"] == SLOW
    late = delay[:, 4:10].sum(axis=1)
    assert answer["ranks"][int(late.argmax())] == SLOW
    assert late[SLOW] > 10 * np.sort(late)[-2]
    assert delay[SLOW, :4].max() < 0.2 * delay[SLOW, 4:10].min()


def test_a_reduced_heatmap_keeps_the_maximum(service):
    whole, small = ask(service, "/heatmap"), ask(service, "/heatmap", rows=3, columns=4)
    assert matrix(small["z"]).shape == (3, 4)
    assert matrix(small["z"]).max() == matrix(whole["z"]).max() == np.float32(whole["max_ns"])
    assert (small["ranks"], small["steps"]) == ([0, 3, 6], [0, 3, 6, 9])
    for row, first in enumerate(small["ranks"]):
        for column, step in enumerate(small["steps"]):
            block = matrix(whole["z"])[first : first + 3, step : step + 3]
            assert small["who"][row][column] == first + int(block.max(axis=1).argmax())
    assert whole["who"] is None
    drawn = ask(service, "/figures/heatmap", rows=3)["data"][0]
    assert "%{customdata}" in drawn["hovertemplate"]
    assert set(drawn["customdata"][1][4:10]) == {SLOW}
    part = ask(service, "/heatmap", **{"from": 4, "to": 6})
    np.testing.assert_array_equal(matrix(part["z"]), matrix(whole["z"])[:, 4:7])


@pytest.mark.parametrize("name", ["steps", "heatmap", "breakdown", "clocks", "bandwidth"])
def test_figures_are_drawn(service, name):
    figure = ask(service, f"/figures/{name}", theme="dark")
    assert figure["data"]
    assert figure["layout"]["paper_bgcolor"] == "#14171b"


def test_the_breakdown_adds_up_to_the_steps(service):
    figure = ask(service, "/figures/breakdown")
    total_ms = sum(np.array(bar["y"]) for bar in figure["data"])
    rows = ask(service, "/breakdown")["rows"]
    mean = [np.mean([r["total_ns"] for r in rows if r["step"] == step]) / 1e6 for step in range(STEPS)]
    np.testing.assert_allclose(total_ms, mean, rtol=1e-6)


def test_compare_shows_the_phase_that_moved(service):
    figure = ask(service, "/figures/compare", base_from=0, base_to=3, **{"from": 4, "to": 9})
    bars = figure["data"][0]
    moved = dict(zip(bars["y"], bars["x"], strict=True))
    assert moved["the step"] > 20
    assert max(moved, key=lambda k: moved[k]) in {"the step", f"rank {SLOW}", "phase backward"}


def test_the_list_tells_state_steps_and_top_finding(service):
    (card,) = service.get("/v1/jobs")["jobs"]
    assert card["job"] == JOB
    assert (card["state"], card["ranks_seen"], card["ranks_missing"], card["steps"]) == ("live", 8, 0, STEPS)
    assert len(card["spark_ns"]) == STEPS
    assert card["top_finding"]["ranks"] == [SLOW]
    assert f"ank {SLOW}" in card["top_finding"]["sentence"]


def test_quality_names_what_was_refused_repeated_missing_and_unfinished(tmp_path):
    def line(rank: int, serial: int, **more: Any) -> bytes:
        row = {
            "job": "q",
            "rank": rank,
            "name": EVIL,
            "kind": "compute",
            "start_ns": 10**18 + serial,
            "end_ns": 10**18 + serial + 5,
        }
        row = {k: v for k, v in {**row, "span_id": f"{serial:016x}", **more}.items() if v is not None}
        return json.dumps(row).encode() + b"\n"

    both = {"kind": "collective", "op": "all_reduce", "group": "g", "group_ranks": [0, 1], "seq": 1}
    with InProcess(tmp_path / "data") as service:
        body = line(0, 1) + line(0, 1) + line(0, 2, end_ns=None) + line(0, 3, start_ns=-5) + line(0, 4, **both)
        service.post("/v1/events", body, "application/x-ndjson")
        service.request("POST", "/v1/jobs/q/topology", json={"world_size": 2}).raise_for_status()
        service.derive("q")
        answer = service.get("/v1/jobs/q/quality")
        rows = {(r["class"], r["reason"], r["rank"]): r for r in answer["rows"]}
        assert rows["rejected", "time_range", 0]["count"] == 1
        assert rows["duplicate", "duplicate", None]["count"] == 1
        assert rows["open", "open", 0]["count"] == 1
        assert rows["missing", "no_events", 1]["count"] == 1
        assert rows["missing", "operations", 1]["count"] == 1
        assert rows["unmatched", "alone", None]["count"] == 1
        assert all(r["sentence"] for r in answer["rows"])
        assert [r["rank"] for r in answer["ranks"]] == [0, 1]
        shown = service.get("/v1/jobs/q/timeline", q="<IMG")
        assert shown["names"] == [EVIL]
        assert sum(shown["spans"]["open"]) == 1


def test_a_job_without_steps_or_spans_is_answered_everywhere(tmp_path):
    with InProcess(tmp_path / "data") as service:
        metric = {"job": "m", "rank": 0, "name": "loss", "kind": "metric", "start_ns": 10**18, "end_ns": 10**18, "value": 1.5}
        service.post("/v1/events", json.dumps(metric).encode(), "application/x-ndjson")
        service.derive("m")
        for path in ("/timeline", "/timeline/search?q=x", "/heatmap", "/quality", "/figures/steps", "/figures/heatmap",
                     "/figures/breakdown", "/figures/clocks", "/figures/bandwidth"):  # fmt: skip
            assert service.request("GET", f"/v1/jobs/m{path}").status_code == 200, path
