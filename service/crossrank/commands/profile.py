"""`crossrank profile`: asks running ranks for a profile of their next steps, and follows their traces until they are in.

    crossrank profile llm            POST /v1/jobs/llm/profile, the service names the ranks that tell most
    ... --ranks 0,8-15               the same for these ranks
    ... --steps 100-105              steps by number instead of the next ones
    ... --wait                       GET of the same address every second, until every trace is in or time is up
    ... --state                      only the GET

Ranks hear of it in the answer to their next post and profile the steps that follow, or those of the numbers given, which must be ahead.
A data folder has no ranks that could be asked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, Final

from crossrank import timesource
from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import count, plain, ranges
from crossrank.commands.reading import waiting
from crossrank.commands.source import DEFAULT_URL, job_path
from crossrank.errors import BadParameter, Overloaded, Refused, Unreachable

EVERY_S: Final = 1.0
MOST_RANKS: Final = 1024  # of one request, as the service takes it
MOST_STEPS: Final = 100
_LONGEST_RANK: Final = 10  # digits

State = dict[str, Any]


def run_profile(
    job: str,
    *,
    url: str | None,
    data: Path | None,
    ranks: str | None,
    steps: str,
    auto: bool,
    most: int | None,
    state: bool,
    wait_s: float | None,
) -> bool:
    """Runs the command. wait_s: how long to follow it, None not at all. False when traces are missing then. Raises CrossrankError."""
    if data is not None:
        raise BadParameter("--data: only ranks that run can be profiled; ask the service they post to (--url)", field="data")
    if ranks is not None and (auto or most is not None):
        raise BadParameter("give --ranks, or let the service choose with --auto and --most, not both", field="ranks")
    question: dict[str, Any] = {"steps": steps_of(steps)}
    if ranks is not None:
        question["ranks"] = ranks_of(ranks)
    if most is not None:
        question["most"] = most
    answers = HttpAnswers(url or DEFAULT_URL)
    try:
        path = job_path(job, "profile")
        now = answers.get(path, {}) if state else answers.ask(path, question)
        if not state and wait_s is not None:
            print("\n".join(asked_lines(job, now)), flush=True)
        if wait_s is not None:
            now = follow(answers, path, now, wait_s)
    finally:
        answers.close()
    print("\n".join(state_lines(job, now) if state or wait_s is not None else [*asked_lines(job, now), _hint(job)]))
    return wait_s is None or not missing(now)


def ranks_of(text: str) -> list[int]:
    """`0,3,8-15` as ranks in ascending order. Raises BadParameter, also for more than MOST_RANKS."""
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(rf"\s*([0-9]{{1,{_LONGEST_RANK}}})(?:-([0-9]{{1,{_LONGEST_RANK}}}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise BadParameter(f"--ranks: {plain(part, 40)!r} is neither a rank nor a range such as 8-15", field="ranks")
        if last - first >= MOST_RANKS or len(ranks) > MOST_RANKS:
            raise BadParameter(f"--ranks: at most {count(MOST_RANKS)} ranks; some few tell most (--auto)", field="ranks")
        ranks.update(range(first, last + 1))
    return sorted(ranks)


def steps_of(text: str) -> int | list[int]:
    """How many steps, or the first and the last by number. Raises BadParameter."""
    by_number = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text)
    if by_number:
        first, last = int(by_number[1]), int(by_number[2])
        if first <= last < first + MOST_STEPS:
            return [first, last]
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= MOST_STEPS:
        raise BadParameter(
            f"--steps {plain(text, 40)}: a number of steps from 1 to {MOST_STEPS}, or a range of so many such as 100-105",
            field="steps",
        )
    return int(text)


def follow(answers: HttpAnswers, path: str, asked: State, wait_s: float) -> State:
    """The state once the request is over, or after `wait_s` seconds. Raises CrossrankError; Unreachable only when still so at the end."""
    end_ns = timesource.monotonic_ns() + int(wait_s * 1e9)
    pause, now, away = Event(), asked, None
    with waiting(progress(now)) as say:
        while not now["done"]:
            left_s = (end_ns - timesource.monotonic_ns()) / 1e9
            if left_s <= 0:
                break
            pause.wait(min(EVERY_S, left_s))
            now, away = _look(answers, path, now, say)
    if away is not None:
        raise away
    return now


def _look(
    answers: HttpAnswers, path: str, before: State, say: Callable[[str], None]
) -> tuple[State, Unreachable | Overloaded | None]:
    """The state now and no fault, or the state before and why there is no other."""
    try:
        now = answers.get(path, {})
    except (Unreachable, Overloaded) as fault:
        say(f"{progress(before)}; {plain(fault.message, 80)}")
        return before, fault
    if now["id"] != before["id"]:
        raise Refused(f"profile {plain(before['id'], 40)} is over, another has been asked for since: {plain(now['id'], 40)}")
    say(progress(now))
    return now, None


def missing(state: State) -> list[int]:
    """Ranks whose trace is not in."""
    return [r["rank"] for r in state["ranks"] if r["state"] != "received"]


def progress(state: State) -> str:
    """How far a request is, in one line: `1 of 3 traces; profiling: 5; not told yet: 7`."""
    total = len(state["ranks"])
    text = f"{count(total - len(missing(state)))} of {count(total, 'trace')}"
    for word, name in (("profiling", "told"), ("not told yet", "asked"), ("expired", "expired")):
        ranks = [r["rank"] for r in state["ranks"] if r["state"] == name]
        text += f"; {word}: {ranges(ranks, 4)}" if ranks else ""
    return text


def asked_lines(job: str, state: State) -> list[str]:
    """Who was asked for how much, and why each."""
    who = f"asked {count(len(state['ranks']), 'rank')} of {plain(job)} for a profile"
    return [f"{who} of {_which(state)}", *(f"  rank {r['rank']}: {plain(r['why'])}" for r in state["ranks"])]


def state_lines(job: str, state: State) -> list[str]:
    """A line a rank, and what the whole comes to."""
    lines = [f"profile of {_which(state)} of {count(len(state['ranks']), 'rank')} of {plain(job)}"]
    for r in state["ranks"]:
        events = f", {count(r['events'], 'event')}" if r["events"] is not None else ""
        lines.append(f"  rank {r['rank']}  {_SAID[r['state']]}{events} ({plain(r['why'])})")
    absent = missing(state)
    if not absent:
        return [*lines, "every trace is in"]
    if state["done"]:
        return [*lines, f"nothing came in time from {_ranks(absent)}: gone, without steps, or without crossrank_client.torch"]
    return [*lines, f"no trace yet from {_ranks(absent)}", _hint(job)]


_SAID: Final = {
    "asked": "asked, has not posted since",
    "told": "told, profiles its steps",
    "received": "trace stored",
    "expired": "expired",
}


def _which(state: State) -> str:
    steps, first = state["steps"], state.get("first_step")
    if first is not None:
        return f"step {first}" if steps == 1 else f"steps {first} to {first + steps - 1}"
    return "the next step" if steps == 1 else f"the next {count(steps)} steps"


def _ranks(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"


def _hint(job: str) -> str:
    return f"how far it is: crossrank profile {shlex.quote(plain(job))} --state --wait"
