"""What a job, a network or a service can do wrong: nothing of it raises into the training, grows without bound or leaves a thread."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import crossrank_client as cr
from crossrank_client import clock as clock_module
from crossrank_client import otel as otel_module
from crossrank_client import watch as watch_module
from crossrank_client.clock import machine_clock
from crossrank_client.otel import CrossrankSpanProcessor
from tests.support.stub_service import Reply, Request, Stub, stub_service

client_module = sys.modules["crossrank_client.client"]


def taking(request: Request) -> Reply:
    return Reply({"accepted": request.body.count(b"\n"), "duplicate": 0, "rejected": 0})


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_service(taking) as running:
        yield running


@pytest.fixture
def client(stub: Stub, tmp_path: Path) -> Iterator[cr.Client]:
    made = cr.init(stub.url, "job", rank=0, host="node0", spool_dir=tmp_path)
    assert made is not None
    yield made
    cr.shutdown()


def events(stub: Stub) -> list[dict]:
    """Events the stub has, without what the client says about itself."""
    lines = [json.loads(line) for r in stub.posted() if r.path == "/v1/events" for line in r.body.splitlines()]
    return [e for e in lines if e["lane"] != "crossrank"]


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- what a job may call ---


def test_scalars_of_numpy_are_numbers(stub: Stub, client: cr.Client):
    cr.metric("loss", np.float32(0.5), size=np.int64(7), odd=np.array([1, 2]), nan=np.float32("nan"))
    with cr.span("all_reduce", "collective", group="dp", seq=np.int64(3), bytes=np.array(8)):
        pass
    assert cr.flush()
    found = {e["name"]: e for e in events(stub)}
    assert found["loss"]["value"] == 0.5
    assert found["loss"]["attrs"] == {"size": 7, "odd": "array([1, 2])", "nan": "nan"}
    assert (found["all_reduce"]["seq"], found["all_reduce"]["bytes"]) == (3, 8)


def test_one_object_entered_again_and_inside_itself_is_a_span_each_time(stub: Stub, client: cr.Client):
    forward = cr.span("forward", part=1)
    for _ in range(2):
        with forward, forward:
            pass
    assert cr.flush()
    found = events(stub)
    assert Counter(e["name"] for e in found) == {"forward": 4}
    assert len({e["span_id"] for e in found}) == 4
    assert all(e["attrs"] == {"part": 1} for e in found)
    children = [e for e in found if "parent_span_id" in e]
    assert len(children) == 2
    assert {e["parent_span_id"] for e in children} < {e["span_id"] for e in found}


def test_calls_that_mean_nothing_are_counted_and_hold_up_nothing(stub: Stub, client: cr.Client):
    with cr.span(["no", "name"], {"no": "kind"}):  # type: ignore[arg-type]
        pass
    cr.begin(["no", "name"]).end()  # type: ignore[arg-type]
    cr.step("first")  # type: ignore[arg-type]
    cr.step()
    cr.group("dp", ["a"])  # type: ignore[list-item]
    cr.record("x", None, "now", None)  # type: ignore[arg-type]
    cr.coordinates(dp=object())  # type: ignore[arg-type]
    cr.mark("after", lane=5)  # type: ignore[arg-type]
    assert cr.flush()
    assert "after" in {e["name"] for e in events(stub)}
    stats = cr.stats()
    assert (stats["misuses"], stats["faults"], stats["dropped"]) == (3, 0, {"unencodable": 1})


def test_spans_that_never_end_do_not_fill_the_memory(stub: Stub, client: cr.Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "BEGUN_KEPT", 10)
    monkeypatch.setattr(watch_module, "DEEPEST", 10)
    begun = [cr.begin("work", n=n) for n in range(25)]
    for span in begun:
        span.end()
    for _ in range(50):
        cr.span("left open").__enter__()
    assert cr.flush()
    assert [e["attrs"]["n"] for e in events(stub) if e["name"] == "work"] == list(range(15, 25))
    assert cr.stats()["dropped"] == {"never_ended": 15}
    depth, span = 0, client.threads.lane.top
    while span is not None:
        depth, span = depth + 1, span.parent
    assert depth == 11


def test_of_two_threads_that_end_one_span_one_does(stub: Stub, client: cr.Client):
    for n in range(200):
        span = cr.begin("work", n=n)
        both = threading.Barrier(2)

        def end(span=span, both=both) -> None:
            both.wait()
            span.end()

        threads = [threading.Thread(target=end) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cr.flush()
    assert [e["attrs"]["n"] for e in events(stub)] == list(range(200))


def test_a_finalizer_may_record_while_its_thread_makes_a_lane(client: cr.Client):
    done: list[bool] = []

    def interrupted() -> None:
        with client._lock, cr.span("in a finalizer"):
            done.append(True)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(10)
    assert done == [True]


def test_hooks_at_the_end_may_take_themselves_out(client: cr.Client):
    ran: list[str] = []

    def first() -> None:
        client.on_shutdown.remove(first)
        ran.append("first")

    client.on_shutdown += [first, lambda: ran.append("second")]
    cr.shutdown()
    assert ran == ["first", "second"]


def test_a_hook_of_the_thread_cannot_wait_for_the_thread(stub: Stub, client: cr.Client):
    found: list[bool] = []
    client.on_answer.append(lambda _: found.append(client.flush(60)))
    client.on_answer.append(lambda _: client.shutdown())
    cr.mark("x")
    client._worker._wake.set()
    eventually(lambda: not client._worker.thread.is_alive())
    assert found == [False]


def test_the_span_processor_raises_nothing_keeps_links_and_is_bounded(
    stub: Stub, client: cr.Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(otel_module, "OPEN_SPANS", 10)
    processor = CrossrankSpanProcessor()
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("test")
    started = [tracer.start_span(f"open{n}") for n in range(50)]
    assert len(processor._started) == 10
    tracer.start_span("linked", links=[trace.Link(started[0].get_span_context())]).end()
    monkeypatch.setattr(client, "finished", None)
    started[-1].end()
    monkeypatch.undo()
    assert cr.flush()
    (linked,) = events(stub)
    assert linked["links"] == [f"{started[0].get_span_context().span_id:016x}"]


# --- processes, clocks ---


def test_threads_that_start_clients_at_once_share_one_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock_module.tempfile, "gettempdir", lambda: str(tmp_path))
    ready, clocks = threading.Barrier(32), []

    def start() -> None:
        ready.wait()
        clocks.append(machine_clock("job", 0))

    threads = [threading.Thread(target=start) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [c.shared for c in clocks] == [True] * 32
    assert len({c.offset_ns for c in clocks}) == 1
    assert len(list(tmp_path.iterdir())) == 1


FORKED = """
import os, sys, crossrank_client as cr
client = cr.init(sys.argv[1], "job", rank=0, spool_dir=sys.argv[2])
client.on_answer.append(lambda answer: cr.mark("read", pid=os.getpid()))
pid = os.fork()
if pid == 0:
    for _ in range(3):
        with cr.span("child"):
            pass
        assert cr.flush()
    cr.shutdown()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(pid)
"""


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_hooks_on_answers_stay_with_the_parent_of_a_fork(stub: Stub, tmp_path: Path):
    child = int(run(FORKED, stub.url, str(tmp_path)))
    found = Counter((e["name"], e.get("attrs", {}).get("pid") == child) for e in events(stub))
    assert found["child", False] == 3
    assert found["read", True] == 0


# --- networks and services ---

ENDING = """
import sys, time, threading, crossrank_client as cr
ending = sys.modules["crossrank_client.client"]._shut_all_down
clients = [cr.Client(sys.argv[1], "job", rank=n, host="h", spool_dir=sys.argv[2]) for n in range(int(sys.argv[3]))]
for client in clients:
    client.mark("x")
    client.flush(0.3)
began = time.monotonic(); ending(); print(time.monotonic() - began, threading.active_count())
"""


def test_a_network_that_swallows_everything_holds_the_end_for_two_seconds_at_most(tmp_path: Path):
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):  # then the kernel answers no further connection
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        seconds, threads = run(ENDING, f"http://127.0.0.1:{full.getsockname()[1]}", str(tmp_path), "1").split()
    print(f"shutdown took {seconds} s")
    assert float(seconds) <= 2.2
    assert threads == "1"
    assert len(list(tmp_path.rglob("*-*.*"))) == 1


def test_many_clients_together_end_in_two_seconds(tmp_path: Path):
    release = threading.Event()

    def hanging(_: Request) -> Reply:
        release.wait(30)
        return Reply({})

    with stub_service(hanging) as stub:
        seconds, threads = run(ENDING, stub.url, str(tmp_path), "6").split()
        release.set()
    print(f"shutdown took {seconds} s")
    assert float(seconds) <= 2.5
    assert threads == "1"
    assert len(list(tmp_path.rglob("*-*.*"))) == 6


def test_while_a_service_hesitates_the_ring_is_emptied_all_the_same(tmp_path: Path):
    release = threading.Event()

    def hesitating(request: Request) -> Reply:
        release.wait(60)
        return taking(request)

    with stub_service(hesitating) as stub:
        client = cr.init(stub.url, "job", rank=0, spool_dir=tmp_path, ring_spans=6000)
        assert client is not None
        client.mark("m", n=-1)
        assert not client.flush(0.1)
        for burst in range(4):
            for n in range(5000):
                client.mark("m", n=5000 * burst + n)
            eventually(lambda: not client.ring)
        release.set()
        assert client.flush(30)
        assert [e["attrs"]["n"] for e in events(stub)] == list(range(-1, 20_000))
        assert client.stats()["dropped"] == {}
        cr.shutdown()


def test_what_is_too_large_together_goes_one_by_one(tmp_path: Path):
    away = threading.Event()
    taken: list[bytes] = []

    def small(request: Request) -> Reply:
        if not away.is_set():
            return Reply({}, 503, {"retry-after": "0"})
        if request.body.count(b'"batch"') > 1:
            return Reply({}, 413)
        taken.append(request.body)
        return taking(request)

    with stub_service(small) as stub:
        client = cr.init(stub.url, "job", rank=0, spool_dir=tmp_path)
        assert client is not None
        for n in range(5):
            client.mark("batch", n=n)
            assert not client.flush(0.05)
        away.set()
        assert client.flush(30)
        assert client.stats()["dropped"] == {}
        cr.shutdown()
    found = [json.loads(line) for body in taken for line in body.splitlines()]
    assert [e["attrs"]["n"] for e in found if e["name"] == "batch"] == list(range(5))


def test_a_full_memory_drops_nothing_that_is_being_posted(tmp_path: Path):
    release = threading.Event()

    def hesitating(request: Request) -> Reply:
        release.wait(60)
        return taking(request)

    with stub_service(hesitating) as stub:
        client = cr.init(stub.url, "job", rank=0, spool_dir=tmp_path, spool_bytes=0, memory_bytes=1, ring_spans=6000)
        assert client is not None
        client.mark("m", n=-1)
        assert not client.flush(0.1)
        for burst in range(3):
            for n in range(5000):
                client.mark("m", n=5000 * burst + n, text=os.urandom(4).hex())
            eventually(lambda: not client.ring)
        release.set()
        assert client.flush(30)
        kept = [e["attrs"]["n"] for e in events(stub)]
        assert kept[0] == -1
        assert kept == sorted(set(kept))
        assert len(kept) + client.stats()["dropped"]["backlog_full"] == 15_001
        assert client.stats()["dropped"].keys() == {"backlog_full"}
        cr.shutdown()
