"""Connections: TLS on both ports, slow and idle clients, slow bodies, budgets of bytes in work."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crossrank.api import connection
from crossrank.api.connection import GuardedConnection, Waiting
from crossrank.api.grpc_door import METHOD
from crossrank.auth.tokens import create_token
from crossrank.limits import Limits
from crossrank.serving import listen
from tests.support.inprocess import InProcess
from tests.support.server import Service

TLS = Path(__file__).parents[1] / "support" / "tls"
NDJSON = "application/x-ndjson"


def test_tls_and_tokens_on_both_ports(tmp_path: Path) -> None:
    _, token = create_token(tmp_path, "admin", None, 0)
    options = ("--host", "0.0.0.0", "--grpc-port", "0", "--tls-cert", str(TLS / "cert.pem"), "--tls-key", str(TLS / "key.pem"))
    with Service(tmp_path, *options) as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
        with httpx.Client(base_url=url, verify=trusted) as client:
            assert client.get("/v1/jobs").status_code == 401
            assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).json() == {"jobs": []}
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/healthz")
        port = next(line.rsplit(":", 1)[1].strip() for line in service.log if "OTLP/gRPC" in line)
        credentials = grpc.ssl_channel_credentials((TLS / "cert.pem").read_bytes())
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            call = channel.unary_unary(METHOD)
            body = ExportTraceServiceRequest().SerializeToString()
            assert call(body, timeout=20, metadata=[("authorization", f"Bearer {token}")]) == b""
            with pytest.raises(grpc.RpcError):
                call(body, timeout=20)
        assert not any(token.rsplit("_", 1)[1] in line for line in service.log)


@asynccontextmanager
async def serving(service: InProcess, waiting: Waiting) -> AsyncIterator[tuple[uvicorn.Server, str, int]]:
    """The application behind real sockets in this event loop."""
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        service.api, http=partial(GuardedConnection, waiting=waiting), lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listener]))
    host, port = listener.getsockname()
    yield server, host, port  # connections wait in the listener's queue until it has started
    server.should_exit = True
    await task


async def ask(host: str, port: int) -> int:
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=30) as client:
        return (await client.get("/healthz")).status_code


@pytest.mark.parametrize("sent", [b"", b"POST /v1/events HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half a header"])
def test_idle_connections_give_way(tmp_path: Path, sent: bytes) -> None:
    async def scenario() -> None:
        waiting = Waiting(10)
        async with serving(service, waiting) as (server, host, port):
            held = [await asyncio.open_connection(host, port) for _ in range(60)]
            for _, writer in held:
                writer.write(sent)
            for _ in range(5):
                assert await ask(host, port) == 200
            assert len(server.server_state.connections) <= 10
            first, _ = held[0]
            with suppress(ConnectionError):
                assert await first.read() == b"", "who waited longest was closed"
            for _, writer in held:
                writer.close()

    with InProcess(tmp_path) as service:
        asyncio.run(scenario())


def test_headers_have_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADERS_S", 0.05)

    async def scenario() -> None:
        async with serving(service, Waiting(10)) as (_, host, port):
            for first in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(first)
                if first:
                    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
                writer.write(b"GET /healthz HT")
                with suppress(ConnectionError):
                    assert await reader.read() == b"", "the service closes"
                writer.close()

    with InProcess(tmp_path) as service:
        asyncio.run(scenario())


def test_a_body_has_a_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(service, Waiting(10)) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(
                b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 99\r\n\r\n{"
            )
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
            writer.close()
        assert service.rooms.inflight.used_bytes == 0

    with InProcess(tmp_path, dataclasses.replace(Limits(), body_read_ns=30_000_000)) as service:
        asyncio.run(scenario())


def test_a_client_that_leaves_costs_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(service, Waiting(10)) as (_, host, port):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(
                b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 99\r\n\r\n{\n"
            )
            while service.rooms.inflight.used_bytes == 0:  # noqa: ASYNC110  - a counter has no event
                await asyncio.sleep(0)
            writer.transport.abort()
            while service.rooms.inflight.used_bytes:  # noqa: ASYNC110  - as above
                await asyncio.sleep(0)
            assert await ask(host, port) == 200

    with InProcess(tmp_path) as service:
        asyncio.run(scenario())
        assert 'status="500"' not in service.request("GET", "/metrics").text


def test_the_budget_counts_what_is_held_and_refuses_at_once(tmp_path: Path) -> None:
    with InProcess(tmp_path, dataclasses.replace(Limits(), inflight_bytes=1000)) as service:
        inflight = service.rooms.inflight
        headers = {"Content-Type": NDJSON}
        with inflight.open(0) as first:
            first.grow(5000)  # alone, it is let in
            answer = service.request("POST", "/v1/events", content=b"{}", headers=headers)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["detail"]["budget"] == "inflight_bytes"
            assert service.request("GET", "/v1/jobs").status_code == 200, "reads go on"
        assert inflight.used_bytes == 0
        assert service.request("POST", "/v1/events", content=b"\n", headers=headers).status_code == 200
        assert inflight.used_bytes == 0
        assert 'crossrank_requests_overloaded_total{budget="inflight_bytes"} 1.0' in service.request("GET", "/metrics").text


def test_a_refusal_by_the_store_is_counted_once(tmp_path: Path) -> None:
    with InProcess(tmp_path, dataclasses.replace(Limits(), wal_bytes=1000)) as service:
        line = b'{"rank":0,"name":"x","start_ns":1,"end_ns":2,"attrs":{"pad":"' + b"x" * 2000 + b'"}}'
        answer = service.request("POST", "/v1/events", content=line, headers={"Content-Type": NDJSON, "X-Crossrank-Job": "j"})
        assert (answer.status_code, answer.json()["error"]["detail"]["budget"]) == (503, "wal")
        counted = [line for line in service.request("GET", "/metrics").text.splitlines() if "requests_overloaded_total{" in line]
        assert counted == ['crossrank_requests_overloaded_total{budget="wal"} 1.0']
