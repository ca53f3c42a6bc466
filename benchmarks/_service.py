"""A real service for a benchmark: its own process, a free loopback port, a data folder of its own that is removed afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_START_S = 120.0  # a first start compiles kernels


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    url: str
    pid: int
    data: Path

    def cpu_s(self) -> float:
        """CPU seconds the process has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Resident memory, MB = 1e6 bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def written_bytes(self) -> int:
        """Bytes in the data folder."""
        return sum(f.stat().st_size for f in self.data.rglob("*") if f.is_file())


@contextmanager
def service(prepare: Callable[[Path], object] = lambda _: None) -> Iterator[Service]:
    """Starts a service, waits until it is ready, stops it with SIGTERM. prepare: fills the data folder before."""
    with tempfile.TemporaryDirectory(prefix="crossrank-benchmark-") as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        data, log = Path(folder) / "data", Path(folder) / "log"
        prepare(data)
        command = [sys.executable, "-m", "crossrank.cli", "serve", "--data", str(data), "--host", "127.0.0.1", "--port", str(port)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            _wait(process, f"http://127.0.0.1:{port}", log)
            yield Service(f"http://127.0.0.1:{port}", process.pid, data)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the service ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"the service was not ready after {_START_S:.0f} s:\n{log.read_text()[-2000:]}")
