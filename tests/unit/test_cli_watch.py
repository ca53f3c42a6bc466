"""What why, top and doctor print: from answers written here to lines of a terminal of any width, whatever the names contain."""

from __future__ import annotations

import copy

import pytest

from crossrank.commands.check import Check
from crossrank.commands.doctor import render as render_checks
from crossrank.commands.doctor_data import clock_checks, data_checks
from crossrank.commands.doctor_setup import check_machine
from crossrank.commands.report_text import render as render_report
from crossrank.commands.top import Frame
from crossrank.commands.top_text import behind
from crossrank.commands.top_text import render as render_top
from crossrank.commands.why import Cause, Saving, Why, causes
from crossrank.commands.why_text import render as render_why
from tests.unit.test_cli_report import a_report

EVIL = "x\x1b[2J\x1b]0;owned\x07\r\n\u202e<b>"
MS = 1_000_000
WIDTHS = (60, 80, 120, 200)


def segment(rank, name, start_ms, end_ms, limit=None):
    return {
        "rank": rank, "lane": EVIL, "kind": "compute", "name": name, "start_ns": start_ms * MS, "end_ns": end_ms * MS,
        "on_path_ns": (end_ms - start_ms) * MS, "slack_ns": 0, "next_limit": limit,
    }  # fmt: skip


def a_why() -> Why:
    limit = {"rank": 2, "kind": "compute", "name": EVIL, "after_ns": 30 * MS}
    hop = {"from_rank": 1, "to_rank": 0, "at_ns": 70 * MS, "edge": "collective", "group": EVIL, "seq": 4}
    near = {
        "rank": 2, "lane": "m", "kind": "compute", "name": EVIL, "start_ns": 0, "end_ns": 5, "slack_ns": 2 * MS,
    }  # fmt: skip
    path = {
        "step": 3, "start_ns": 0, "end_ns": 100 * MS, "total_ns": 100 * MS, "hops": [hop], "near": [near],
        "segments": [segment(1, EVIL, 0, 70, limit), segment(0, "tail", 70, 71), segment(0, EVIL, 71, 100)],
        "alignment": {"reference": "h", "bound_ns": 18_400, "components": 2},
    }  # fmt: skip
    steps = [{"step": i, "complete": True, "duration_ns": 60 * MS} for i in range(6)]
    saving = Saving(Cause(1, "compute", EVIL, 70 * MS), 100 * MS, 71 * MS, 70 * MS, 0.01)
    return Why(EVIL, path, steps, {0: EVIL, 1: "host1"}, (saving,))


def a_frame(*, hung: bool = False) -> Frame:
    report = a_report()
    culprit = {"rank": 3, "reason": EVIL, "proof": EVIL}
    hangs = {"hung": hung, "sentence": EVIL, "waiting": [], "culprits": [culprit], "silent_ns": 5 * MS}
    ranks = [{"rank": r, "steps": 10 - (4 if r == 7 else 0) - (r == 2)} for r in range(8)]
    summary = copy.deepcopy(report.summary) | {"rejects": []}
    finding = copy.deepcopy(report.bottlenecks["findings"][0]) | {"sentence": EVIL * 5}
    return Frame(EVIL, summary, report.steps["steps"], [finding] * 9, ranks, hangs, 0, 1234.5)


def shown(lines) -> list[str]:
    texts = [line.plain for line in lines]
    assert all(text.isprintable() for text in texts)
    return texts


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "render",
    [
        lambda width: render_why(a_why(), width, show_all=False),
        lambda width: render_why(a_why(), width, show_all=True),
        lambda width: render_top(a_frame(), width, height=None, fault=EVIL),
        lambda width: render_top(a_frame(hung=True), width, height=24, fault=None),
        lambda width: render_checks([Check("data", "ranks", "problem", "nothing came " * 20, "look " * 30, "j")], width),
        lambda width: [line for line in render_report(a_report(), width) if "evidence" not in line.plain],
    ],
)
def test_no_line_is_wider_than_the_terminal_nor_moves_its_cursor(render, width):
    assert max(map(len, shown(render(width)))) <= width


def test_why_tells_who_what_and_what_it_would_save():
    text = " ".join(" ".join(shown(render_why(a_why(), 120))).split())
    assert "took 100 ms; its neighbours take 60.0 ms, so it is 40.0 ms longer" in text
    assert "on rank 1 (host1): 70.0 ms, 70.0 %" in text
    assert "rank 1 (host1) came last to the collective number 4" in text
    assert "after 30.0 ms less, compute" in text
    assert "as fast as its peers: 29.0 ms of 100 ms; gone altogether: 30.0 ms" in text
    assert "1.0 % off the recording" in text
    assert "2 sets of clocks are not connected" in text


def test_causes_are_ordered_by_their_share_or_by_what_they_could_gain():
    path = {"segments": [segment(0, "long", 0, 50, {"after_ns": MS}), segment(1, "worth", 50, 70, {"after_ns": 15 * MS})]}
    assert [c.name for c in causes(path)] == ["long", "worth"]
    assert [c.name for c in causes(path, by_gain=True)] == ["worth", "long"]


def test_top_names_the_ranks_that_lag_and_fits_the_height():
    assert behind(a_frame().ranks) == [(7, 4)]
    lines = shown(render_top(a_frame(), 100, height=12, fault=None))
    assert len(lines) <= 12
    assert lines[-1] == "q ends"
    assert any("1,234 a second" in line for line in lines)


def clocks(**changes):
    domain = {"clock": "a", "component": 0}
    answer = {
        "domains": [domain, domain | {"clock": EVIL, "component": 1}],
        "alignment": {"bound_ns": 10 * MS},
        "violations": {"raw": 9, "after_fit": 0, "after_repair": 0},
        "contradictions": [],
        "cycles": 0,
    }
    return answer | changes


def states(checks) -> dict[str, str]:
    return {c.what: c.state for c in checks}


def test_doctor_judges_clocks():
    steps = [{"complete": True, "duration_ns": 100 * MS}]
    assert states(clock_checks(clocks(), steps)) == {"components": "problem", "bound": "note", "violations": "ok"}
    bad = clocks(alignment={"bound_ns": None}, violations={"raw": 9, "after_fit": 5, "after_repair": 1}, cycles=2)
    assert states(clock_checks(bad, steps)) == {
        "components": "problem", "bound": "problem", "violations": "problem", "circles": "note",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("span", "state"),
    [
        ({"is_async": True, "group": "g", "seq": 1}, "problem"),
        ({"is_async": False, "group": None, "seq": 1}, "problem"),
        ({"is_async": False, "group": "g", "seq": None}, "note"),
        ({"is_async": False, "group": "g", "seq": 0}, "ok"),
    ],
)
def test_doctor_says_what_communication_spans_lack(span, state):
    summary = {
        "ranks": {"seen": [0], "missing": []}, "world_size": 1, "rejects": [], "unmatched": {},
        "steps": {"count": 0, "complete": 0}, "events": {"stored": 9, "by_kind": {"collective": 9}},
    }  # fmt: skip
    found = states(data_checks(summary, {"collective": [span] * 3}, {"collect": ""}))
    assert found == {"ranks": "ok", "rejected": "ok", "steps": "problem", "collective": state, "matching": "ok"}


def test_doctor_finds_misspelt_and_wrong_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSRANK_RETAIN_DAY", "3")
    monkeypatch.setenv("CROSSRANK_PORT", "many")
    found = [c for c in check_machine(tmp_path) if c.what == "settings"]
    assert all(c.state == "problem" for c in found)
    assert any("CROSSRANK_RETAIN_DAYS" in c.do for c in found)
    assert any("CROSSRANK_PORT" in c.found for c in found)
