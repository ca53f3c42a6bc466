"""`crossrank profile` against a real service over HTTP: who is asked and why, how far it is, and every way it can be refused."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass

import pytest

from crossrank import cli
from crossrank.commands.profile import ranks_of, state_lines
from crossrank.commands.watch_app import EXIT_UNTRACED
from crossrank.errors import BadParameter
from tests.app.test_profile_routes import TRACE, events
from tests.support.server import Service, derived

NDJSON = {"content-type": "application/x-ndjson"}
DEADLINE_S = 60


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("data")) as service:
        yield service


def post_job(client, job: str) -> None:
    for rank in range(4):
        body = b"\n".join(events(rank, step, job) for step in range(6))
        client.post("/v1/events", content=body, headers=NDJSON).raise_for_status()
    derived(client, job)


@pytest.fixture
def service(running):
    """The service with the job `llm`; a request for a profile of an earlier test is forgotten with the job."""
    with running.client() as client:
        client.delete("/v1/jobs/llm")
        post_job(client, "llm")
        yield client


@pytest.fixture(scope="module")
def untouched(running):
    """The service with the job `still`, of which no profile is ever asked."""
    with running.client() as client:
        post_job(client, "still")
        yield client


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def run(running, monkeypatch, capsys):
    def once(*arguments: str, url: str | None = None, command: str = "profile") -> Done:
        monkeypatch.setenv("CROSSRANK_URL", url or running.url)
        monkeypatch.setattr(sys, "argv", ["crossrank", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return once


def refused(done: Done, code: int, said: str) -> None:
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1), done
    assert done.err.startswith("crossrank: ")
    assert said in done.err


def state(client) -> dict:
    return client.get("/v1/jobs/llm/profile").json()


def play_ranks(client, ranks: list[int]) -> None:
    """What ranks do once a profile is asked of them: post, hear of it, post the trace."""
    pause = threading.Event()
    for _ in range(DEADLINE_S * 20):
        if client.get("/v1/jobs/llm/profile").status_code == 200:
            break
        pause.wait(0.05)
    for rank in ranks:
        told = client.post("/v1/events", content=events(rank, 6), headers=NDJSON).json()["profile"]
        trace = json.dumps({**TRACE, "distributedInfo": {"rank": rank, "world_size": 4}}).encode()
        where = {"format": "kineto", "job": "llm", "rank": rank, "profile": told["id"]}
        client.post("/v1/import", content=trace, params=where, headers={"content-type": "application/json"}).raise_for_status()


def test_named_ranks_are_asked(service, run):
    done = run("llm", "--ranks", "3,0-1", "--steps", "4")
    assert done.code == 0
    assert done.out.splitlines()[:2] == ["asked 3 ranks of llm for a profile of the next 4 steps", "  rank 0: asked for"]
    assert "crossrank profile llm --state --wait" in done.out
    asked = state(service)
    assert ([r["rank"] for r in asked["ranks"]], asked["steps"]) == ([0, 1, 3], 4)


def test_steps_can_be_asked_for_by_number(service, run):
    lines = run("llm", "--ranks", "1", "--steps", "100-105").out.splitlines()
    assert lines[0] == "asked 1 rank of llm for a profile of steps 100 to 105"
    assert (state(service)["steps"], state(service)["first_step"]) == (6, 100)
    assert run("llm", "--state").out.splitlines()[0] == "profile of steps 100 to 105 of 1 rank of llm"


def test_the_service_chooses_and_says_why(service, run):
    lines = run("llm", "--auto", "--most", "2").out.splitlines()
    assert lines[0] == "asked 2 ranks of llm for a profile of the next 2 steps"
    assert lines[1].startswith("  rank 2: named by a finding: ")
    assert lines[2] == "  rank 0: a healthy peer of rank 2"
    assert [r["rank"] for r in state(service)["ranks"]] == [2, 0]


def test_it_waits_until_every_trace_is_in(service, run):
    ranks = threading.Thread(target=play_ranks, args=(service, [0, 2]))
    ranks.start()
    done = run("llm", "--ranks", "0,2", "--wait", "--for", str(DEADLINE_S))
    ranks.join(DEADLINE_S)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "every trace is in"
    assert done.out.count("trace stored, ") == 2
    assert run("llm", "--state").out.splitlines() == done.out.splitlines()[3:]


def test_traces_that_do_not_come_in_time_are_named_and_end_with_a_code_of_their_own(service, run):
    asked = run("llm", "--ranks", "1", "--wait", "--for", "0")
    assert (asked.code, asked.err) == (EXIT_UNTRACED, "")
    assert "rank 1  asked, has not posted since (asked for)" in asked.out
    assert "no trace yet from rank 1" in asked.out
    service.post("/v1/events", content=events(1, 7), headers=NDJSON).raise_for_status()
    later = run("llm", "--state")
    assert later.code == 0
    assert "rank 1  told, profiles its steps" in later.out


def test_one_request_at_a_time(service, run):
    run("llm", "--ranks", "1")
    refused(run("llm", "--ranks", "2"), 2, "still under way")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("still", "--ranks", "9"), 2, "no events of rank 9"),
        (("still", "--ranks", "0,x"), 2, "neither a rank nor a range"),
        (("still", "--ranks", "5-3"), 2, "neither a rank nor a range"),
        (("still", "--ranks", ""), 2, "neither a rank nor a range"),
        (("still", "--ranks", "0-2000000000"), 2, "at most 1,024 ranks"),
        (("still", "--ranks", "0", "--auto"), 2, "not both"),
        (("still", "--steps", "100-200"), 2, "from 1 to 100"),
        (("still", "--steps", "105-100"), 2, "from 1 to 100"),
        (("still", "--steps", "0-2"), 2, "are over, the job is at step 5"),
        (("still", "--steps", "0"), 2, "from 1 to 100"),
        (("still", "--steps", "many\x1b[2J"), 2, "from 1 to 100"),
        (("still", "--data", "."), 2, "only ranks that run"),
        (("still", "--state"), 4, "no profile of job"),
        (("no\x1b[31mjob",), 4, "job"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_asks_nobody(untouched, run, arguments, code, said):
    done = run(*arguments)
    refused(done, code, said)
    assert "\x1b" not in done.err
    assert untouched.get("/v1/jobs/still/profile").status_code == 404


def test_without_a_service(run):
    refused(run("llm", url="http://127.0.0.1:9"), 3, "no service answers")


def test_ls_shows_the_state_and_the_top_finding_as_the_service_has_them(service, run):
    card = next(c for c in service.get("/v1/jobs").json()["jobs"] if c["job"] == "llm")
    line = next(line for line in run(command="ls").out.splitlines() if line.startswith("llm"))
    assert f" events  {card['state']}  " in line
    assert f"  {card['top_finding']['class']}, rank 2, step" in line


def test_a_request_that_expired_says_who_never_answered():
    ranks = [
        {"rank": 1, "why": "x\x1b[2J", "state": "received", "events": 1},
        {"rank": 3, "why": "y", "state": "expired", "events": None},
    ]
    lines = state_lines("llm", {"id": "a", "steps": 1, "done": True, "ranks": ranks})
    assert lines[0] == "profile of the next step of 2 ranks of llm"
    assert lines[-1].startswith("nothing came in time from rank 3: ")
    assert all(line.isprintable() for line in lines)


def test_ranks_are_numbers_and_ranges_and_few():
    assert ranks_of("8-10, 3,3,0") == [0, 3, 8, 9, 10]
    many = ",".join(str(2 * r) for r in range(2000))
    with pytest.raises(BadParameter):
        ranks_of(many)
