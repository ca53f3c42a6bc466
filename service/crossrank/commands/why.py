"""`crossrank why`: the answers that tell why one step took as long as it did; `why_text` turns them into a story.

What removing a cause would save is not guessed from its length: the service replays the job with that cause as fast as its peers,
and without it, and says beside it how exactly the unchanged replay gives the recording.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import plain
from crossrank.commands.reading import waiting
from crossrank.commands.source import Answers, job_path, open_answers
from crossrank.errors import CrossrankError, NotFound

NEIGHBOURS: Final = 50  # steps on each side that say what a usual step takes
_WAITED: Final = frozenset({"idle", "sync"})  # not causes: nothing to make faster


@dataclass(frozen=True, slots=True)
class Cause:
    """Who and what on the path, and how much of the step it accounts for."""

    rank: int
    kind: str
    name: str
    on_path_ns: int


@dataclass(frozen=True, slots=True)
class Saving:
    """What the step would take with a cause as fast as its peers (`usual`) and without it (`gone`). Durations in ns.

    replay_error: the recording over the unchanged replay, minus one.
    """

    cause: Cause
    recorded_ns: int
    usual_ns: int
    gone_ns: int
    replay_error: float


@dataclass(frozen=True, slots=True)
class Why:
    """All that the story is made of. steps: those around the step, for what is usual. hosts: by rank, where known."""

    job: str
    path: dict[str, Any]
    steps: list[dict[str, Any]]
    hosts: dict[int, str]
    savings: tuple[Saving, ...]


def causes(path: dict[str, Any], *, by_gain: bool = False) -> list[Cause]:
    """The path's own time by rank, kind and name, the largest first; `by_gain`: those first that could gain most before others limit."""
    total: Counter[tuple[int, str, str]] = Counter()
    gain: Counter[tuple[int, str, str]] = Counter()
    for s in path["segments"]:
        key = (s["rank"], s["kind"], s["name"])
        total[key] += s["on_path_ns"]
        gain[key] += s["next_limit"]["after_ns"] if s["next_limit"] else s["on_path_ns"]
    order = gain if by_gain else total
    return [Cause(*key, total[key]) for key in sorted(total, key=lambda key: (-order[key], key))]


def fetch(answers: Answers, job: str, step: int, save: int) -> Why:
    """Asks all. Raises NotFound for an unknown job or step, and what the service answers else."""
    with waiting(f"deriving the answers of {plain(job, 40)}") as say:
        if isinstance(answers, HttpAnswers):
            answers.post(job_path(job, "derive"), {"wait": "true"})
        path = _path(answers, job, step)
        say("looking at its neighbours")
        around = answers.get(job_path(job, "steps"), {"from": step - NEIGHBOURS, "to": step + NEIGHBOURS})["steps"]
        clocks = answers.get(job_path(job, "clocks"), {})["domains"]
        hosts = {rank: d["host"] for d in clocks if d["host"] for rank in d["ranks"]}
        savings = []
        for cause in [c for c in causes(path, by_gain=True) if c.kind not in _WAITED][:save]:
            say(f"replaying without {plain(cause.name, 30)} of rank {cause.rank}")
            savings.append(_saving(answers, job, step, cause))
    return Why(job, path, around, hosts, tuple(savings))


def _path(answers: Answers, job: str, step: int) -> dict[str, Any]:
    try:
        return answers.get(job_path(job, f"steps/{step}/critical-path"), {})
    except NotFound as fault:
        seen = answers.get(job_path(job), {})["steps"]
        if not seen["count"]:
            raise NotFound(f"{job} has no steps: no event carries a step, and none of kind `step` has come") from fault
        raise NotFound(f"{job} has no step {step}; it has {seen['first']} to {seen['last']}") from fault


def _saving(answers: Answers, job: str, step: int, cause: Cause) -> Saving:
    chosen = {"rank": cause.rank, "kind": cause.kind, "name": cause.name, "from": step, "to": step}
    told = [answers.ask(job_path(job, "whatif"), {"changes": [chosen | what]}) for what in ({"as": "median"}, {"scale": 0.0})]
    usual, gone = (next((s for s in a["steps"] if s["step"] == step), None) for a in told)
    if usual is None or gone is None:
        raise CrossrankError(f"the replay does not know step {step}")
    return Saving(cause, usual["recorded_ns"], usual["predicted_ns"], gone["predicted_ns"], told[0]["replay_error"])


def run_why(job: str, step: int, *, url: str | None, data: Path | None, save: int, show_all: bool, as_json: bool) -> None:
    """Runs the command. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        why = fetch(answers, job, step, save)
    finally:
        answers.close()
    if as_json:
        print(json.dumps({"critical_path": why.path, "savings": [asdict(s) for s in why.savings]}, indent=2))
        return
    from crossrank.commands.why_text import print_why

    print_why(why, show_all=show_all)
