"""`crossrank ls`: which jobs there are, how they are doing, and what matters most in each."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from crossrank.commands.figures import count, plain, ranges
from crossrank.commands.source import open_answers

WIDEST: Final = 120
_LEAST_SEEN: Final = 12  # of a finding; less says nothing


def run_list(*, url: str | None, data: Path | None) -> None:
    """Prints one line a job, latest activity first. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        jobs = answers.get("/v1/jobs", {})["jobs"]
    finally:
        answers.close()
    shown = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    print("\n".join(job_lines(jobs, shown if sys.stdout.isatty() else WIDEST)))  # a pipe has no edge to cut at


def job_lines(jobs: list[dict[str, Any]], columns: int = WIDEST) -> list[str]:
    """The jobs as lines: name, events, state, last activity, attempts; the top finding where `columns` leave room for it."""
    if not jobs:
        return ["no jobs yet; `crossrank send` posts recorded events, `crossrank demo` shows a simulated job"]
    names = [plain(j["job"], 60) for j in jobs]
    width = max(map(len, names))
    lines = []
    for name, j in zip(names, jobs, strict=True):
        last = datetime.fromtimestamp(j["last_received_ns"] // 1_000_000_000, UTC)
        restarts = f", {count(len(j['attempts']), 'attempt')}" if len(j.get("attempts", ())) > 1 else ""
        line = f"{name:<{width}}  {count(j.get('accepted', 0), 'event'):>16}  {plain(j['state'], 8):<5}"
        line += f"  last received {last:%Y-%m-%d %H:%M:%S} UTC{restarts}"
        room = columns - len(line) - 2
        shown = j.get("top_finding") is not None and room >= _LEAST_SEEN
        lines.append(f"{line}  {plain(_finding(j['top_finding']), room)}" if shown else line)
    return lines


def _finding(finding: dict[str, Any]) -> str:
    """A finding in a few words: `straggler, rank 21, steps 12-19`."""
    parts = [str(finding["class"])]
    for one, several, numbers in (("rank", "ranks", finding["ranks"]), ("step", "steps", finding["steps"])):
        if numbers:
            parts.append(f"{one if len(numbers) == 1 else several} {ranges(numbers, 2)}")
    return ", ".join(parts)
