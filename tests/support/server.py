"""A real service process for tests: real HTTP on a free loopback port, killable at any moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import httpx

START_TIMEOUT_S = 120


class Service:
    """`crossrank serve` on a data folder; a context manager that ends the process it started."""

    def __init__(self, folder: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.folder, self._options, self._env = folder, options, env or {}
        self.log: list[str] = []
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self._drain: threading.Thread | None = None

    def start(self) -> Self:
        """Starts the process and returns once it listens."""
        command = [sys.executable, "-m", "crossrank.cli", "serve", "--data", str(self.folder), "--port", "0", *self._options]
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, **self._env}
        )
        found = threading.Event()
        self._drain = threading.Thread(target=self._read_log, args=(self._process, found), daemon=True)
        self._drain.start()
        if not found.wait(START_TIMEOUT_S) or not self.url:
            self.kill()
            raise AssertionError("the service did not start:\n" + "".join(self.log))
        return self

    def _read_log(self, process: subprocess.Popen[str], found: threading.Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line)
            match = re.search(r"serving on (https?://\S+:\d+)", line)
            if match:
                self.url = match.group(1)
                found.set()
        found.set()

    @property
    def pid(self) -> int:
        """Process id while running."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        code = self._process.wait(60)
        if self._drain is not None:
            self._drain.join(10)
        self._process = None
        self.url = ""
        return code

    def client(self) -> httpx.Client:
        """A client of the running service."""
        return httpx.Client(base_url=self.url, timeout=60)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def derived(client: httpx.Client, job: str) -> None:
    """Returns when everything acknowledged is in the job's answers."""
    client.post(f"/v1/jobs/{job}/derive", params={"wait": True}).raise_for_status()
