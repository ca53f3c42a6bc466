"""Recorded files through the door: POST /v1/import, its log, and `crossrank import` into a service and a folder."""

from __future__ import annotations

import gzip
import json
import sys

import pytest

from crossrank import cli
from tests.support.inprocess import InProcess
from tests.support.server import Service, derived

BASE = 1_711_964_646_000_000_000


def dump(seq: int, **changes: object) -> bytes:
    entry = {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": BASE + seq,
        "state": "scheduled",
        "retired": False,
    }
    status = {"0": {"last_enqueued_collective": seq, "last_completed_collective": seq - 1}}
    config = {"0": {"name": "0", "ranks": "[0, 1]"}}
    return json.dumps({"version": "2.9", "entries": [entry], "pg_config": config, "pg_status": status} | changes).encode()


def trace(rank: int | None, *, count: int = 3, at: int = 5) -> bytes:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 2, "ts": at + i, "dur": 0.5, "args": {"x": i}}
        for i in range(count)
    ]
    info = {} if rank is None else {"distributedInfo": {"rank": rank}}
    return json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events, **info}).encode()


def post(service: InProcess, body: bytes, encoding: str = "", **params: object):
    return service.request(
        "POST", "/v1/import", content=body, params=params, headers={"content-encoding": encoding} if encoding else {}
    )


def stored(service: InProcess, job: str) -> list[dict]:
    service.derive(job)
    return service.get(f"/v1/jobs/{job}/events", limit=1000)["events"]


def test_a_file_is_on_disk_when_it_is_answered_and_comes_back_from_the_log(tmp_path):
    with InProcess(tmp_path / "data") as service:
        answer = post(service, trace(2), format="kineto", job="llm")
        assert (answer.status_code, answer.json()["accepted"]) == (200, 3)
        assert post(service, gzip.compress(trace(2)), format="kineto", job="llm").json()["duplicate"] == 3
        assert (
            post(service, gzip.compress(dump(7)), encoding="gzip", format="flight_recorder", job="llm", rank=4).json()["accepted"]
            == 2
        )
        assert post(service, dump(7), format="flight_recorder", job="llm", name="rank5.json").json()["accepted"] == 2
        before = stored(service, "llm")
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in (tmp_path / "data").rglob("*.wal"):  # the log alone, as a crash leaves it
            (copy / "wal").mkdir(exist_ok=True)
            (copy / "wal" / file.name).write_bytes(file.read_bytes())
    with InProcess(copy) as again:
        assert stored(again, "llm") == before
    assert sorted({e["rank"] for e in before}) == [2, 4, 5]
    assert {e["group"] for e in before if e["rank"] == 4} == {"0"}


@pytest.mark.parametrize(
    ("params", "body", "status", "field"),
    [
        ({"format": "kineto", "job": "llm"}, trace(None), 400, "rank"),
        ({"format": "kineto", "job": "llm", "rank": 1}, trace(2), 400, "rank"),
        ({"format": "kineto", "job": "llm", "rank": -1}, trace(2), 400, "rank"),
        ({"format": "kineto", "job": "llm", "rank": "x"}, trace(2), 400, "rank"),
        ({"format": "nsight", "job": "llm"}, trace(2), 400, "format"),
        ({"job": "llm"}, trace(2), 400, "format"),
        ({"format": "kineto"}, trace(2), 400, "job"),
        ({"format": "kineto", "job": "llm"}, b"hello", 400, None),
        ({"format": "flight_recorder", "job": "llm", "rank": 1}, b"\x80\x02cos\nsystem\n(S'true'\ntR.", 400, None),
    ],
)
def test_what_cannot_be_imported_is_a_400_that_names_the_field(tmp_path, params, body, status, field):
    with InProcess(tmp_path / "data") as service:
        answer = post(service, body, **params)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["detail"].get("field") == field
        assert service.get("/v1/jobs")["jobs"] == []


def test_a_trace_without_a_rank_says_how_to_give_it(tmp_path):
    with InProcess(tmp_path / "data") as service:
        message = post(service, trace(None), format="kineto", job="llm").json()["error"]["message"]
    assert "which rank" in message
    assert "?rank=N" in message


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with Service(tmp_path_factory.mktemp("running") / "data") as service:
        yield service


def command(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["crossrank", "import", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_the_command_imports_into_a_service(running, tmp_path, monkeypatch, capsys):
    files = tmp_path / "files"
    files.mkdir()
    (files / "rank0.w0.json.gz").write_bytes(gzip.compress(trace(0, count=20_000)))
    (files / "rank0.w1.json").write_bytes(trace(0, at=100_000))
    (files / "rank1.json").write_bytes(trace(None))
    with running.client() as client:
        assert command(monkeypatch, "kineto", files, "--job", "llm", "--url", running.url) == 0
        assert "accepted   20,006 events" in capsys.readouterr().out
        assert command(monkeypatch, "kineto", files, "--job", "llm", "--url", running.url) == 0
        assert "duplicate  20,006 events" in capsys.readouterr().out
        direct = client.post("/v1/import", params={"format": "kineto", "job": "llm"}, content=trace(0, count=20_000)).json()
        assert (direct["accepted"], direct["duplicate"]) == (0, 20_000)  # both ways give the same events


def test_files_that_contradict_each_other_are_refused_by_name(running, tmp_path, monkeypatch, capsys):
    first, second = tmp_path / "a_rank3.json", tmp_path / "b_rank3.json"
    first.write_bytes(trace(3))
    second.write_bytes(trace(3, at=6))
    url = running.url
    assert command(monkeypatch, "kineto", first, second, "--job", "odd", "--url", url) == 2
    said = capsys.readouterr().err
    assert str(first) in said
    assert str(second) in said
    assert command(monkeypatch, "kineto", first, second, "--job", "odd", "--rank", 3, "--url", url) == 2
    assert command(monkeypatch, "kineto", tmp_path / "none*", "--job", "odd", "--url", url) == 2
    assert command(monkeypatch, "nsight", first, "--job", "odd", "--url", url) == 2


def test_the_command_imports_into_a_folder_and_names_bad_files(tmp_path, monkeypatch, capsys):
    good, bad = tmp_path / "rank0.json", tmp_path / "rank1.json"
    good.write_bytes(dump(7))
    bad.write_bytes(b"\x80\x02cos\nsystem\n(S'true'\ntR.")
    assert command(monkeypatch, "flight_recorder", bad, good, "--job", "llm", "--data", tmp_path / "data") == 5
    said = capsys.readouterr()
    assert "accepted   2 events" in said.out
    assert str(bad) in said.err
    with InProcess(tmp_path / "data") as service:
        assert len(stored(service, "llm")) == 2


def test_what_files_say_of_groups_becomes_the_topology(running, tmp_path, monkeypatch):
    config = [{"pg_name": "7", "pg_desc": "dp", "ranks": "[0, 1]"}, {"pg_name": "8", "ranks": []}, {"uid": 9, "ranks": [1, 0, 2]}]
    data = json.loads(trace(0)) | {"distributedInfo": {"rank": 0, "world_size": 4, "pg_config": config}}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(data))
    with InProcess(tmp_path / "a") as service:
        post(service, path.read_bytes(), format="kineto", job="llm")
        post(service, dump(7), format="flight_recorder", job="llm", rank=1)
        service.derive("llm")
        shape = service.get("/v1/jobs/llm/topology")
    assert shape["world_size"] == 4
    assert [(g["name"], g["ranks"]) for g in shape["groups"]] == [("0", [0, 1]), ("7", [0, 1]), ("9", [0, 1, 2])]
    assert command(monkeypatch, "kineto", path, "--job", "shaped", "--url", running.url) == 0
    with running.client() as client:
        derived(client, "shaped")
        assert [g["name"] for g in client.get("/v1/jobs/shaped/topology").json()["groups"]] == ["7", "9"]
