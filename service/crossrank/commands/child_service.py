"""A service of our own in a child process: `crossrank serve` on a folder, ended with us.

A process and not a thread, so that the demo posts over real HTTP to exactly what a user runs.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, Self

from crossrank import timesource
from crossrank.commands.client import HttpAnswers
from crossrank.errors import CrossrankError, StoreUnavailable, Unreachable

START_S: Final = 60.0
STOP_S: Final = 30.0
_POLL_S: Final = 0.05
_LOG_LINES: Final = 5


def free_port(wanted: int) -> int:
    """The wanted port of 127.0.0.1 when it can be listened on, else a free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Unreachable("no port of 127.0.0.1 can be listened on")


class ChildService:
    """A running child service; a context manager that stops it. Its log is `service.log` in the data folder."""

    def __init__(self, data: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = data / "service.log"
        try:
            data.mkdir(parents=True, exist_ok=True)
            with self.log.open("wb") as log:
                command = [sys.executable, "-m", "crossrank.cli", "serve", "--data", str(data), "--port", str(port)]
                self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 -- our own program
        except OSError as fault:
            raise StoreUnavailable(f"cannot start a service with data folder {data}: {fault}") from fault

    def wait_ready(self, answers: HttpAnswers) -> None:
        """Returns once the service is ready. Raises Unreachable with the end of its log when it does not start."""
        deadline_ns = timesource.monotonic_ns() + int(START_S * 1e9)
        while self._process.poll() is None and timesource.monotonic_ns() < deadline_ns:
            try:
                answers.get("/readyz", {})
            except CrossrankError:
                threading.Event().wait(_POLL_S)
            else:
                return
        last = "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        raise Unreachable(f"the service did not start; its log {self.log} ends with\n{last}")

    def wait(self) -> None:
        """Returns when the service has ended."""
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
