"""What the client records, how its lanes, steps and clocks behave, and what happens at forks and at the end of a process."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

import crossrank_client as cr
from crossrank_client import clock as clock_module
from crossrank_client.clock import Clock, machine_clock
from crossrank_client.otel import CrossrankSpanProcessor
from crossrank_client.place import place_of
from tests.support.stub_service import Reply, Request, Stub, stub_service


def taking(request: Request) -> Reply:
    now = time.time_ns()
    return Reply({"accepted": request.body.count(b"\n"), "duplicate": 0, "rejected": 0, "received_ns": now, "sent_ns": now})


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_service(taking) as running:
        yield running


@pytest.fixture
def client(stub: Stub, tmp_path: Path) -> Iterator[cr.Client]:
    made = cr.init(stub.url, "job/ü", rank=3, world_size=8, host="node0", spool_dir=tmp_path)
    assert made is not None
    yield made
    cr.shutdown()


def events(stub: Stub, *, also: bool = False) -> list[dict]:
    """Events the stub has, without what the client says about itself."""
    lines = [json.loads(line) for r in stub.posted() if r.path == "/v1/events" for line in r.body.splitlines()]
    return [e for e in lines if also or e["lane"] != "crossrank"]


def named(stub: Stub) -> dict[str, dict]:
    return {e["name"]: e for e in events(stub)}


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_spans_have_parents_steps_lanes_and_columns(stub: Stub, client: cr.Client):
    wire = {"group": "dp", "seq": 4, "bytes": 100, "dtype": "bf16", "group_ranks": [1, 3]}
    with cr.step(7) as step, cr.span("forward", layer=2), cr.span("all_reduce", "collective", **wire) as inner:
        inner.set(extra="x")
    cr.metric("loss", 2.5, part="a")
    cr.mark("saved")
    cr.record("send", "send", 1_000, 2_000, lane="cuda:0", peer=5, step=9)
    assert cr.flush()
    found = named(stub)
    assert step.end_ns is not None
    step_event, forward, reduced = found["step"], found["forward"], found["all_reduce"]
    assert (step_event["kind"], step_event["step"], step_event["rank"], step_event["host"]) == ("step", 7, 3, "node0")
    assert (step_event["job"], step_event["clock"], step_event["lane"]) == ("job/ü", "node0", "cpu:main")
    assert (forward["parent_span_id"], forward["attrs"], forward["step"]) == (step_event["span_id"], {"layer": 2}, 7)
    assert "kind" not in forward
    assert {k: reduced[k] for k in wire} == wire
    assert (reduced["attrs"], reduced["parent_span_id"]) == ({"extra": "x"}, forward["span_id"])
    assert step_event["start_ns"] <= forward["start_ns"] <= reduced["start_ns"] <= reduced["end_ns"] <= forward["end_ns"]
    assert (found["loss"]["value"], found["loss"]["attrs"], found["loss"]["kind"]) == (2.5, {"part": "a"}, "metric")
    assert found["saved"]["start_ns"] == found["saved"]["end_ns"]
    offset = client.machine_clock.offset_ns
    assert (found["send"]["start_ns"] - offset, found["send"]["end_ns"] - offset) == (1_000, 2_000)
    assert (found["send"]["lane"], found["send"]["peer"], found["send"]["step"]) == ("cuda:0", 5, 9)
    assert abs(found["saved"]["start_ns"] - time.time_ns()) < 60e9


def test_a_step_that_is_only_marked_lasts_until_the_next(stub: Stub, client: cr.Client):
    for _ in range(3):
        cr.step()
        with cr.span("forward"):
            pass
    cr.shutdown()
    steps = sorted((e for e in events(stub) if e["name"] == "step"), key=lambda e: e["step"])
    assert [e["step"] for e in steps] == [0, 1, 2]
    assert all(a["end_ns"] <= b["start_ns"] for a, b in itertools.pairwise(steps))
    spans = [e for e in events(stub) if e["name"] == "forward"]
    assert {e["step"]: e["parent_span_id"] for e in spans} == {e["step"]: e["span_id"] for e in steps}


def test_decorators_work_before_init_and_for_methods(stub: Stub, tmp_path: Path):
    @cr.span("forward", part=1)
    def forward(value: int) -> int:
        """Doubles."""
        return 2 * value

    assert (forward(2), forward.__name__, forward.__doc__) == (4, "forward", "Doubles.")
    cr.init(stub.url, "job", rank=0, spool_dir=tmp_path)
    assert [forward(1), forward(3)] == [2, 6]
    cr.shutdown()
    assert forward(5) == 10
    assert [e["attrs"] for e in events(stub)] == [{"part": 1}] * 2


def test_a_fault_of_the_training_passes_through_and_is_noted(stub: Stub, client: cr.Client):
    with pytest.raises(ZeroDivisionError), cr.span("forward"):
        _ = 1 / 0
    with cr.span("next"):
        pass
    cr.flush()
    assert named(stub)["forward"]["attrs"] == {"error": "ZeroDivisionError"}
    assert "parent_span_id" not in named(stub)["next"]


def test_spans_that_are_not_closed_in_order_do_not_become_parents_for_ever(stub: Stub, client: cr.Client):
    outer = cr.span("outer")
    with outer:
        cr.step(0)
    with cr.span("inside"):
        pass
    cr.step(1)
    with cr.span("later"):
        pass
    cr.shutdown()
    found = {(e["name"], e.get("step")): e for e in events(stub)}
    assert "parent_span_id" not in found["inside", 0], "closing the outer span closes what was left open in it"
    assert "parent_span_id" not in found["step", 1]
    assert found["later", 1]["parent_span_id"] == found["step", 1]["span_id"]


def test_a_span_too_large_for_the_service_costs_only_itself(stub: Stub, client: cr.Client):
    cr.mark("huge", text="x" * 1_000_000)
    cr.mark("good")
    assert cr.flush()
    assert set(named(stub)) == {"good"}
    assert cr.stats()["dropped"] == {"too_large": 1}


def test_every_thread_has_its_lane_and_its_parents(stub: Stub, client: cr.Client):
    def work() -> None:
        with cr.span("load"), cr.span("decode"):
            pass

    with cr.span("outer"):
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
    cr.flush()
    found = named(stub)
    assert (found["load"]["lane"], found["outer"]["lane"]) == ("cpu:loader", "cpu:main")
    assert "parent_span_id" not in found["load"]
    assert found["decode"]["parent_span_id"] == found["load"]["span_id"]


def test_work_that_completes_elsewhere(stub: Stub, client: cr.Client):
    with cr.step(1):
        pending = cr.begin("all_reduce", "collective", lane="cuda:0", group="dp", seq=1, is_async=False)
    thread = threading.Thread(target=pending.end)
    thread.start()
    thread.join()
    pending.end()
    cr.flush()
    (found,) = (e for e in events(stub) if e["name"] == "all_reduce")
    assert (found["lane"], found["step"], found["seq"]) == ("cuda:0", 1, 1)


def test_what_json_does_not_know_costs_no_span(stub: Stub, client: cr.Client):
    class Rude:
        def __repr__(self) -> str:
            raise ValueError

    with cr.span("odd", tensor={1, 2}, number=float("nan"), text="\ud800"):
        pass
    with cr.span("rude", thing=Rude()):
        pass
    cr.metric("inf", float("inf"))
    with cr.span("good"):
        pass
    assert cr.flush()
    assert {"odd", "good", "inf"} <= set(named(stub))
    assert cr.stats()["dropped"] == {"unencodable": 1}
    cr.flush()
    told = [e for e in events(stub, also=True) if e["name"] == "client.dropped"]
    assert [(e["value"], e["attrs"]["reason"]) for e in told] == [(1, "unencodable")]


def test_a_full_ring_drops_the_oldest_and_says_so(stub: Stub, tmp_path: Path):
    client = cr.init(stub.url, "job", rank=0, spool_dir=tmp_path, ring_spans=100)
    assert client is not None
    client.flush()
    # One burst without giving the thread a chance: appends only.
    old, interval = sys.getswitchinterval(), 5.0
    sys.setswitchinterval(interval)
    try:
        for n in range(1000):
            cr.mark("m", n=n)
    finally:
        sys.setswitchinterval(old)
    cr.flush()
    cr.flush()
    kept = [e["attrs"]["n"] for e in events(stub)]
    dropped = cr.stats()["dropped"].get("ring_full", 0)
    assert len(kept) + dropped == 1000
    assert kept == sorted(kept)
    assert kept[-1] == 999
    cr.shutdown()
    told = [e["value"] for e in events(stub, also=True) if e["name"] == "client.dropped"]
    assert max(told, default=0) == dropped


def test_each_post_is_a_clock_sample(stub: Stub, client: cr.Client):
    for _ in range(3):
        cr.mark("x")
        cr.flush()
    cr.shutdown()
    samples = [e for e in events(stub, also=True) if e["name"] == "clock.sample"]
    assert samples
    for sample in samples:
        attrs = sample["attrs"]
        assert set(attrs) == {"sent_ns", "received_ns", "replied_ns", "got_ns"}
        assert attrs["sent_ns"] < attrs["got_ns"] == sample["start_ns"]
        assert "step" not in sample


def test_topology_is_posted_by_one_member(stub: Stub, client: cr.Client):
    cr.group("dp0", [3, 7])
    cr.group("tp0", [1, 3])
    cr.coordinates(dp=1, tp=0)
    assert cr.flush()
    posted = [json.loads(r.body) for r in stub.posted() if r.path == "/v1/jobs/job%2F%C3%BC/topology"]
    assert posted == [
        {"groups": [{"name": "dp0", "ranks": [3, 7]}]},
        {"ranks": [{"rank": 3, "host": "node0", "clock": "node0", "coords": {"dp": 1, "tp": 0}}]},
    ]


def test_a_thread_that_stands_still_shows_its_open_spans_and_stack(stub: Stub, tmp_path: Path):
    cr.init(stub.url, "job", rank=0, spool_dir=tmp_path, standstill_s=0.3)
    release = threading.Event()

    def stuck_here() -> None:
        with cr.step(4), cr.span("all_reduce", "collective", group="dp", seq=9):
            release.wait(30)

    thread = threading.Thread(target=stuck_here)
    thread.start()
    eventually(lambda: any("end_ns" not in e for e in events(stub)))
    release.set()
    thread.join()
    cr.shutdown()
    opened = {e["name"]: e for e in events(stub) if "end_ns" not in e}
    closed = {e["name"]: e for e in events(stub) if "end_ns" in e}
    assert set(opened) == set(closed) == {"step", "all_reduce"}
    assert "stuck_here" in opened["all_reduce"]["attrs"]["python_stack"]
    for name in opened:
        assert (opened[name]["span_id"], opened[name]["start_ns"]) == (closed[name]["span_id"], closed[name]["start_ns"])


def test_answers_reach_hooks_and_their_faults_do_not_matter(stub: Stub, client: cr.Client):
    seen: list[dict] = []
    client.on_answer += [lambda answer: 1 / 0, seen.append]
    client.on_shutdown.append(lambda: cr.mark("late"))
    cr.mark("x")
    assert cr.flush()
    assert seen[0]["accepted"] >= 1
    client.shutdown()


def test_hooks_before_a_batch_add_to_it_and_are_told_when_it_is_urgent(stub: Stub, client: cr.Client):
    asked: list[bool] = []

    def hook(urgent: bool) -> None:
        asked.append(urgent)
        if urgent:
            cr.mark("read")

    client.before_batch += [lambda urgent: 1 / 0, hook]
    client.recorder_overrun += 7
    cr.mark("x")
    assert cr.flush()
    assert asked[-1] is True
    assert "read" in {e["name"] for e in events(stub)}
    assert client.stats()["dropped"] == {"recorder_overrun": 7}
    assert client.stats()["faults"] == len(asked)


def test_a_standstill_is_urgent_for_hooks(stub: Stub, tmp_path: Path):
    client = cr.init(stub.url, "job", rank=0, host="node0", spool_dir=tmp_path, standstill_s=0.05)
    assert client is not None
    told = threading.Event()
    client.before_batch.append(lambda urgent: told.set() if urgent else None)
    with cr.span("stuck"):
        assert told.wait(30)
    cr.shutdown()


def test_a_step_of_the_wall_clock_bends_nothing(stub: Stub, client: cr.Client, monkeypatch: pytest.MonkeyPatch):
    real = time.time_ns
    with cr.span("before"):
        pass
    with cr.span("across"):
        monkeypatch.setattr(clock_module.time, "time_ns", lambda: real() - 5_000_000_000)
    with cr.span("after"):
        pass
    assert cr.flush()
    cr.flush()
    found = {e["name"]: e for e in events(stub, also=True)}
    order = [found[name][at] for name in ("before", "across", "after") for at in ("start_ns", "end_ns")]
    assert order == sorted(order)
    assert order[-1] - order[0] < 4e9
    step = found["clock.step"]
    assert step["kind"] == "mark"
    assert abs(step["attrs"]["size_ns"] + 5_000_000_000) < 100e6


def test_processes_of_a_machine_share_one_clock_also_across_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock_module.tempfile, "gettempdir", lambda: str(tmp_path))
    first = machine_clock("job", 0)
    real = time.time_ns
    monkeypatch.setattr(clock_module.time, "time_ns", lambda: real() + 3_000_000_000)
    second = machine_clock("job", 0)
    restarted = machine_clock("job", 1)
    assert (first.shared, second.shared) == (True, True)
    assert second.offset_ns == first.offset_ns
    assert abs(restarted.offset_ns - first.offset_ns - 3_000_000_000) < 100e6
    (tmp_path / "no").touch()
    monkeypatch.setattr(clock_module.tempfile, "gettempdir", lambda: str(tmp_path / "no"))
    assert isinstance(alone := machine_clock("job", 0), Clock)
    assert not alone.shared


LAUNCHED = [
    ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"}, (5, 8, 1, 2, "torchrun")),
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_RESTART_COUNT": "1"}, (3, 4, 0, 1, "slurm")),
    ({"RANK": "9", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (9, 16, None, 0, "torchrun")),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}, (2, 4, 2, 0, "openmpi")),
    ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, (1, 2, 1, 0, "pmi")),
    ({"PMIX_RANK": "1", "SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, (1, 2, None, 0, "pmix")),
    ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, (1, 2, None, 0, "mvapich")),
    ({"RANK": "-1", "WORLD_SIZE": "x"}, (None, None, None, 0, None)),
    ({"RANK": "", "SLURM_PROCID": "0"}, (0, None, None, 0, "slurm")),
    ({}, (None, None, None, 0, None)),
]


@pytest.mark.parametrize(("env", "place"), LAUNCHED)
def test_the_place_of_a_rank_comes_from_its_launcher(env: dict[str, str], place: tuple):
    found = place_of(env)
    assert (found.rank, found.world_size, found.local_rank, found.attempt, found.launcher) == place


def test_spans_of_opentelemetry_lie_on_the_same_clock(stub: Stub, client: cr.Client):
    provider = TracerProvider()
    provider.add_span_processor(CrossrankSpanProcessor())
    tracer = provider.get_tracer("test")
    with (
        tracer.start_as_current_span("outer", attributes={"crossrank.step": 3}),
        tracer.start_as_current_span("all_reduce") as inner,
    ):
        inner.set_attributes({"crossrank.kind": "collective", "crossrank.group": "dp", "seq": 4, "mine": True, "list": [1, 2]})
    assert provider.force_flush()
    found = named(stub)
    assert (found["outer"]["step"], found["outer"]["lane"]) == (3, "cpu:main")
    reduced = found["all_reduce"]
    assert (reduced["kind"], reduced["group"], reduced["seq"]) == ("collective", "dp", 4)
    assert reduced["attrs"] == {"mine": True, "list": [1, 2]}
    assert reduced["parent_span_id"] == found["outer"]["span_id"]
    assert reduced["span_id"] == f"{inner.get_span_context().span_id:016x}"
    assert found["outer"]["start_ns"] <= reduced["start_ns"] <= reduced["end_ns"] <= found["outer"]["end_ns"]


# --- processes ---

FORKING = """
import os, sys, multiprocessing, crossrank_client as cr
cr.init(sys.argv[1], "job", rank=0, spool_dir=sys.argv[2])

def child(n):
    with cr.span(f"child{n}"):
        pass

with cr.span("parent"):
    pid = os.fork()
    if pid == 0:
        child(0)
        cr.shutdown()
        os._exit(0)
    os.waitpid(pid, 0)
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=child, args=(1,))
        if method == "fork":
            process.start()
            process.join()
            assert process.exitcode == 0
"""


def run(script: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done


def test_children_of_a_fork_have_ids_lanes_and_a_thread_of_their_own(stub: Stub, tmp_path: Path):
    run(FORKING, stub.url, str(tmp_path))
    found = named(stub)
    assert set(found) == {"parent", "child0", "child1"}
    assert len({e["span_id"] for e in events(stub, also=True)}) == len(events(stub, also=True))
    assert found["parent"]["lane"] == "cpu:main"
    assert found["child0"]["lane"].startswith("pid:")
    assert "parent_span_id" not in found["child0"]


def test_the_end_of_a_process_posts_what_is_left(stub: Stub, tmp_path: Path):
    script = (
        "import sys, crossrank_client as cr\n"
        "cr.init(sys.argv[1], 'job', rank=0, spool_dir=sys.argv[2])\n"
        "for n in range(5000):\n    with cr.span('s', n=n):\n        pass\n"
    )
    run(script, stub.url, str(tmp_path))
    assert [e["attrs"]["n"] for e in events(stub)] == list(range(5000))


def test_a_service_that_hangs_holds_the_end_of_a_process_for_two_seconds_at_most(tmp_path: Path):
    release = threading.Event()

    def hanging(_: Request) -> Reply:
        release.wait(30)
        return Reply({})

    script = (
        "import sys, time, threading, crossrank_client as cr\n"
        "cr.init(sys.argv[1], 'job', rank=0, spool_dir=sys.argv[2])\n"
        "cr.mark('x'); cr.flush(0.2)\n"
        "began = time.monotonic(); cr.shutdown(); print(time.monotonic() - began, threading.active_count())\n"
    )
    with stub_service(hanging) as stub:
        seconds, threads = run(script, stub.url, str(tmp_path)).stdout.split()
        release.set()
    print(f"shutdown took {seconds} s")
    assert float(seconds) <= 2.2
    assert threads == "1"
    assert len(list(tmp_path.rglob("*-*.*"))) == 1


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://host:port", "://"])
def test_an_address_that_cannot_be_one_costs_a_warning(url: str, caplog: pytest.LogCaptureFixture):
    assert cr.init(url, "job", rank=0) is None
    assert caplog.records
    with cr.step(1), cr.span("x"):
        cr.metric("a", 1)
    assert cr.flush()
    cr.begin("y").end()
    assert cr.stats() == {}
    cr.shutdown()


def test_importing_it_imports_nothing_outside_the_standard_library():
    script = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]); import crossrank_client\n"
        "found = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(found - sys.stdlib_module_names - {'crossrank_client'}))\n"
    )
    folder = str(Path(cr.__file__).parents[1])
    done = subprocess.run([sys.executable, "-S", "-c", script, folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


OLDER_AND_NEWER = """
import sys, time, crossrank_client as cr, crossrank_client.agent.main
cr.init(sys.argv[1], "job", rank=0, spool_dir=sys.argv[2])
with cr.step(1), cr.span("forward", x={1}):
    pass
assert cr.flush(20), cr.stats()
assert cr.stats()["faults"] == 0
"""


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_it_runs_on_every_python_here_with_nothing_installed(stub: Stub, tmp_path: Path, version: str):
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no Python {version} here")
    env = {**os.environ, "PYTHONPATH": str(Path(cr.__file__).parents[1])}
    command = [python, "-S", "-c", OLDER_AND_NEWER, stub.url, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {e["name"] for e in events(stub)} == {"step", "forward"}
    assert {r.headers["content-encoding"] for r in stub.posted() if r.path == "/v1/events"} == {"gzip"}
