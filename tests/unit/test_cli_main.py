"""The program itself: help without heavy imports, one line a fault, exit codes that scripts can rely on."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest

from crossrank import cli, errors
from crossrank.commands.client import HttpAnswers, base_url, connect, fault_of
from crossrank.commands.source import open_answers
from tests.support.stub_service import Reply, fault, receipt, stub_service

COMMANDS = ("serve", "send", "report", "export", "ls", "simulate", "demo", "import")
HEAVY = ("numpy", "pyarrow", "numba", "scipy", "fastapi", "uvicorn", "duckdb", "httpx", "pydantic")


def crossrank(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["crossrank", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_help_imports_nothing_heavy_and_names_every_command():
    script = (
        "import sys; from crossrank import cli; sys.argv = ['crossrank', '--help']\n"
        "try: cli.main()\n"
        f"finally: sys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert all(f" {name} " in done.stdout for name in COMMANDS)
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, monkeypatch, capsys):
    assert crossrank(monkeypatch, command, "--help") == 0
    assert f"crossrank {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(404, "not_found", 4), (400, "bad_parameter", 2), (503, "overloaded", 5), (500, "error", 5)],
)
def test_a_fault_of_the_service_is_one_line_and_an_exit_code(status, code, exit_code, monkeypatch, capsys):
    with stub_service(lambda r: fault(status, code, "what happened")) as stub:
        assert crossrank(monkeypatch, "report", "j", "--url", stub.url) == exit_code
    assert capsys.readouterr().err == "crossrank: what happened\n"


def test_no_service_is_exit_code_3(monkeypatch, capsys):
    with stub_service(lambda r: receipt(0)) as stub:
        url = stub.url
    assert crossrank(monkeypatch, "ls", "--url", url) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"crossrank: no service answers at {url}")
    assert error.count("\n") == 1


def test_wrong_usage_is_exit_code_2(monkeypatch, capsys, tmp_path):
    assert crossrank(monkeypatch, "send") == 2
    assert crossrank(monkeypatch, "send", str(tmp_path / "nothing"), "--job", "j") == 2
    assert "no such file" in capsys.readouterr().err
    assert crossrank(monkeypatch, "ls", "--url", "ftp://x") == 2
    assert crossrank(monkeypatch, "ls", "--url", "http://x", "--data", str(tmp_path)) == 2
    assert "not both" in capsys.readouterr().err


def test_rejected_events_are_exit_code_6(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.ndjson").write_text("{}\n{}\n")
    answer = {"GET": fault(404, "not_found", ""), "POST": receipt(1, 0, {"no_rank": 1}, [{"index": 1, "reason": "no_rank"}])}
    with stub_service(lambda r: answer[r.method]) as stub:
        assert crossrank(monkeypatch, "send", str(tmp_path / "a.ndjson"), "--job", "j", "--url", stub.url) == 6
    assert f"{tmp_path / 'a.ndjson'}:2: no_rank" in capsys.readouterr().out


def test_ctrl_c_is_exit_code_130(monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("crossrank.commands.jobs.run_list", interrupted)
    assert crossrank(monkeypatch, "ls") == 130


def test_report_as_json_is_the_answers(monkeypatch, capsys):
    with stub_service(lambda r: Reply({"path": r.path.split("?")[0]})) as stub:
        monkeypatch.setenv("CROSSRANK_URL", stub.url)
        crossrank(monkeypatch, "report", "j", "--json")
    assert {name: a["path"] for name, a in json.loads(capsys.readouterr().out).items()} == {
        "summary": "/v1/jobs/j",
        **{name: f"/v1/jobs/j/{name}" for name in ("bottlenecks", "stragglers", "steps", "clocks")},
    }


# --- the client ---


def test_addresses():
    assert base_url("collector:4318/") == "http://collector:4318"
    assert base_url("https://c/crossrank/") == "https://c/crossrank"
    for wrong in ("", "http://", "http://x:port", "http://x:99999", "file:///x"):
        with pytest.raises(errors.BadParameter, match="not an address"):
            base_url(wrong)


def test_a_fault_with_hostile_detail_is_still_that_fault():
    body = json.dumps({"error": {"code": "not_found", "message": "m", "detail": {"message": "x", "self": 1}}}).encode()
    found = fault_of(404, body, "GET /")
    assert isinstance(found, errors.NotFound)
    assert found.detail == {"message": "x", "self": 1}
    for junk in (b"", b"<html>", b"[]", b'{"error": 3}', b'{"error": {}}'):
        assert fault_of(502, junk, "GET /x").message.startswith("GET /x: HTTP 502")


def test_an_answer_beyond_the_cap_is_refused(monkeypatch):
    monkeypatch.setattr("crossrank.commands.client.read_capped.__defaults__", (1000,))
    with stub_service(lambda r: Reply({"x": "y" * 2000})) as stub, pytest.raises(errors.Refused, match="larger than"):
        HttpAnswers(stub.url).get("/v1/jobs", {})


@pytest.mark.parametrize("raw", [b"<html>", b"[1]", b""])
def test_something_else_on_the_port_is_said(raw):
    with stub_service(lambda r: Reply(raw=raw)) as stub, pytest.raises(errors.Refused, match="is it a crossrank service"):
        HttpAnswers(stub.url).get("/v1/jobs", {})


def test_a_connection_that_breaks_is_unreachable():
    client = httpx.Client(
        base_url="http://x", transport=httpx.MockTransport(lambda r: (_ for _ in ()).throw(httpx.ReadError("reset")))
    )
    with pytest.raises(errors.Unreachable, match="broke: reset"):
        HttpAnswers("http://x", client).get("/v1/jobs", {})


def test_proxies_are_not_used_for_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with stub_service(lambda r: Reply({"jobs": []})) as stub, connect(stub.url) as client:
        assert client.get("/v1/jobs").json() == {"jobs": []}


def test_a_data_folder_must_exist(tmp_path):
    with pytest.raises(errors.BadParameter, match="no such folder"):
        open_answers(None, tmp_path / "nothing")
