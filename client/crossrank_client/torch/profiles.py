"""torch.profiler when somebody asks for it: some steps of this rank, posted and joined with its spans by the service.

    answer to a post      {"profile": {"id", "rank", "steps": n, "first_step": null or a number}}, in the client's thread
    next step boundary    (that of the first step, if given) the profiler starts, in the training thread
    n boundaries later    it stops                                     in the training thread
    next post             the trace is written, compressed and posted  in the client's thread

The service repeats what it asks until it has the trace; the id tells a repetition. A rank that cannot (another profiler runs, the trace is too large) says so with a mark. Outside of the steps asked for, all this
costs one look at a variable a step.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch

if TYPE_CHECKING:
    from crossrank_client.client import Client
    from crossrank_client.torch.phases import Steps

TRACE_BYTES = 48 << 20  # compressed; the service takes 64 MiB
MOST_STEPS = 100


class Profiles:
    """Answers requests for profiles until removed."""

    def __init__(self, client: Client, steps: Steps) -> None:
        self._client, self._steps = client, steps
        self._asked: tuple[str, int, int | None] | None = None
        self._known = ""
        self._running: tuple[str, Any, int] | None = None
        self._finished: tuple[str, Any] | None = None
        steps.boundaries.append(self._at_boundary)
        client.on_answer.append(self._at_answer)

    def remove(self) -> None:
        """Answers no more; a profile under way is given up."""
        if self._at_answer in self._client.on_answer:
            self._client.on_answer.remove(self._at_answer)
        if self._at_boundary in self._steps.boundaries:
            self._steps.boundaries.remove(self._at_boundary)
        running, self._running = self._running, None
        if running is not None:
            running[1].stop()

    def _at_boundary(self, step: int | None) -> None:
        if self._running is None and self._asked is None:
            return
        try:
            self._move_on(step)
        except Exception as fault:  # noqa: BLE001 -- the training must not notice
            self._running = self._asked = None
            self._client.mark("profile.failed", reason=repr(fault))

    def _move_on(self, step: int | None) -> None:
        if self._running is not None:
            name, profiler, left = self._running
            if left > 1:
                self._running = (name, profiler, left - 1)
                return
            self._running = None
            profiler.stop()
            self._finished = (name, profiler)
        elif self._asked is not None:
            name, steps, first = self._asked
            if first is not None:
                if step is None or step < first:
                    return
                steps -= step - first  # heard of it in the middle of them
            self._asked = None
            if steps < 1:
                self._client.mark("profile.failed", reason=f"step {step} has begun; the steps asked for are over")
                return
            if torch.autograd._profiler_enabled():  # noqa: SLF001 -- no public name
                self._client.mark("profile.failed", reason="another profiler is running")
                return
            profiler = torch.profiler.profile()
            profiler.start()
            self._running = (name, profiler, steps)

    def _at_answer(self, answer: dict[str, Any]) -> None:
        asked = answer.get("profile")
        if isinstance(asked, dict) and asked.get("rank", self._client.rank) == self._client.rank:
            self._hear(str(asked["id"]), int(asked["steps"]), asked.get("first_step"))
        finished, self._finished = self._finished, None
        if finished is not None:
            try:
                self._post(*finished)
            except Exception as fault:  # noqa: BLE001 -- the client's thread goes on
                self._client.mark("profile.failed", reason=repr(fault))

    def _hear(self, name: str, steps: int, first: int | None) -> None:
        if name == self._known or self._running is not None or self._finished is not None:
            return
        self._known = name
        self._asked = (name, max(1, min(steps, MOST_STEPS)), None if first is None else int(first))

    def _post(self, name: str, profiler: Any) -> None:
        client = self._client
        with tempfile.TemporaryDirectory(prefix="crossrank-profile-") as folder:
            path = Path(folder) / "trace.json.gz"
            profiler.export_chrome_trace(str(path))
            if path.stat().st_size > TRACE_BYTES:
                client.mark("profile.failed", reason=f"the trace has {path.stat().st_size} bytes; ask for fewer steps")
                return
            body = path.read_bytes()
        where = f"/v1/import?format=kineto&job={quote(client.job, safe='')}&rank={client.rank}&profile={quote(name, safe='')}"
        outcome = client.post(where, body, {"content-type": "application/json", "content-encoding": "gzip"})
        if not outcome.taken:
            client.mark("profile.failed", reason=f"the service answered {outcome.status} to the trace")
