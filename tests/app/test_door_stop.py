"""SIGTERM under load, once and twice: nothing new is taken, what is in hand is answered, nothing acknowledged is lost."""

import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from crossrank.api.grpc_door import METHOD, GrpcDoor
from tests.support.inprocess import InProcess
from tests.support.server import Service, derived

NDJSON = "application/x-ndjson"
WRITERS, EVENTS, ACKS = 4, 20, 60


RETRIED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}  # by every exporter


def event(writer: int, serial: int) -> str:
    start = 10**18 + serial * 1000
    return (
        f'{{"job":"stop","rank":{writer},"name":"a","start_ns":{start},"end_ns":{start + 9},"span_id":"{writer:04x}{serial:012x}"}}'
    )


class Writer(threading.Thread):
    """Posts until the service is gone."""

    def __init__(self, number: int, url: str, acknowledged: threading.Semaphore) -> None:
        super().__init__()
        self.number, self.url, self.acknowledged_one = number, url, acknowledged
        self.acked: set[str] = set()
        self.statuses: set[int] = set()

    def run(self) -> None:
        serial = 1
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while True:
                body = "\n".join(event(self.number, serial + i) for i in range(EVENTS))
                try:
                    answer = client.post("/v1/events", content=body, headers={"Content-Type": NDJSON})
                except httpx.TransportError:
                    return
                self.statuses.add(answer.status_code)
                if answer.status_code == 200:
                    self.acked |= {f"{self.number:04x}{serial + i:012x}" for i in range(EVENTS)}
                    self.acknowledged_one.release()
                serial += EVENTS


def is_refused(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=5).close()
    except OSError:
        return True
    return False


SIGNALS = 3  # a second and a third change nothing


def test_stop_under_load(tmp_path: Path) -> None:
    service = Service(tmp_path / "data").start()
    acknowledged = threading.Semaphore(0)
    url = service.url
    writers = [Writer(i, url, acknowledged) for i in range(WRITERS)]
    for w in writers:
        w.start()
    for _ in range(ACKS):
        assert acknowledged.acquire(timeout=60)
    for _ in range(SIGNALS - 1):
        os.kill(service.pid, signal.SIGTERM)
    assert service.stop() == 0
    assert is_refused(url)
    for w in writers:
        w.join(60)
        assert w.statuses <= {200, 503}
    with Service(tmp_path / "data") as again, again.client() as client:
        derived(client, "stop")
        stored, cursor = [], None
        while True:
            page = client.get("/v1/jobs/stop/events", params={"limit": 5000, **({"cursor": cursor} if cursor else {})}).json()
            stored += [e["span_id"] for e in page["events"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(stored) == len(set(stored))
        assert set().union(*(w.acked for w in writers)) == set(stored), "answered and stored are the same"


def test_a_request_in_hand_is_answered_while_nothing_new_is_taken(tmp_path: Path) -> None:
    service = Service(tmp_path / "data").start()
    parts = urlsplit(service.url)
    body = event(0, 1).encode()
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30) as half:
        head = f"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\nContent-Length: {len(body)}\r\n\r\n"
        half.sendall(head.encode() + body[:10])
        with service.client() as client:  # the half request is in work once its bytes are counted
            while client.get("/healthz").status_code != 200:
                pass
        os.kill(service.pid, signal.SIGTERM)
        while not is_refused(service.url):
            pass
        half.sendall(body[10:])
        answer = half.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    assert service.stop() == 0


def test_grpc_answers_what_is_in_hand_and_takes_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Event(), threading.Event()
    with InProcess(tmp_path) as service:
        append = type(service.rooms.store).append

        def slow_append(*arguments: Any) -> Any:
            entered.set()
            assert go.wait(30)
            return append(*arguments)

        monkeypatch.setattr(type(service.rooms.store), "append", slow_append)
        door = GrpcDoor(service.rooms, "127.0.0.1:0", certificate=None)
        with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            call = channel.unary_unary(METHOD)
            in_hand = call.future(b"", timeout=30)
            assert entered.wait(30)
            wait = door.stop(20)
            try:
                with pytest.raises(grpc.RpcError) as refused:
                    call(b"", timeout=20)
            finally:
                go.set()
            assert refused.value.code() in RETRIED
            assert in_hand.result(30) == b""
            wait()
