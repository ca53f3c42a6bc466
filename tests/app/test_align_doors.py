"""What the doors say of clocks and causes, on a recorded job."""

from __future__ import annotations

import pytest

from tests.app.test_app_verdicts import recorded  # noqa: F401  (a fixture)
from tests.support.inprocess import InProcess

JOB = "/v1/jobs/hang_ddp_w4"


def test_the_cone_of_a_span_reaches_the_ranks_that_wait_for_it(recorded: InProcess):  # noqa: F811
    events = recorded.get(f"{JOB}/events", kind="collective", limit=1000)["events"]
    first = next(e for e in events if e["rank"] == 0 and e["seq"] == 5)
    cone = recorded.get(f"{JOB}/causality/cone", of=f"0:{first['span_id']}")
    assert cone["of"]["span_id"] == first["span_id"]
    assert cone["ranks"] == [0, 1, 2, 3]
    assert cone["stamps"] >= len(cone["entries"]) >= 4
    for entry in cone["entries"][:4]:
        names = {"a": f"0:{first['span_id']}", "b": f"{entry['rank']}:{entry['span_id']}"}
        relation = recorded.get(f"{JOB}/causality", **names)["relation"]
        assert relation == ("before" if entry["at"] == "start" else relation)
    short = recorded.get(f"{JOB}/causality/cone", of=f"0:{first['span_id']}", limit=1)
    assert (len(short["entries"]), short["truncated"]) == (1, True)


def test_a_cone_of_nothing_is_not_found(recorded: InProcess):  # noqa: F811
    answer = recorded.request("GET", f"{JOB}/causality/cone", params={"of": "00000000000000ff"})
    assert answer.status_code == 404


@pytest.mark.parametrize("how", ["raw", "fit", "repaired"])
def test_events_are_aligned_as_asked(recorded: InProcess, how: str):  # noqa: F811
    rows = recorded.get(f"{JOB}/events", aligned=how, limit=200)["events"]
    plain = recorded.get(f"{JOB}/events", limit=200)["events"]
    assert [r["start_ns"] for r in rows] == [r["start_ns"] for r in plain]
    if how == "raw":
        assert all(r["aligned_start_ns"] == r["start_ns"] for r in rows)
    if how == "repaired":
        assert rows == plain


def test_an_alignment_nobody_knows_is_refused(recorded: InProcess):  # noqa: F811
    answer = recorded.request("GET", f"{JOB}/events", params={"aligned": "perhaps"})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (400, "aligned")


def test_clocks_say_what_is_doubtful(recorded: InProcess):  # noqa: F811
    clocks = recorded.get(f"{JOB}/clocks")
    assert (clocks["cycles"], clocks["dropped_syncs"]) == (0, [])
    assert clocks["alignment"]["version"] >= 1
    assert isinstance(clocks["contradictions"], list)
