"""`crossrank send`: event files to a service, in parallel, over and over until each batch is acknowledged, resumable.

Reading runs in one thread and posting in several; at most two batches a worker are in memory. What is acknowledged is
remembered a file at a time (`resume`), so that the same command goes on where it was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from crossrank import timesource
from crossrank.commands.client import HttpAnswers, base_url, connect, restated
from crossrank.commands.line_batches import Batch, read_batches
from crossrank.commands.poster import Poster, Stopped, Tally, worth_waiting
from crossrank.commands.resume import Memory, Progress
from crossrank.commands.source import job_path
from crossrank.errors import CrossrankError, NotFound, Refused, Unreachable

FIRST_CONTACT_S = 5.0  # a service that was started a moment ago may not listen yet


@dataclass(slots=True)
class Upload:
    """What a run of `send` did. `failed` holds files that could not be sent whole, with the reason."""

    files: int = 0
    skipped_files: int = 0
    resumed_files: int = 0
    text_bytes: int = 0
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)
    failed: list[tuple[Path, CrossrankError]] = field(default_factory=list)


OnProgress = Callable[[Path, int], None]
"""Called with a file and the bytes of its text acknowledged just now."""


class _Run:
    """One upload in progress: the pieces its threads share."""

    def __init__(self, poster: Poster, workers: int, on_progress: OnProgress) -> None:
        self.upload = Upload()
        self._poster = poster
        self._on_progress = on_progress
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="send")
        self._slots = threading.Semaphore(2 * workers)
        self._lock = threading.Lock()
        self._broken: CrossrankError | None = None  # nothing more can be sent

    def send(self, path: Path, progress: Progress) -> None:
        """Sends what a file has beyond its progress. Returns when its last batch was handed to a worker.

        Raises the fault that ended the whole upload.
        """
        pending: list[Future[None]] = []
        refused: list[CrossrankError] = []
        try:
            for batch in read_batches(path, progress.bytes_done, progress.lines_done):
                self._slots.acquire()
                if self._broken is not None or refused:
                    self._slots.release()
                    break
                pending.append(self._pool.submit(self._post, batch, progress, refused))
        except CrossrankError as fault:
            refused.append(fault)
        # A file is finished when its last batch is; the next file need not wait for that.
        self._pool.submit(self._close, path, progress, pending, refused)
        if self._broken is not None:
            raise self._broken

    def _post(self, batch: Batch, progress: Progress, refused: list[CrossrankError]) -> None:
        try:
            tally = self._poster.post(batch)
        except Stopped:
            refused.append(Refused("stopped"))
        except CrossrankError as cause:
            place = f"{batch.path}: lines {batch.first_line:,} to {batch.first_line + batch.lines - 1:,}"
            fault = restated(cause, f"{place}: {cause}")
            refused.append(fault)
            if worth_waiting(fault):
                self._broken = fault
                self._poster.stop.set()
        else:
            with self._lock:
                self.upload.tally.add(tally)
                self.upload.text_bytes += len(batch.text)
                progress.acknowledge(batch)
            self._on_progress(batch.path, len(batch.text))
        finally:
            self._slots.release()

    def _close(self, path: Path, progress: Progress, pending: list[Future[None]], refused: list[CrossrankError]) -> None:
        for future in pending:
            future.result()
        if refused:
            self.upload.failed.append((path, refused[0]))
        elif self._broken is None:
            progress.finish()

    def finish(self) -> None:
        """Waits for all batches. Raises the fault that ended the upload."""
        self._pool.shutdown(wait=True)
        if self._broken is not None:
            raise self._broken

    def abandon(self) -> None:
        """Stops as soon as the batches on the wire are answered."""
        self._poster.stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


def send_files(
    files: Sequence[Path],
    *,
    url: str,
    job: str | None,
    workers: int,
    memory: Memory,
    restart: bool,
    patience_s: float,
    on_progress: OnProgress,
) -> Upload:
    """Sends the files and returns what became of their events.

    A file that cannot be read or is refused is noted in `failed` and the others go on. Raises Unreachable, Overloaded or
    StoreUnavailable when the service does not take anything for `patience_s`, and KeyboardInterrupt when stopped; what was
    acknowledged by then is remembered.
    """
    url = base_url(url)
    started_ns = timesource.monotonic_ns()
    with connect(url, workers) as client:
        known = _knows_the_job(HttpAnswers(url, client), job, patience_s)
        run = _Run(Poster(client, url, job, patience_s), workers, on_progress)
        upload = run.upload
        try:
            for path in files:
                progress = memory.progress(path, url, job, restart=restart or not known)
                if progress.finished:
                    upload.skipped_files += 1
                    continue
                upload.files += 1
                upload.resumed_files += progress.bytes_done > 0
                run.send(path, progress)
            run.finish()
        except BaseException:
            run.abandon()
            raise
    upload.seconds = (timesource.monotonic_ns() - started_ns) / 1e9
    return upload


def _knows_the_job(answers: HttpAnswers, job: str | None, patience_s: float) -> bool:
    """Whether the service holds the job, so that an earlier acknowledgement still means something.

    A data folder that was emptied since knows nothing of what it acknowledged. Raises Unreachable when no service answers.
    """
    deadline_ns = timesource.monotonic_ns() + int(min(FIRST_CONTACT_S, patience_s) * 1e9)
    while True:
        try:
            if job is None:
                return bool(answers.get("/v1/jobs", {}).get("jobs"))
            answers.get(job_path(job), {})
        except NotFound:
            return False
        except Unreachable:
            if timesource.monotonic_ns() > deadline_ns:
                raise
            threading.Event().wait(0.2)
        else:
            return True
