"""Real jobs of four gloo ranks, instrumented, against the real service: what it says of them is what was done to them."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server import Service, derived
from tests.support.torch_job import TorchJob, Trainer

MS = 1_000_000
# Offsets up to a quarter of a second, rates as of bad quartz: each of the four hosts lies in its own way.
WRONG_CLOCKS = ((0, 0), (180 * MS, 40), (-250 * MS, -35), (7 * MS, 80))
STEPS = 24


def answer(client: httpx.Client, job: str, question: str, **params: Any) -> dict[str, Any]:
    reply = client.get(f"/v1/jobs/{job}/{question}", params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


def until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """The first true value of a condition that is asked again and again."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {timeout_s} s: {what}")


@pytest.fixture
def run(trainer: Trainer, service: Service, client: httpx.Client, tmp_path: Path):
    """Runs a job to its end and derives its answers."""
    names = itertools.count()

    def finished(job: str, *argv: str, **options: Any) -> TorchJob:
        folder = tmp_path / str(next(names))
        folder.mkdir()
        with TorchJob(trainer, folder, service.url, job, *argv, **options) as started:
            started.finish()
        derived(client, job)
        return started

    return finished


def every_collective_is_matched(client: httpx.Client, job: str, ranks: int = 4) -> Counter[str]:
    """Operations by name; each is on every member, under one number, and nothing is left over."""
    found = answer(client, job, "collectives", limit=100_000)
    assert not found["truncated"]
    events = answer(client, job, "events", kind="collective", limit=100_000)["events"]
    assert len(events) == sum(len(c["members"]) for c in found["collectives"]) > 0
    assert [c for c in found["collectives"] if len(c["members"]) != ranks or c["missing"]] == []
    assert all(e["end_ns"] is not None and e["seq"] is not None for e in events)
    assert answer(client, job, "mismatches")["mismatches"] == []
    assert client.get(f"/v1/jobs/{job}").json()["unmatched"] == {}
    return Counter(c["op"] for c in found["collectives"])


def test_ddp_buckets_are_matched_on_all_ranks_and_nothing_changes_numerically(run, client: httpx.Client):
    job = run("ddp", "ddp", f"steps={STEPS}")
    operations = every_collective_is_matched(client, "ddp")
    assert operations["all_reduce"] >= 3 * STEPS - 1  # two buckets, one in the first step, and the loss
    without = run("ddp-without", "ddp", f"steps={STEPS}", "instrument=0")
    assert [job.result(rank)["losses"] for rank in range(4)] == [without.result(rank)["losses"] for rank in range(4)]
    summary = client.get("/v1/jobs/ddp").json()
    assert summary["steps"]["complete"] >= STEPS  # the look beyond the last batch begins one more
    phases = Counter(e["name"] for e in answer(client, "ddp", "events", rank=1, step=5)["events"])
    assert phases == {"step": 1, "data": 1, "forward": 1, "backward": 1, "optimizer": 1, "all_reduce": 3}
    (world,) = answer(client, "ddp", "topology")["groups"]
    assert (world["ranks"], world["kind"]) == ([0, 1, 2, 3], "world")


def test_fsdp_is_matched_on_all_ranks_with_its_mesh(run, client: httpx.Client):
    run("fsdp", "fsdp", f"steps={STEPS}", "numbered=1")
    operations = every_collective_is_matched(client, "fsdp")
    assert operations["all_gather"] >= 3 * STEPS
    assert operations["reduce_scatter"] == 3 * STEPS
    assert [r["coords"] for r in answer(client, "fsdp", "topology")["ranks"]] == [{"dp": n} for n in range(4)]
    assert client.get("/v1/jobs/fsdp").json()["steps"] == {"count": STEPS, "complete": STEPS, "first": 0, "last": STEPS - 1}


def test_every_message_of_a_pipeline_finds_its_other_end(run, client: httpx.Client):
    run("pipeline", "pipeline", "steps=12")
    every_collective_is_matched(client, "pipeline")
    ends = {
        kind: sorted(
            (e["rank"], e["peer"], e["seq"], e["bytes"]) if kind == "send" else (e["peer"], e["rank"], e["seq"], e["bytes"])
            for e in answer(client, "pipeline", "events", kind=kind, limit=100_000)["events"]
        )
        for kind in ("send", "recv")
    }
    assert ends["send"] == ends["recv"]
    assert len(ends["send"]) >= 12 * 4 * 3 * 2  # microbatches over three borders, there and back
    assert [r["coords"]["pp"] for r in answer(client, "pipeline", "topology")["ranks"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("clocks", [None, WRONG_CLOCKS], ids=["one-clock", "wrong-clocks"])
def test_a_rank_that_sleeps_in_forward_is_named_with_phase_and_steps(run, client: httpx.Client, clocks):
    name = f"slow-{'right' if clocks is None else 'wrong'}"
    run(name, "ddp", "steps=60", "slow=2:20:39:30", clocks=clocks)
    every_collective_is_matched(client, name)
    found = answer(client, name, "stragglers")["stragglers"]
    assert [(s["rank"], s["cause"]["name"]) for s in found[:1]] == [(2, "forward")], found
    inside = [step for step in found[0]["steps"] if 20 <= step <= 39]
    assert len(inside) >= 15, found[0]
    assert len(inside) >= 0.8 * len(found[0]["steps"]), found[0]
    if clocks is not None:
        domains = {tuple(d["ranks"]): d for d in answer(client, name, "clocks")["domains"]}
        offsets = [domains[rank,]["offset_ns"] for rank in range(4)]
        for rank, (offset_ns, _) in enumerate(clocks):
            told = offsets[0] - offsets[rank]  # a clock that is ahead has a negative offset
            assert abs(told - offset_ns) < 5 * MS, (rank, offsets)


def test_a_stuck_rank_gives_the_hang_verdict_and_sigterm_the_last_words(
    trainer: Trainer, service: Service, client: httpx.Client, tmp_path: Path
):
    with TorchJob(trainer, tmp_path, service.url, "stuck", "ddp", "steps=60", "stuck=1:20") as job:
        until(lambda: client.get("/v1/jobs/stuck").status_code == 200, 60, "events of the job")
        until(lambda: (client.get("/v1/jobs/stuck").json()["steps"]["last"] or 0) >= 19, 60, "step 19")
        hang = until(lambda: (found := answer(client, "stuck", "hangs"))["hung"] and found, 10, "the hang verdict")
        assert [(c["rank"], c["reason"], c["op"]) for c in hang["culprits"]] == [(1, "not_entered", "all_reduce")], hang
        assert {w["rank"] for w in hang["waiting"]} == {0, 2, 3}
        for rank in range(4):
            job.signal(rank, signal.SIGTERM)
        until(lambda: all(job.exit_code(rank) is not None for rank in range(4)), 20, "the end of all ranks")
        assert [job.exit_code(rank) for rank in range(4)] == [-signal.SIGTERM] * 4
    derived(client, "stuck")
    words = {e["rank"]: e for e in answer(client, "stuck", "events", kind="mark", limit=1000)["events"] if e["name"] == "sigterm"}
    assert sorted(words) == [0, 1, 2, 3]
    assert "before_forward" in words[1]["attrs"]["stacks"]
    assert "backward" in words[0]["attrs"]["stacks"]
    recorded = {
        e["rank"] for e in answer(client, "stuck", "events", kind="mark", limit=10_000)["events"] if e["name"] == "pg_status"
    }
    assert recorded == {0, 1, 2, 3}
    last = answer(client, "stuck", "hangs")
    assert [c["rank"] for c in last["culprits"]] == [1], last


def test_a_skipped_collective_is_named(trainer: Trainer, service: Service, client: httpx.Client, tmp_path: Path):
    with TorchJob(trainer, tmp_path, service.url, "skip", "ddp", "steps=40", "skip=3:20") as job:
        until(lambda: client.get("/v1/jobs/skip").status_code == 200, 60, "events of the job")

        def named() -> Any:
            derived(client, "skip")
            return answer(client, "skip", "mismatches")["mismatches"]

        found = until(named, 40, "the mismatch")
        for rank in range(4):
            job.signal(rank, signal.SIGKILL)
    assert [(m["class"], m["odd_ranks"]) for m in found[:1]] == [("skipped", [3])], found


def test_a_profile_is_taken_of_a_running_rank_and_joins_its_spans(
    trainer: Trainer, service: Service, client: httpx.Client, tmp_path: Path
):
    with TorchJob(trainer, tmp_path, service.url, "profiled", "ddp", "steps=250") as job:
        until(lambda: client.get("/v1/jobs/profiled").status_code == 200, 60, "events of the job")
        until(lambda: len(client.get("/v1/jobs/profiled").json()["ranks"]["seen"]) == 4, 60, "all ranks")
        asked = client.post("/v1/jobs/profiled/profile", json={"ranks": [2], "steps": 2})
        assert asked.status_code == 200, asked.text
        done = until(lambda: (state := answer(client, "profiled", "profile"))["done"] and state, 60, "the trace")
        job.finish()
    assert [(r["rank"], r["state"]) for r in done["ranks"]] == [(2, "received")]
    derived(client, "profiled")
    operators = [e for e in answer(client, "profiled", "events", rank=2, limit=100_000)["events"] if e["name"].startswith("aten::")]
    assert {e["rank"] for e in operators} == {2}
    steps = answer(client, "profiled", "steps", limit=1000)["steps"]
    inside = [s for s in steps if any(s["start_ns"] <= e["aligned_start_ns"] < s["end_ns"] for e in operators)]
    assert 1 <= len(inside) <= 4, [s["step"] for s in inside]  # on the same clock as the steps it was asked for
    assert answer(client, "profiled", "mismatches")["mismatches"] == []


def test_the_ring_alone_names_every_collective(run, client: httpx.Client):
    run("ring", "ddp", f"steps={STEPS}", "communication=ring")
    events = answer(client, "ring", "events", kind="collective", limit=100_000)["events"]
    assert {e["is_async"] for e in events} == {True}  # gloo does not say when they ended
    calls = {rank: Counter((e["op"], e["seq"]) for e in events if e["rank"] == rank) for rank in range(4)}
    assert calls[0] == calls[1] == calls[2] == calls[3]
    assert set(calls[0].values()) == {1}
    assert sum(calls[0].values()) >= 3 * (STEPS - 1)


def test_the_ring_is_read_once_and_what_ran_over_is_counted(run):
    run("looks", "ring", ranks=1)


def test_the_training_does_not_notice_that_nobody_is_there(trainer: Trainer, service: Service, tmp_path: Path):
    losses = []
    for url, option in ((service.url, "offline=0"), ("http://127.0.0.1:9", "offline=1")):
        folder = tmp_path / option
        folder.mkdir()
        with TorchJob(trainer, folder, url, "offline", "ddp", "steps=12", option) as job:
            job.finish()
        losses.append(job.result(0)["losses"])
    assert losses[0] == losses[1]


def test_uninstrument_leaves_everything_as_it_was(run):
    run("restore", "restore", ranks=1)


@pytest.mark.parametrize("mode", ["huggingface", "lightning"])
def test_trainers_are_instrumented_by_a_callback(run, client: httpx.Client, mode: str):
    run(mode, mode, "steps=6", ranks=1)
    events = answer(client, mode, "events", limit=10_000)["events"]
    by_step = {step: Counter(e["name"] for e in events if e.get("step") == step) for step in range(6)}
    passes = 2 if mode == "huggingface" else 1  # gradient accumulation
    assert [(c["step"], c["forward"], c["backward"], c["optimizer"]) for c in by_step.values()] == [(1, passes, passes, 1)] * 6
