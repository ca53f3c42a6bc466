"""`crossrank top`: a job as it runs, looked at again every few seconds.

Each frame is made of answers anyone can ask for. A frame that cannot be fetched does not end the view: the last one stays, with what
went wrong below it, and the next look may succeed. Needs nothing but a terminal, so it works over SSH; where there is none, it prints one
frame and ends.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final

from rich.console import Group
from rich.live import Live

from crossrank import timesource
from crossrank.commands.console import AnswerConsole
from crossrank.commands.source import Answers, job_path, open_answers
from crossrank.errors import CrossrankError

STEPS: Final = 240  # the latest ones, for the chart
BEHIND_STEPS: Final = 20  # the latest ones, to see which ranks have not got there


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at a job. `events_per_s` is None on the first."""

    job: str
    summary: dict[str, Any]
    steps: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    ranks: list[dict[str, Any]]
    hangs: dict[str, Any]
    at_ns: int  # monotonic
    events_per_s: float | None

    @property
    def accepted(self) -> int:
        """Events the service has taken so far."""
        return int(self.summary["events"].get("accepted", 0))


def look(answers: Answers, job: str, before: Frame | None = None) -> Frame:
    """Asks for everything a frame shows. Raises CrossrankError, NotFound for an unknown job."""
    summary = answers.get(job_path(job), {})
    last = summary["steps"]["last"]
    steps: dict[str, Any] = {"steps": []}
    ranks: dict[str, Any] = {"ranks": []}
    if last is not None:
        steps = answers.get(job_path(job, "steps"), {"from": last - STEPS + 1})
        ranks = answers.get(job_path(job, "ranks"), {"from": last - BEHIND_STEPS + 1})
    findings = answers.get(job_path(job, "bottlenecks"), {})["findings"]
    hangs = answers.get(job_path(job, "hangs"), {})
    now = timesource.monotonic_ns()
    rate = None
    if before is not None and now > before.at_ns:
        rate = (int(summary["events"].get("accepted", 0)) - before.accepted) * 1e9 / (now - before.at_ns)
    return Frame(job, summary, steps["steps"], findings, ranks["ranks"], hangs, now, rate)


def run_top(job: str, *, url: str | None, data: Path | None, every_s: float, once: bool) -> None:
    """Runs the command until q or Ctrl-C. Raises CrossrankError when the first look fails."""
    from crossrank.commands.top_text import render

    console = AnswerConsole(highlight=False)
    answers = open_answers(url, data)
    try:
        frame = look(answers, job)
        if once or not console.is_terminal:
            for line in render(frame, console.width, height=None, fault=None):
                console.print(line, soft_wrap=True)
            return
        with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            fault: str | None = None
            while True:
                live.update(Group(*render(frame, console.width, height=console.height, fault=fault)), refresh=True)
                if pressed(every_s):
                    return
                try:
                    frame, fault = look(answers, job, frame), None
                except CrossrankError as refused:
                    fault = refused.message
    except KeyboardInterrupt:
        return
    finally:
        answers.close()


class _Keys:
    """Waits for a key on stdin, or only waits where stdin is no terminal."""

    def __init__(self, *, listening: bool) -> None:
        self._listening, self._never = listening, Event()

    def __call__(self, seconds: float) -> bool:
        """Whether q was pressed within that time."""
        if not self._listening:
            self._never.wait(seconds)
            return False
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready) and sys.stdin.read(1) in {"q", "Q", "", "\x03", "\x04"}


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Lets single keys come through, and puts the terminal back as it was."""
    if not sys.stdin.isatty():
        yield _Keys(listening=False)
        return
    import termios
    import tty

    was = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _Keys(listening=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, was)
