"""The whole path from the command line: a real service process, real HTTP, a made-up job with a known truth."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from crossrank import cli
from tests.support.server import Service

SIMULATE = ("--job", "llm", "--dp", "4", "--tp", "2", "--pp", "1", "--steps", "12", "--seed", "5")
SLOW = "slow:rank=5,phase=forward,steps=4-8,extra=15ms"


def crossrank(*arguments: object, code: int = 0, env: dict[str, str] | None = None) -> str:
    """What a command prints, run in this process: starting an interpreter for each would take longer than the commands."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.setattr(sys, "argv", ["crossrank", *map(str, arguments)])
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert (ended.value.code or 0) == code, said.getvalue()
    return said.getvalue()


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    crossrank("simulate", "-o", folder, *SIMULATE, "--fault", SLOW)
    return folder


@pytest.fixture(scope="module")
def told(traces, tmp_path_factory):
    """A service that has been sent the job, and what the commands said on the way; then the folder it left behind."""
    data, cache = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("cache")
    said = {}
    with Service(data) as service:
        env = {"XDG_CACHE_HOME": str(cache), "CROSSRANK_URL": service.url}
        said["send"] = crossrank("send", traces, "--job", "llm", env=env)
        said["again"] = crossrank("send", traces, "--job", "llm", env=env)
        said["restart"] = crossrank("send", traces, "--job", "llm", "--restart", env=env)
        said["ls"] = crossrank("ls", env=env)
        said["report"] = crossrank("report", "llm", env=env)
        said["json"] = crossrank("report", "llm", "--from", "4", "--to", "8", "--json", env=env)
        said["export"] = crossrank("export", "llm", "-o", data.parent / "lake", env=env)
        said["unknown"] = crossrank("report", "nobody", env=env, code=4)
        said["simulate"] = crossrank("simulate", "--url", service.url, "--job", "other", *SIMULATE[2:])
        said["in use"] = crossrank("ls", "--data", data, code=5)
        assert service._end(signal.SIGINT) == 130
    return data, said


def sent_events(traces: Path) -> int:
    return sum(gzip.open(p).read().count(b"\n") for p in traces.glob("*.gz"))


def test_send_counts_and_resumes(told, traces):
    _, said = told
    total = f"{sent_events(traces):,}"
    assert f"accepted   {total} events" in said["send"]
    assert "skipped    8 files sent in an earlier run" in said["again"]
    assert f"duplicate  {total} events: the service had them already" in said["restart"]
    assert "accepted   0 events" in said["restart"]


def test_ls_shows_the_job(told):
    assert re.search(r"^llm +[\d,]+ events", told[1]["ls"], re.MULTILINE)


def test_the_report_names_the_slow_rank_first(told):
    text = told[1]["report"]
    assert "ranks       8 of 8 on 1 host" in text
    assert re.search(r"^ 1  straggler +rank 5 +4-8 ", text, re.MULTILINE), text
    assert "compute forward" in text


def test_the_report_as_json_has_the_true_cost(told, traces):
    answers = json.loads(told[1]["json"])
    truth = json.loads((traces / "truth.json").read_text())
    worst = answers["stragglers"]["stragglers"][0]
    assert (worst["rank"], worst["cause"]) == (5, {"kind": "compute", "name": "forward"})
    assert abs(worst["cost_ns"] - truth["cost_ns"][0]) < 0.1 * truth["cost_ns"][0]
    assert [s["step"] for s in answers["steps"]["steps"]] == [4, 5, 6, 7, 8]


def test_the_export_has_every_event_with_both_times(told, traces):
    data, _ = told
    lake = ds.dataset(data.parent / "lake", partitioning="hive")
    assert lake.count_rows() == sent_events(traces)
    assert {"start_ns", "aligned_start_ns", "bound_ns", "step_inferred"} <= set(lake.schema.names)


def test_an_unknown_job_is_one_line(told):
    assert told[1]["unknown"].startswith("crossrank: ")
    assert told[1]["unknown"].count("\n") == 1


def test_a_folder_answers_as_the_service_did(told, tmp_path, traces):
    data, said = told
    served = json.loads(said["json"])
    embedded = json.loads(crossrank("report", "llm", "--from", "4", "--to", "8", "--json", "--data", data))
    assert embedded["stragglers"] == served["stragglers"]
    assert embedded["steps"] == served["steps"]
    assert f"{sent_events(traces):,} events in" in crossrank("export", "llm", "-o", tmp_path, "--data", data)


def test_a_folder_in_use_is_one_line(told):
    assert told[1]["in use"].startswith("crossrank: ")
    assert told[1]["in use"].count("\n") == 1


def test_simulate_posts_to_a_service(told):
    assert re.search(r"posted [\d,]{4,} events, 0 known already, 0 rejected", told[1]["simulate"])


def test_the_demo_finds_what_was_injected(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "crossrank.cli", "demo", "--data", str(tmp_path / "demo"), "--speed", "20", "--once"]
        done = subprocess.run([*command, "--port", str(port)], capture_output=True, text=True, timeout=240, check=False)
    text = done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert f"port {port} is in use" in text
    assert "first event stored" in text
    assert re.search(r"^ 1  \w+ +rank (21|42) ", text, re.MULTILINE), text
    assert re.search(r"rank 21 .*compute forward", text), text
    assert re.search(r"rank 42 .*data dataloader", text), text
