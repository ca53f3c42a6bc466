"""A simulated job posted over HTTP the way its ranks would post it: in batches, in parallel, at the pace of the job or faster."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from crossrank import timesource
from crossrank.commands.client import HttpAnswers, fault_of, reaching, read_capped
from crossrank.commands.line_batches import Batch
from crossrank.commands.poster import Poster, Tally
from crossrank.commands.source import job_path
from crossrank.simulate import deliver
from crossrank.simulate.encode import ndjson

OnPosted = Callable[[Tally], None]
"""Called in the posting thread after each acknowledged batch."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast to post: `speed` seconds of the job a second, None as fast as the service takes it."""

    speed: float | None = None
    workers: int = 8


def post_topology(answers: HttpAnswers, job: str, topology: dict[str, object]) -> None:
    """Says what the job looks like. Raises CrossrankError."""
    path = job_path(job, "topology")
    headers = {"content-type": "application/json"}
    body = json.dumps(topology).encode()
    with reaching(answers.url), answers.client.stream("POST", path, content=body, headers=headers) as response:
        reply = read_capped(response)
    if not response.is_success:
        raise fault_of(response.status_code, reply, f"POST {path}")


def post_batches(poster: Poster, batches: Sequence[deliver.Batch], pace: Pace, on_posted: OnPosted) -> Tally:
    """Posts all batches in the order given and returns what became of their events. Raises the first fault."""
    total = Tally()
    lock = threading.Lock()
    slots = threading.Semaphore(2 * pace.workers)

    def post(batch: deliver.Batch) -> None:
        try:
            text = ndjson(batch.events)
            tally = poster.post(Batch(Path(f"rank {batch.rank}"), 1, batch.events.num_rows, 0, len(text), text))
            with lock:
                total.add(tally)
                on_posted(tally)
        finally:
            slots.release()

    pending: list[Future[None]] = []
    began_ns = timesource.monotonic_ns()
    with ThreadPoolExecutor(pace.workers, thread_name_prefix="rank") as pool:
        try:
            for batch in batches:
                if pace.speed is not None:
                    due_ns = began_ns + int(batch.available_ns / pace.speed)
                    poster.stop.wait(max(0.0, (due_ns - timesource.monotonic_ns()) / 1e9))
                slots.acquire()
                pending.append(pool.submit(post, batch))
            for future in pending:
                future.result()
        except BaseException:
            poster.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return total
