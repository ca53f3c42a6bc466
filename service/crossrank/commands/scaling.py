"""`crossrank scaling`: how runs of several world sizes compare, as a table and one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import count, duration, percent, plain, with_error
from crossrank.commands.reading import waiting
from crossrank.commands.source import job_path, open_answers

_PARTS: Final = ("work", "imbalance", "wait", "communication", "rest")


def run_scaling(jobs: list[str], *, url: str | None, data: Path | None, mode: str | None, as_json: bool) -> None:
    """Prints the answer. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        with waiting("deriving the answers of all"):
            if isinstance(answers, HttpAnswers):
                for job in dict.fromkeys(jobs):
                    answers.post(job_path(job, "derive"), {"wait": "true"})
            asked = {"jobs": ",".join(quote(job, safe="") for job in jobs), **({"mode": mode} if mode else {})}
            found = answers.get("/v1/scaling", asked)
    finally:
        answers.close()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = Console(highlight=False)
    console.print(table_of(found))
    console.print(escape(plain(found["sentence"], 400)))


def table_of(found: dict[str, Any]) -> Table:
    """One row a job, smallest first."""
    table = Table(box=None, pad_edge=False)
    for column in ("job", "ranks", "step", "ideal", "efficiency", "lost", *(f"% {part}" for part in _PARTS)):
        table.add_column(column, justify="left" if column == "job" else "right")
    for p in found["points"]:
        shares = p["loss_shares"] or {}
        table.add_row(
            escape(plain(p["job"], 40)),
            count(p["ranks"]),
            duration(p["step_ns"]),
            duration(p["ideal_ns"]),
            percent(p["efficiency"]),
            with_error(p["loss_ns"], p["loss_band_ns"]),
            *(f"{100 * shares[part]:.0f}" if part in shares else "" for part in _PARTS),
        )
    return table
