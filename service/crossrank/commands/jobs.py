"""`crossrank ls`: which jobs there are."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crossrank.commands.figures import count, plain
from crossrank.commands.source import open_answers


def run_list(*, url: str | None, data: Path | None) -> None:
    """Prints one line a job, latest activity first. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        jobs = answers.get("/v1/jobs", {})["jobs"]
    finally:
        answers.close()
    print("\n".join(job_lines(jobs)))


def job_lines(jobs: list[dict[str, Any]]) -> list[str]:
    """The jobs as lines: name, events, attempts, last activity."""
    if not jobs:
        return ["no jobs yet; `crossrank send` posts recorded events, `crossrank demo` shows a simulated job"]
    names = [plain(j["job"], 60) for j in jobs]
    width = max(map(len, names))
    lines = []
    for name, j in zip(names, jobs, strict=True):
        last = datetime.fromtimestamp(j["last_received_ns"] // 1_000_000_000, UTC)
        restarts = f", {count(len(j['attempts']), 'attempt')}" if len(j.get("attempts", ())) > 1 else ""
        lines.append(
            f"{name:<{width}}  {count(j.get('accepted', 0), 'event'):>16}  last received {last:%Y-%m-%d %H:%M:%S} UTC{restarts}"
        )
    return lines
