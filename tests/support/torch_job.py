"""A real training job of several ranks for tests: one process a rank, each on a "host" of its own, as a launcher starts them.

The interpreter that has PyTorch is named by CROSSRANK_TORCH_PYTHON (see `make test-torch`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_S = 30


class Trainer:
    """The process that has PyTorch and forks ranks of it; see `tests/torch/train.py`."""

    def __init__(self) -> None:
        python = os.environ.get("CROSSRANK_TORCH_PYTHON", str(REPOSITORY / ".venv-torch" / "bin" / "python"))
        self._process = subprocess.Popen(
            [python, str(REPOSITORY / "tests" / "torch" / "train.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY / "client"),
                "OMP_NUM_THREADS": "1",
                "TORCH_FR_BUFFER_SIZE": "2000",
            },
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin(self, argv: Sequence[str], ranks: Sequence[dict[str, str]]) -> list[int]:
        """Starts the ranks of a job, given their environments; their process ids."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"argv": list(argv), "ranks": list(ranks)}) + "\n")
        self._process.stdin.flush()
        pids: list[int] = json.loads(self._answer())
        return pids

    def close(self) -> None:
        """Ends it, and every rank that is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_S)


class TorchJob:
    """One job of `ranks` ranks. clocks: offset in ns and rate in ppm of each rank's clock."""

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        url: str,
        job: str,
        *argv: str,
        ranks: int = 4,
        clocks: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self._trainer, self._folder, self.job, self._argv = trainer, folder, job, argv
        common = {
            "WORLD_SIZE": str(ranks),
            "CROSSRANK_URL": url,
            "CROSSRANK_JOB": job,
            "TEST_STORE": str(folder / "store"),
            "LOCAL_RANK": "0",
        }
        anchor = (time.monotonic_ns(), time.time_ns())
        self._environments = [{**common, **self._own(rank, clocks, anchor)} for rank in range(ranks)]
        self.pids: list[int] = []

    def _own(self, rank: int, clocks: Sequence[tuple[int, int]] | None, anchor: tuple[int, int]) -> dict[str, str]:
        own = self._rank_folder(rank)  # hosts share no temporary folder
        own.mkdir(parents=True, exist_ok=True)
        env = {"RANK": str(rank), "CROSSRANK_HOST_NAME": f"host{rank}", "TMPDIR": str(own)}
        env |= {f"TEST_{name.upper()}": str(own / name) for name in ("result", "log", "exit")}
        if clocks is not None:
            env["TEST_CLOCK"] = ",".join(map(str, (*anchor, *clocks[rank])))
        return env

    def _rank_folder(self, rank: int) -> Path:
        return self._folder / f"rank{rank}"

    def __enter__(self) -> Self:
        self.pids = self._trainer.begin(self._argv, self._environments)
        return self

    def exit_code(self, rank: int) -> int | None:
        """How a rank ended; None while it runs."""
        path = self._rank_folder(rank) / "exit"
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None

    def finish(self, timeout_s: float = 90) -> None:
        """Waits for every rank to end well."""
        until = time.monotonic() + timeout_s
        for rank in range(len(self.pids)):
            while self.exit_code(rank) is None and time.monotonic() < until:
                time.sleep(0.05)
            assert self.exit_code(rank) == 0, f"rank {rank} ended with {self.exit_code(rank)}:\n{self.log(rank)}"

    def log(self, rank: int) -> str:
        """The last of what a rank said."""
        return (self._rank_folder(rank) / "log").read_text(errors="replace")[-4000:]

    def result(self, rank: int) -> dict[str, Any]:
        """What a rank left when it ended: its losses and the counts of its client."""
        found: dict[str, Any] = json.loads((self._rank_folder(rank) / "result").read_text())
        return found

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Sends a signal to a rank that runs."""
        if self.exit_code(rank) is None:
            os.kill(self.pids[rank], number)

    def __exit__(self, *_: object) -> None:
        for rank in range(len(self.pids)):
            try:
                self.signal(rank, signal.SIGKILL)
            except ProcessLookupError:
                continue
