"""`crossrank doctor`: checks the set-up, the clocks and the data, and says what to do or to collect next.

A check that is well says so in one line; one that is not says what to do. Only problems, not notes, make the command fail: a note is
something to know, a problem is something that keeps events from being taken or ranks from being compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.text import Text

from crossrank.commands.check import Check
from crossrank.commands.console import AnswerConsole
from crossrank.commands.doctor_data import check_job
from crossrank.commands.doctor_setup import check_machine, check_service
from crossrank.commands.figures import count, plain
from crossrank.commands.reading import waiting
from crossrank.commands.report_text import WIDEST, wrap
from crossrank.commands.source import Answers, open_answers
from crossrank.errors import BadParameter, CrossrankError, Forbidden, NotFound, StoreUnavailable, Unauthenticated, Unreachable

JOBS_MOST: Final = 20  # the latest ones, when none is named
_MARKS: Final = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "bold red")}
_MARK: Final = 9
_WHAT: Final = 15


def run_doctor(job: str | None, *, url: str | None, data: Path | None, as_json: bool) -> bool:
    """Runs the command. Returns whether there are problems. Raises BadParameter, and NotFound for an unknown job."""
    with waiting("looking at the set-up") as say:
        checks = list(check_machine(data if data is not None and data.is_dir() else None))
        try:
            answers = open_answers(url, data)
        except StoreUnavailable as fault:
            checks.append(
                Check("setup", "data folder", "problem", plain(fault.message, 300), "ask the service that holds it, with --url")
            )
        else:
            try:
                checks += _ask(answers, job, say)
            finally:
                answers.close()
    problems = sum(c.state == "problem" for c in checks)
    if as_json:
        print(json.dumps({"problems": problems, "checks": [asdict(c) for c in checks]}, indent=2))
        return problems > 0
    console = AnswerConsole(highlight=False)
    for line in render(checks, min(console.width, WIDEST)):
        console.print(line, soft_wrap=True)
    return problems > 0


def _ask(answers: Answers, job: str | None, say: object) -> Iterator[Check]:
    try:
        yield from check_service(answers)
        held = answers.get("/v1/jobs", {})["jobs"]
        names = [job] if job is not None else [j["job"] for j in held[:JOBS_MOST]]
        if not names:
            yield Check(
                "data", "jobs", "note", "none yet", "crossrank send posts recorded events, crossrank demo shows a simulated job"
            )
        for name in names:
            if callable(say):
                say(f"looking at {plain(name, 40)}")
            yield from check_job(answers, name)
        if job is None and len(held) > JOBS_MOST:
            yield Check("data", "jobs", "note", f"{count(len(held) - JOBS_MOST)} older ones were not looked at", "name one")
    except (Unauthenticated, Forbidden) as fault:
        yield Check(
            "setup",
            "token",
            "problem",
            plain(fault.message, 300),
            "set CROSSRANK_TOKEN; crossrank token create --scope read makes one",
        )
    except Unreachable as fault:
        yield Check("setup", "service", "problem", plain(fault.message, 300), "crossrank serve, or the right --url")
    except (NotFound, BadParameter):
        raise
    except CrossrankError as fault:
        yield Check("setup", "service", "problem", plain(fault.message, 300), "look at its log")


def render(checks: Sequence[Check], width: int) -> list[Text]:
    """The checks as lines, by area and job, and at the end how many problems there are."""
    lines: list[Text] = []
    heading = ""
    for c in checks:
        title = c.area if c.job is None else f"{c.area} of {plain(c.job, 60)}"
        if title != heading:
            lines += [Text(), Text(title, "bold")] if lines else [Text(title, "bold")]
            heading = title
        mark, style = _MARKS[c.state]
        for i, part in enumerate(wrap(c.found, max(20, width - _MARK - _WHAT))):
            head = Text(f"{mark:<{_MARK}}", style).append(f"{c.what:<{_WHAT}}", "") if i == 0 else Text(" " * (_MARK + _WHAT))
            lines.append(head.append(part, ""))
        for i, part in enumerate(wrap(c.do, max(20, width - _MARK - _WHAT - 3))) if c.do else ():
            lines.append(Text(" " * (_MARK + _WHAT) + ("-> " if i == 0 else "   ") + part, "cyan"))
    problems, notes = (sum(c.state == state for c in checks) for state in ("problem", "note"))
    text = f"{count(problems, 'problem')}, {count(notes, 'note')}" if problems or notes else "everything is well"
    return [*lines, Text(), Text(text, "bold red" if problems else "bold")]
