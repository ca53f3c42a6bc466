"""What a user can do wrong with each command: one line that says what, the documented exit code, and never a traceback."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from crossrank import cli
from crossrank.commands.output import EXIT_CLOSED, EXIT_UNWRITABLE
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

AWAY = "http://127.0.0.1:9"  # nobody listens on the discard port
READING = ("report", "why", "top", "ls", "stats", "doctor", "export", "diff")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A data folder with one small job."""
    data = tmp_path_factory.mktemp("cli") / "data"
    with InProcess(data) as service:
        events = simulate(JobConfig(job="j", dp=2, tp=1, pp=2, steps=4, microbatches=2, ranks_per_host=2), seed=3).events
        service.post("/v1/events", encode.ndjson(events), encode.NDJSON_TYPE)
    return data


@dataclass
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs the program in this process, with streams of its own: only what happens between it and the shell needs another one."""

    def once(*arguments: str, out: IO[str] | None = None, encoding: str = "utf-8") -> Done:
        held = [tmp_path / "stdout", tmp_path / "stderr"]
        with ExitStack() as stack:
            stdout = out or stack.enter_context(held[0].open("w", encoding=encoding))
            stderr = stack.enter_context(held[1].open("w", encoding=encoding))
            with monkeypatch.context() as patch:
                patch.setenv("COLUMNS", "100")
                patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
                patch.setattr(sys, "argv", ["crossrank", *arguments])
                patch.setattr(sys, "stdout", stdout)
                patch.setattr(sys, "stderr", stderr)
                code = 0
                try:
                    cli.main()
                except SystemExit as ended:
                    code = int(ended.code or 0)
        texts = [path.read_text(encoding=encoding) if path.exists() else "" for path in held]
        return Done(code, *texts)

    return once


def told(done: Done, code: int) -> None:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done


def in_one_line(done: Done) -> None:
    assert done.stderr.startswith("crossrank: ")
    assert done.stderr.count("\n") == 1


def asked(command: str, tmp_path: Path, job: str = "j") -> list[str]:
    """The command with arguments that are right, but for where it asks."""
    more = {"why": [job, "1"], "diff": [job, job], "export": [job, "-o", str(tmp_path / "out")], "top": [job, "--once"]}
    return [command, *more.get(command, [] if command in {"ls", "stats"} else [job])]


@pytest.mark.parametrize("command", READING)
def test_nobody_answers(run, command, tmp_path):
    done = run(*asked(command, tmp_path), "--url", AWAY)
    told(done, 8 if command == "doctor" else 3)
    if command == "doctor":
        assert "no service answers" in done.stdout.replace("\n", " ")
    else:
        in_one_line(done)


@pytest.mark.parametrize("command", READING)
def test_an_address_that_is_none(run, command, tmp_path):
    done = run(*asked(command, tmp_path), "--url", "ftp://x:y:z")
    told(done, 2)
    in_one_line(done)


@pytest.mark.parametrize("command", READING)
def test_a_folder_that_is_not_there(run, command, tmp_path):
    done = run(*asked(command, tmp_path), "--data", str(tmp_path / "nothing"))
    told(done, 2)
    in_one_line(done)


@pytest.mark.parametrize("command", ["report", "why", "top", "doctor", "export", "diff"])
def test_a_job_that_is_not_there_and_has_a_hostile_name(run, command, tmp_path, folder):
    done = run(*asked(command, tmp_path, "no\x1b[31mjob"), "--data", str(folder))
    told(done, 4)
    in_one_line(done)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["why", "j", "999"], 4),
        (["why", "j", "first"], 2),
        (["why", "j", "1", "--save", "-1"], 2),
        (["top", "j", "--every", "0"], 2),
        (["report", "j", "--from", "x"], 2),
        (["report"], 2),
        (["diff", "j", "j", "--fail-over", "much"], 2),
        (["export", "j", "-o", "/proc/none"], 2),
        (["ls", "--unknown"], 2),
    ],
)
def test_values_that_are_wrong(run, arguments, code, folder):
    told(run(*arguments, *([] if arguments == ["report"] else ["--data", str(folder)])), code)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nonsense"], 2),
        (["send", "nothing.ndjson", "--job", "j"], 2),
        (["send", "{file}", "--job", "j", "--url", AWAY, "--retry-for", "0"], 3),
        (["import", "kineto", "nothing.json", "--job", "j"], 2),
        (["import", "no_format", "{file}", "--job", "j"], 2),
        (["import", "kineto", "{file}", "--job", "j", "--url", AWAY, "--retry-for", "0"], 5),
        (["simulate"], 2),
        (["simulate", "-o", "/proc/none", "--dp", "1", "--tp", "1", "--pp", "2", "--steps", "2"], 2),
        (["simulate", "-o", "{out}", "--fault", "slow:rank=x"], 2),
        (["simulate", "--url", AWAY, "--dp", "1", "--tp", "1", "--pp", "2", "--steps", "2"], 3),
        (["verify", "--data", "{out}"], 4),
        (["rebuild", "--data", "{out}"], 4),
        (["serve", "--data", "{out}", "--host", "not an address", "--port", "0", "--insecure"], 2),
        (["token", "create", "--scope", "king"], 2),
        (["token", "revoke", "none", "--data", "{out}"], 4),
        (["token", "list", "--data", "{file}"], 5),
    ],
)
def test_mistakes_of_the_commands_that_write(run, arguments, code, tmp_path):
    file = tmp_path / "rank0.json"
    file.write_text("this is no event\n")
    told(run(*(a.format(file=file, out=tmp_path / "out") for a in arguments)), code)


@pytest.mark.parametrize("command", ["report", "why", "top", "ls", "stats", "doctor", "diff"])
def test_a_full_disk_behind_the_output(run, command, tmp_path, folder):
    with Path("/dev/full").open("w") as full:
        done = run(*asked(command, tmp_path), "--data", str(folder), out=full)
    told(done, EXIT_UNWRITABLE)
    assert "cannot write the output" in done.stderr


@pytest.mark.parametrize("command", ["report", "why", "top", "ls", "stats", "doctor", "diff"])
def test_a_reader_that_goes_away(run, command, tmp_path, folder):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = run(*asked(command, tmp_path), "--data", str(folder), out=gone)
    told(done, EXIT_CLOSED)
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["report", "why", "top", "ls", "doctor", "diff"])
def test_a_locale_without_utf8_gets_ascii(run, command, tmp_path, folder):
    done = run(*asked(command, tmp_path), "--data", str(folder), encoding="ascii")
    told(done, 0)
    assert done.stdout.isascii()
    assert done.stdout
