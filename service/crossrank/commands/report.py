"""`crossrank report`: the answers a report is made of, fetched; `report_text` turns them into what is read.

The report asks the same questions anyone can ask over REST; `--json` prints the answers instead.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import plain
from crossrank.commands.reading import waiting
from crossrank.commands.source import Answers, job_path, open_answers, step_range


@dataclass(frozen=True, slots=True)
class Report:
    """Answers about one job, as the REST interface gives them. `base` is the address evidence links start with, or ""."""

    summary: dict[str, Any]
    bottlenecks: dict[str, Any]
    stragglers: dict[str, Any]
    steps: dict[str, Any]
    clocks: dict[str, Any]
    base: str = ""


def fetch(answers: Answers, job: str, first: int | None = None, last: int | None = None) -> Report:
    """Asks everything a report needs, about the steps in [first, last]. Raises CrossrankError, NotFound for an unknown job."""
    base = ""
    if isinstance(answers, HttpAnswers):
        # Everything acknowledged so far shall be in the report, also right after a send.
        answers.post(job_path(job, "derive"), {"wait": "true"})
        base = answers.url
    chosen = step_range(first, last)
    return Report(
        summary=answers.get(job_path(job), {}),
        bottlenecks=answers.get(job_path(job, "bottlenecks"), chosen),
        stragglers=answers.get(job_path(job, "stragglers"), chosen),
        steps=answers.get(job_path(job, "steps"), chosen),
        clocks=answers.get(job_path(job, "clocks"), {}),
        base=base,
    )


def run_report(job: str, *, url: str | None, data: Path | None, first: int | None, last: int | None, as_json: bool) -> None:
    """Runs the command: fetches and prints. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        with waiting(f"deriving the answers of {plain(job, 40)}"):
            report = fetch(answers, job, first, last)
    finally:
        answers.close()
    if as_json:
        print(json.dumps({name: answer for name, answer in asdict(report).items() if name != "base"}, indent=2))
        return
    from crossrank.commands.report_text import print_report

    print_report(report)
