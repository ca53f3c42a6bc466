"""What a running service takes: sustained posts on a few connections, and thousands of clients that each post now and then.

A bounded load generator over plain asyncio sockets (loopback only, one process) talks to a real service with its real log on a
real disk. Requests are OTLP protobuf with 10 attributes a span. Each body is a copy of one template with fresh span ids written
into it, so that nothing is a duplicate and the generator costs little. Clients are spread over jobs of 64 ranks, which the service
derives answers for at the same time, as it does in life. A client told 503 waits as told and sends the same body again.

    python benchmarks/load.py [--seconds N] [--clients N] [--part connections|crowd|volume] [--long]

"Until all is in Parquet" ends when the service, told to stop, has sealed what it had in memory and is gone. The generator runs on the
same cores, and its time is not taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import numpy as np
from _measure import percentile
from _results import Results
from _service import Service, service
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

LARGE_SPANS, SMALL_SPANS = 8192, 512
CONNECTIONS = 8
RANKS_A_JOB = 64
PERIOD_S = 5.0
FIRST_RANK = 1 << 14  # a varint of three bytes, so that any rank has the same length
JOB = "load-%06d"


class Template:
    """An encoded request; `body` writes job, rank and fresh span ids into a copy of it."""

    def __init__(self, spans: int) -> None:
        self.spans = spans
        message = ExportTraceServiceRequest()
        resource_spans = message.resource_spans.add()
        for key, text in (("crossrank.job", JOB % 0), ("crossrank.host", "host-0001"), ("service.name", "trainer")):
            resource_spans.resource.attributes.add(key=key).value.string_value = text
        resource_spans.resource.attributes.add(key="crossrank.rank").value.int_value = FIRST_RANK
        held = resource_spans.scope_spans.add().spans
        marks = np.random.default_rng(0).bytes(8 * spans)
        for i in range(spans):
            start = 1_800_000_000_000_000_000 + i * 100_000
            span = held.add(name=f"layer.{i % 48}.forward", trace_id=b"\7" * 16, span_id=marks[8 * i : 8 * i + 8])
            span.start_time_unix_nano, span.end_time_unix_nano = start, start + 90_000
            texts = {"kind": "compute", "lane": "cuda:0", "dtype": "bfloat16", "phase": "forward", "module": f"block{i % 48}"}
            for key, text in texts.items():
                span.attributes.add(key=key).value.string_value = text
            for key, number in {"step": i // 256, "bytes": 1 << 20, "layer": i % 48, "microbatch": i % 8}.items():
                span.attributes.add(key=key).value.int_value = number
            span.attributes.add(key="load").value.double_value = 0.5
        encoded = message.SerializeToString()
        self._body = np.frombuffer(encoded, np.uint8)
        self._job_at = encoded.index((JOB % 0).encode())
        self._rank_at = encoded.index(b"crossrank.rank") + len(b"crossrank.rank") + 3  # tag, length, tag of the value
        at, places = 0, []
        for i in range(spans):
            at = encoded.index(marks[8 * i : 8 * i + 8], at)
            places.append(at)
        self._ids = np.array(places)[:, None] + np.arange(8)

    def body(self, job: int, rank: int, first_id: int) -> bytes:
        """A request of one rank whose span ids are first_id, first_id + 1, ..."""
        body = self._body.copy()
        body[self._job_at : self._job_at + len(JOB % 0)] = np.frombuffer((JOB % job).encode(), np.uint8)
        value = FIRST_RANK + rank
        body[self._rank_at : self._rank_at + 3] = [value & 127 | 128, value >> 7 & 127 | 128, value >> 14]
        body[self._ids] = np.arange(first_id, first_id + self.spans, dtype=">u8").view(np.uint8).reshape(-1, 8)
        return body.tobytes()


class Connection(asyncio.Protocol):
    """One keep-alive HTTP connection, one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._reply: asyncio.Future[tuple[int, float]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio; answers are small, so they are looked at as a whole."""
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None and len(rest) < int(length[1]):
            return
        asked = re.search(rb"retry-after: (\d+)", head)
        self._buffer = bytearray()
        self._done((int(head[9:12]), float(asked[1]) if asked else 0.0))

    def connection_lost(self, _: Exception | None) -> None:
        """Called by asyncio."""
        self._done((0, 0.0))

    def _done(self, reply: tuple[int, float]) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def post(self, head: bytes, body: bytes) -> asyncio.Future[tuple[int, float]]:
        """Sends a request; the future gives its status (0: the connection broke) and the seconds asked to wait."""
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.writelines([head, body])
        return self._reply


@dataclass
class Tally:
    """What the clients saw."""

    acknowledged_spans: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    accepted_ms: list[float] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)


class Client:
    """One rank of one job that keeps a connection open."""

    def __init__(self, number: int, url: str, template: Template, tally: Tally, first_job: int) -> None:
        self._where = urlsplit(url)
        self._template, self._tally = template, tally
        self._job, self._rank = first_job + number // RANKS_A_JOB, number % RANKS_A_JOB
        self._serial = 1

    async def connect(self) -> None:
        """Opens the connection."""
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_connection(Connection, self._where.hostname, self._where.port)

    async def post(self, until: float) -> None:
        """Posts one fresh body, again while told to wait and there is time."""
        body = self._template.body(self._job, self._rank, self._serial)
        self._serial += self._template.spans
        head = (
            f"POST /v1/traces HTTP/1.1\r\nHost: {self._where.netloc}\r\nContent-Type: application/x-protobuf\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        while True:
            began = time.perf_counter()
            status, wait_s = await self._connection.post(head, body)
            took_ms = (time.perf_counter() - began) * 1e3
            self._tally.statuses[status] += 1
            if status == 200:
                self._tally.acknowledged_spans += self._template.spans
                self._tally.accepted_ms.append(took_ms)
                return
            self._tally.refused_ms.append(took_ms)
            if status == 0:
                await self.connect()
            if status not in (0, 503) or time.perf_counter() + wait_s > until:
                return
            await asyncio.sleep(wait_s)

    async def pour(self, until: float) -> None:
        """Posts as fast as answers come."""
        await self.connect()
        while time.perf_counter() < until:
            await self.post(until)

    async def now_and_then(self, began: float, until: float, phase_s: float) -> None:
        """Posts every PERIOD_S."""
        await self.connect()
        due = began + phase_s
        while due < until:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await self.post(until + PERIOD_S)
            due = max(due + PERIOD_S, time.perf_counter())


def stored(server: Service, first_job: int, jobs: int) -> int:
    """Events the service says it has stored for these jobs."""
    names = {JOB % (first_job + i) for i in range(jobs)}
    entries = httpx.get(f"{server.url}/v1/jobs", timeout=300).json()["jobs"]
    return sum(e["accepted"] for e in entries if e["job"] in names)


def metric(server: Service, name: str) -> float:
    """The sum of a metric's series."""
    lines = httpx.get(f"{server.url}/metrics", timeout=300).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"crossrank_{name}(_total)?[ {{]", line))


async def saturate(url: str, template: Template, connections: int, seconds: float, first_job: int) -> tuple[Tally, float]:
    """Posts on all connections at once; what came back and the seconds until the last answer."""
    tally, began = Tally(), time.perf_counter()
    clients = [Client(i, url, template, tally, first_job) for i in range(connections)]
    await asyncio.gather(*(c.pour(began + seconds) for c in clients))
    return tally, time.perf_counter() - began


async def crowd(url: str, template: Template, clients: int, seconds: float, first_job: int) -> Tally:
    """Many clients, each on its own period, evenly shifted."""
    tally, began = Tally(), time.perf_counter() + 2.0
    made = [Client(i, url, template, tally, first_job) for i in range(clients)]
    phases = np.arange(clients) * (PERIOD_S / clients)
    await asyncio.gather(*(c.now_and_then(began, began + seconds, p) for c, p in zip(made, phases.tolist(), strict=True)))
    return tally


def few_connections(server: Service, template: Template, seconds: float, results: Results) -> tuple[int, float]:
    """One connection alone, then a few at once; the spans acknowledged and the time when the few began."""
    asyncio.run(saturate(server.url, template, 2, 2.0, 900_000))  # loads and compiles everything once
    alone, _ = asyncio.run(saturate(server.url, template, 1, seconds / 2, 100))
    results.add(f"{LARGE_SPANS} spans a request, one connection: ack p50", percentile(alone.accepted_ms, 0.5), "ms", at_most=15)
    cpu, began = server.cpu_s(), time.perf_counter()
    tally, took = asyncio.run(saturate(server.url, template, CONNECTIONS, seconds, 200))
    name = f"{LARGE_SPANS} spans a request, {CONNECTIONS} connections"
    results.add(f"{name}: acknowledged", tally.acknowledged_spans / took, "spans/s")
    results.add(f"{name}: service CPU", tally.acknowledged_spans / (server.cpu_s() - cpu), "spans/s per core", at_least=500_000)
    results.add(f"{name}: ack p99", percentile(tally.accepted_ms, 0.99), "ms", at_most=250)
    results.add(f"{name}: acknowledged - stored", tally.acknowledged_spans - stored(server, 200, 1), "spans", at_most=0)
    results.add(f"{name}: answers other than 200 and 503", others(tally), "answers", at_most=0)
    results.add(f"{name}: longest event-loop stall", metric(server, "event_loop_stall_seconds") * 1e3, "ms", at_most=50)
    return tally.acknowledged_spans, began


def volume(server: Service, template: Template, spans: int, results: Results) -> tuple[int, float]:
    """Many spans on a few connections; the service's memory must not grow with what it has stored."""
    asyncio.run(saturate(server.url, template, 2, 2.0, 900_000))
    began, acknowledged, resident = time.perf_counter(), 0, []
    while acknowledged < spans:
        tally, _ = asyncio.run(saturate(server.url, template, CONNECTIONS, 4.0, 300 + len(resident)))
        acknowledged += tally.acknowledged_spans
        resident.append(server.rss_mb())
    name = f"{spans / 1e6:g} million spans"
    half = len(resident) // 2
    results.add(f"{name}: greatest resident memory", max(resident), "MB", at_most=1000)
    results.add(
        f"{name}: greatest of the second half over that of the first", max(resident[half:]) / max(resident[:half]), "x", at_most=1.1
    )
    return acknowledged, began


def until_sealed(what: str, poured: tuple[int, float], results: Results, at_least: float | None) -> None:
    """The rate including everything that was left to be written when the service was told to stop."""
    spans, began = poured
    results.add(f"{what}: until all is in Parquet", spans / (time.perf_counter() - began), "spans/s", at_least=at_least)


def many_clients(server: Service, clients: int, seconds: float, results: Results) -> None:
    """Thousands of clients that post now and then."""
    tally = asyncio.run(crowd(server.url, Template(SMALL_SPANS), clients, seconds, 500_000))
    name = f"{clients} clients, {SMALL_SPANS} spans every {PERIOD_S:g} s, {seconds:g} s"
    jobs = -(-clients // RANKS_A_JOB)
    results.add(f"{name}: acknowledged", tally.acknowledged_spans / seconds, "spans/s")
    results.add(f"{name}: acknowledged - stored", tally.acknowledged_spans - stored(server, 500_000, jobs), "spans", at_most=0)
    results.add(f"{name}: answers other than 200 and 503", others(tally), "answers", at_most=0)
    results.add(f"{name}: 503", tally.statuses[503], "answers")
    results.add(f"{name}: ack p50", percentile(tally.accepted_ms, 0.5), "ms")
    results.add(f"{name}: ack p99", percentile(tally.accepted_ms, 0.99), "ms", at_most=1000)
    if tally.refused_ms:
        results.add(f"{name}: 503 p99", percentile(tally.refused_ms, 0.99), "ms")


def others(tally: Tally) -> int:
    """Answers that are neither success nor a deliberate "later"."""
    return sum(count for status, count in tally.statuses.items() if status not in (200, 503))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each part")
    parser.add_argument("--clients", type=int, default=1024)
    parser.add_argument("--part", choices=("connections", "crowd", "volume"), help="one part only")
    parser.add_argument("--long", action="store_true", help="4,096 clients for 2 minutes, 20 million spans")
    options = parser.parse_args()
    clients, seconds = (4096, 120.0) if options.long else (options.clients, options.seconds)
    spans = 20_000_000 if options.long else 4_000_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, clients + 256)), hard))
    results, template = Results("load" if options.part is None else f"load_{options.part}"), Template(LARGE_SPANS)
    if options.part in (None, "connections"):
        with service() as server:
            poured = few_connections(server, template, options.seconds, results)
        until_sealed(f"{CONNECTIONS} connections", poured, results, 800_000)
    if options.part in (None, "volume"):
        with service() as server:
            poured = volume(server, template, spans, results)
        until_sealed(f"{spans / 1e6:g} million spans", poured, results, 800_000)
    if options.part in (None, "crowd"):
        with service() as server:
            many_clients(server, clients, seconds, results)
            results.add(
                f"{clients} clients: longest event-loop stall", metric(server, "event_loop_stall_seconds") * 1e3, "ms", at_most=50
            )
            results.add(f"{clients} clients: resident memory at the end", server.rss_mb(), "MB", at_most=1000)
    results.finish()


if __name__ == "__main__":
    main()
