"""Where a reading command gets its answers from: a running service (`--url`) or a data folder opened here (`--data`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from crossrank.errors import BadParameter

DEFAULT_URL = "http://127.0.0.1:4318"

Params = Mapping[str, object]


class Answers(Protocol):
    """What both sources can do. Paths and answers are those of the REST interface."""

    def get(self, path: str, params: Params) -> dict[str, Any]:
        """The JSON answer of `GET path`. Raises CrossrankError."""
        ...

    def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON answer of `POST path` with the question as JSON body, which changes nothing. Raises CrossrankError."""
        ...

    def download(self, path: str, params: Params) -> bytes:
        """The body of the answer to `GET path`, whatever it is. Raises CrossrankError."""
        ...

    def close(self) -> None:
        """Lets go of the connection or the data folder."""
        ...


def open_answers(url: str | None, data: Path | None) -> Answers:
    """The source a user asked for; a service on this machine when they asked for none. Raises BadParameter for both."""
    if data is None:
        from crossrank.commands.client import HttpAnswers

        return HttpAnswers(url or DEFAULT_URL)
    if url is not None:
        raise BadParameter(
            "give --url or --data, not both: one reads a running service, the other a folder without one", field="data"
        )
    if not data.is_dir():
        raise BadParameter(f"--data {data}: no such folder", field="data")
    from crossrank.app import open_embedded

    return open_embedded(data)


def job_path(job: str, question: str = "") -> str:
    """The REST path of a job, or of a question about it. A job's name may hold any character."""
    return f"/v1/jobs/{quote(job, safe='')}" + (f"/{question}" if question else "")


def step_range(first: int | None, last: int | None) -> dict[str, object]:
    """The `from` and `to` parameters of a range of steps; an end not given is left open."""
    asked = {"from": first, "to": last}
    return {name: step for name, step in asked.items() if step is not None}
