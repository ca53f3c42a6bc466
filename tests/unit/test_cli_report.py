"""The report as it is read: from answers written here to the lines of a terminal."""

from __future__ import annotations

import copy
import io

from rich.console import Console

from crossrank.commands.jobs import job_lines
from crossrank.commands.report import Report, fetch
from crossrank.commands.report_text import print_report, render, wrap

ALIGNMENT = {"reference": "host0", "bound_ns": 18_400, "components": 1}
CARRIED = {"complete_to_ns": 1_780_272_012_000_000_000, "alignment": ALIGNMENT, "dropped": {}, "truncated": False}
START = 1_780_272_000_000_000_000

FINDING = {
    "class": "straggler",
    "ranks": [21],
    "group": None,
    "steps": list(range(12, 20)),
    "cost_ns": 812_000_000,
    "cost_error_ns": 9_000_000,
    "share": 0.1123,
    "confidence": 0.9999,
    "sentence": "Rank 21 was slow in compute `forward` in steps 12-19 and held up every other rank.",
    "evidence": ["/v1/jobs/demo/steps/12/critical-path"],
}
STRAGGLER = {
    "rank": 21,
    "host": "host2",
    "cost_ns": 812_000_000,
    "cost_error_ns": 9_000_000,
    "cost_per_step_ns": 101_500_000,
    "steps": list(range(12, 20)),
    "cause": {"kind": "compute", "name": "forward"},
    "confidence": 0.987,
    "evidence": [],
}


def a_report(**changes) -> Report:
    steps = [
        {
            "step": i,
            "start_ns": START + i * 10**9,
            "end_ns": 0,
            "duration_ns": 301_000_000 + (110_000_000 if 12 <= i < 20 else i),
            "complete": True,
            "ranks": 64,
            "last_rank": 21 if i == 12 else None,
        }
        for i in range(24)
    ]
    answers = {
        "summary": {
            "job": "demo",
            "attempt": 0,
            "attempts": [0],
            "world_size": 64,
            "ranks": {"seen": list(range(64)), "missing": []},
            "hosts": [f"host{h}" for h in range(8)],
            "span": {"start_ns": START, "end_ns": START + 12_300_000_000, "duration_ns": 12_300_000_000},
            "steps": {"count": 24, "complete": 24, "first": 0, "last": 23},
            "events": {"stored": 41_216, "open": 0, "by_kind": {}, "accepted": 41_216, "duplicate": 0, "conflict": 0},
            "rejects": [],
            "unmatched": {},
            "conflicts": [],
            "findings": [],
            **CARRIED,
        },
        "bottlenecks": {"findings": [FINDING], **CARRIED},
        "stragglers": {"stragglers": [STRAGGLER], **CARRIED},
        "steps": {"steps": steps, **CARRIED},
        "clocks": {
            "reference": "host0",
            "domains": [
                {
                    "clock": f"host{h}",
                    "ranks": [],
                    "component": 0,
                    "offset_ns": h * 7_000_000,
                    "drift_ppm": -5.0 * h,
                    "bound_lo_ns": -18_400,
                    "bound_hi_ns": 18_400,
                    "sigma_ns": 900.0,
                    "knots": [{"t_ns": START, "offset_ns": h * 7_000_000}],
                    "clock_steps": [],
                }
                for h in range(8)
            ],
            "violations": {"raw": 1203, "after_fit": 12, "after_repair": 0},
            **CARRIED,
        },
    }
    answers = copy.deepcopy(answers)
    for path, value in changes.items():
        *outer, last = path.split("__")
        place = answers
        for key in outer:
            place = place[key]
        place[last] = value
    return Report(**answers, base="http://127.0.0.1:4318")


def text_of(report: Report, width: int = 80) -> str:
    return "\n".join(line.plain.rstrip() for line in render(report, width))


def test_a_report_with_a_finding():
    assert text_of(a_report()) == (
        """\
demo
Rank 21 was slow in compute `forward` in steps 12-19 and held up every other
rank.

ranks       64 of 64 on 8 hosts
time        12.3 s from 2026-06-01 00:00:00 UTC
events      41,216 events
steps       24

step time   ▁▁▁▁▁▁▁▁▁▁▁▁████████▁▁▁▁
            median 301 ms, longest 411 ms (step 12, rank 21 last)

    what       where    steps  cost          share   sure
 1  straggler  rank 21  12-19  812 ± 9.0 ms  11.2 %  > 99.9 %
    evidence: http://127.0.0.1:4318/v1/jobs/demo/steps/12/critical-path

    straggler  host   late in          steps  cost          per step  sure
    rank 21    host2  compute forward  12-19  812 ± 9.0 ms  102 ms    98.7 %

clocks      8 clocks, off by up to 49.0 ms and 35.0 ppm of drift; aligned to
            host0 within ± 18.4 µs
            1,203 events before their cause by the raw stamps, 12 after
            alignment, 0 after repair"""
    )


def test_a_healthy_job_says_so():
    text = text_of(a_report(bottlenecks__findings=[], stragglers__stragglers=[]))
    assert "No bottleneck beyond noise and clock bounds in 24 steps." in text
    assert "stragglers  none beyond noise and clock bounds" in text


def test_an_empty_job_needs_no_steps_and_no_clocks():
    text = text_of(
        a_report(
            bottlenecks__findings=[],
            stragglers__stragglers=[],
            steps__steps=[],
            clocks__domains=[],
            summary__span=None,
            summary__steps={"count": 0, "complete": 0, "first": None, "last": None},
        )
    )
    assert "No training step to report on" in text


def test_what_is_missing_is_said():
    text = text_of(
        a_report(
            summary__ranks={"seen": [0, 1, 3], "missing": [2, 4, 5, 6]},
            summary__dropped={"bad_span_id": 2},
            summary__unmatched={"collective_without_seq": 7},
            summary__truncated=True,
            clocks__alignment={"reference": "host0", "bound_ns": None, "components": 2},
        )
    )
    assert "nothing came from ranks 2, 4-6" in text
    assert "left out    2 events: bad_span_id" in text
    assert "unmatched   7: collective_without_seq" in text
    assert "choose a range with --from and" in text
    assert "without a bound" in text
    assert "2 sets of clocks that nothing connects" in text


def test_names_of_senders_cannot_drive_the_terminal():
    evil = "\x1b[31mred\x07[bold]"
    report = a_report(
        summary__job=evil,
        bottlenecks__findings=[{**FINDING, "sentence": evil, "class": evil, "group": evil}],
        stragglers__stragglers=[{**STRAGGLER, "host": evil}],
    )
    console = Console(file=io.StringIO(), width=100)
    print_report(report, console)
    printed = console.file.getvalue()
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "[bold]" in printed  # not taken for markup


def test_no_line_is_wider_than_asked_except_links_and_tables():
    for width in (72, 80, 120):
        for line in text_of(a_report(), width).splitlines():
            assert len(line) <= width or "http" in line or "straggler" in line or "rank 21 " in line


def test_numbers_are_not_parted_from_their_units():
    assert wrap("it took 380 ± 0.31 ms of 9.3 s (4.1 %) in 3 steps", 22) == [
        "it took 380 ± 0.31 ms",
        "of 9.3 s (4.1 %) in 3",
        "steps",
    ]
    assert wrap("it took 380 ± 0.31 ms", 16) == ["it took", "380 ± 0.31 ms"]


def test_fetch_asks_the_steps_asked_for():
    asked = []

    class Answering:
        def get(self, path, params):
            asked.append((path, dict(params)))
            return {}

    fetch(Answering(), "a/b c", 3, None)
    assert asked == [
        ("/v1/jobs/a%2Fb%20c", {}),
        ("/v1/jobs/a%2Fb%20c/bottlenecks", {"from": 3}),
        ("/v1/jobs/a%2Fb%20c/stragglers", {"from": 3}),
        ("/v1/jobs/a%2Fb%20c/steps", {"from": 3}),
        ("/v1/jobs/a%2Fb%20c/clocks", {}),
    ]


def test_jobs_are_listed_one_a_line():
    jobs = [
        {
            "job": "llama",
            "attempts": [0, 1],
            "last_received_ns": START,
            "accepted": 41_216,
            "state": "hung",
            "top_finding": FINDING,
        },
        {"job": "x", "attempts": [0], "last_received_ns": START, "accepted": 1, "state": "live", "top_finding": None},
    ]
    assert job_lines(jobs) == [
        "llama     41,216 events  hung   last received 2026-06-01 00:00:00 UTC, 2 attempts  straggler, rank 21, steps 12-19",
        "x               1 event  live   last received 2026-06-01 00:00:00 UTC",
    ]
    assert job_lines(jobs, 96)[0].endswith("2 attempts  straggler, r…")
    assert job_lines(jobs, 85)[0].endswith("2 attempts")
    assert "no jobs yet" in job_lines([])[0]


def test_a_finding_without_a_cost_of_its_own_shows_none():
    hang = {**FINDING, "class": "hang", "cost_ns": 0, "cost_error_ns": 0, "share": 0.0, "confidence": 0.97}
    text = text_of(a_report(bottlenecks={"findings": [hang], **CARRIED}), 100)
    line = next(line for line in text.splitlines() if "hang" in line and "rank 21" in line)
    assert "±" not in line
    assert "97.0 %" in line
