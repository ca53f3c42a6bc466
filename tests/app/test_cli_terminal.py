"""Commands on a real terminal (a pseudo terminal), without colours, and without a terminal: what a person sees and gets back."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

import pytest

from crossrank.commands.simulate import post
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.server import Service, derived

JOB, SLOW = "on-screen", 1
ROWS, COLUMNS = 30, 100
PATIENCE_S = 60
ENTER_SCREEN, LEAVE_SCREEN, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
COLOUR = re.compile(rb"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)(?:;[\d;]*)?m")
# A session of its own whose terminal is stdin: only then do Ctrl-C and the window's size reach the command as they do in a shell.
_IN_SESSION = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory):
    with Service(tmp_path_factory.mktemp("terminal") / "data") as running:
        post(
            simulate(JobConfig(job=JOB, dp=2, tp=2, pp=1, steps=10), [SlowCompute(SLOW, "forward", (4, 7), 30_000_000)], seed=2),
            running.url,
        )
        with running.client() as client:
            derived(client, JOB)
        yield running


class Terminal:
    """A command on a pseudo terminal of its own."""

    def __init__(self, url: str, *arguments: str, **env: str) -> None:
        self._ours, self.theirs = os.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "TERM")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _IN_SESSION, sys.executable, "-m", "crossrank.cli", *arguments],
            stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            env={**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8", "CROSSRANK_URL": url, **env},
        )  # fmt: skip
        self.said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)
        os.close(self.theirs)

    def read_until(self, *parts: bytes) -> bytes:
        """All output once every part has been in it."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(part in self.said for part in parts):
            assert time.monotonic() < deadline, self.said
            self._read(0.2)
        return self.said

    def press(self, key: bytes) -> None:
        """What a key sends."""
        os.write(self._ours, key)

    def wait(self) -> int:
        """Reads on until the command ends; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.said
            self._read(0.1)
        while self._read(0):
            pass
        return self._process.returncode

    def _read(self, patience_s: float) -> bool:
        if not select.select([self._ours], [], [], patience_s)[0]:
            return False
        part = os.read(self._ours, 65536)
        self.said += part
        return bool(part)


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_top_fills_the_screen_until_a_key_and_gives_the_terminal_back(service, key):
    with Terminal(service.url, "top", JOB, "--every", "0.5") as terminal:
        terminal.read_until(ENTER_SCREEN, JOB.encode(), f"ank {SLOW}".encode())
        assert termios.tcgetattr(terminal.theirs)[3] & termios.ICANON == 0, "keys come one by one"
        terminal.press(b"x")  # any other key changes nothing
        terminal.said = b""
        terminal.read_until(JOB.encode())  # the next look
        terminal.press(key)
        assert terminal.wait() == 0
        assert LEAVE_SCREEN in terminal.said
        assert SHOW_CURSOR in terminal.said
        assert termios.tcgetattr(terminal.theirs) == terminal.before
        assert b"Traceback" not in terminal.said


def test_top_says_what_is_wrong_and_leaves_the_screen_alone(service):
    with Terminal(service.url, "top", "nobody") as terminal:
        assert terminal.wait() == 4
        assert b"nobody" in terminal.said
        assert ENTER_SCREEN not in terminal.said
        assert b"Traceback" not in terminal.said


COMMANDS = (("ls",), ("report", JOB), ("why", JOB, "5"), ("top", JOB, "--once"), ("doctor", JOB))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_no_colours_where_none_are_wanted_nor_without_a_terminal(service, command, tmp_path: Path):
    with Terminal(service.url, *command, NO_COLOR="1") as terminal:
        codes = [terminal.wait()]
        assert not COLOUR.search(terminal.said)
        plain = terminal.said
    piped = subprocess.run(
        [sys.executable, "-m", "crossrank.cli", *command],
        capture_output=True, env={**os.environ, "CROSSRANK_URL": service.url, "TERM": "xterm-256color"}, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert {piped.returncode, *codes} <= {0, 8}
    assert b"\x1b" not in piped.stdout + piped.stderr
    assert JOB.encode() in piped.stdout
    assert JOB.encode() in plain
    assert not piped.stderr, "progress is for terminals only"


def test_a_terminal_gets_emphasis(service):
    with Terminal(service.url, "report", JOB) as terminal:
        assert terminal.wait() == 0
        assert b"\x1b[1m" in terminal.said
