"""How fast events come in: decoding by format in this process, and whole requests to a real, durable service over loopback HTTP.

Decoding goes through the same function as a request does (decompress, decode, admit). Formats take turns, medians of CPU seconds.
End to end, every request is acknowledged after the log is synced to disk; the service's CPU time is read from the kernel, so that
the client's work on the same machine is not counted.

    python benchmarks/ingest.py [--rounds N] [--events N]
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import zstandard
from _measure import percentile, take_turns
from _results import Results
from _service import service
from ingest_decode import protobuf_body, spans

from crossrank.counters import Counters
from crossrank.ingest.accept import accept
from crossrank.limits import Limits
from crossrank.model.post import Admitted, Post
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import ARROW_TYPE, NDJSON_TYPE, PROTOBUF_TYPE, arrow_stream, ndjson, otlp_protobuf, seed_form
from crossrank.simulate.job import simulate
from crossrank.store.store import Store

REQUEST_EVENTS = 8192
CONNECTIONS = 4
SIZED_REQUESTS = 16


FORMATS: dict[str, Callable[[pa.Table], Post]] = {
    "NDJSON": lambda events: Post("events", NDJSON_TYPE, "", None, 0, ndjson(events)),
    "NDJSON, gzip": lambda events: Post("events", NDJSON_TYPE, "gzip", None, 0, gzip.compress(ndjson(events), 6)),
    "NDJSON, zstd": lambda events: Post("events", NDJSON_TYPE, "zstd", None, 0, zstandard.compress(ndjson(events), 3)),
    "NDJSON, seed form": lambda events: Post("events", NDJSON_TYPE, "", None, 0, seed_form(events)),
    "Arrow stream": lambda events: Post("events", ARROW_TYPE, "", None, 0, arrow_stream(events)),
    "OTLP protobuf": lambda events: Post("traces", PROTOBUF_TYPE, "", None, 0, otlp_protobuf(events)),
}


def decode(post: Post) -> Admitted:
    """Decodes one request, refusing to time one that loses events."""
    admitted = accept(post, Limits())
    assert not admitted.rejections, admitted.rejections[:3]
    return admitted


def decoding(events: pa.Table, rounds: int, results: Results) -> None:
    """Decode rates by format."""
    posts = {name: encode(events) for name, encode in FORMATS.items()}
    timings = take_turns({name: lambda post=post: decode(post) for name, post in posts.items()}, rounds=rounds)
    for name, timing in timings.items():
        results.add(f"decode {name}", len(events) / timing.cpu_s, "events/s per core")
        results.add(f"{name}: bytes per event", len(posts[name].body) / len(events), "bytes")


def end_to_end(events: pa.Table, results: Results) -> None:
    """Durable requests over HTTP: throughput on several connections, then the latency of small ones on a single connection."""
    with service() as server, httpx.Client(base_url=server.url, timeout=300) as client:
        for name, encode in FORMATS.items():  # compiles and loads everything once
            send(client, encode(of_job(events.slice(0, 512), f"warm {name}")))
        for name in ("NDJSON, zstd", "OTLP protobuf", "Arrow stream"):
            posts = [FORMATS[name](of_job(events.slice(at, REQUEST_EVENTS), name)) for at in range(0, len(events), REQUEST_EVENTS)]
            before, written, began = server.cpu_s(), server.written_bytes(), time.perf_counter()
            pour(server.url, posts)
            took, cpu = time.perf_counter() - began, server.cpu_s() - before
            results.add(f"end to end {name}: {CONNECTIONS} connections", len(events) / took, "events/s")
            results.add(f"end to end {name}: service CPU", len(events) / cpu, "events/s per core")
            results.add(f"end to end {name}: stored so far", (server.written_bytes() - written) / len(events), "bytes/event")
        small = [FORMATS["NDJSON"](of_job(events.slice(at, 64), "latency")) for at in range(0, 64 * 200, 64)]
        acks = [send(client, post) for post in small]
        results.add("acknowledgement of 64 events, one connection: p50", percentile(acks, 0.5), "ms")
        results.add("acknowledgement of 64 events, one connection: p99", percentile(acks, 0.99), "ms")
        results.add("resident memory of the service", server.rss_mb(), "MB")


def sizes(requests: int, results: Results) -> None:
    """What the log and the sealed segments of the same requests take, beside what was sent and what zstd makes of that.

    The requests are those of `ingest_decode`: every id, size and one attribute are random, so no encoding makes them small.
    """
    posts = [Post("traces", PROTOBUF_TYPE, "", None, 0, protobuf_body(spans(seed))) for seed in range(requests)]
    sent, packed = sum(len(p.body) for p in posts), sum(len(zstandard.compress(p.body, 3)) for p in posts)
    with tempfile.TemporaryDirectory(prefix="crossrank-sizes-") as folder:
        store = Store.open(Path(folder), decode=decode, limits=Limits(), counters=Counters(), now_ns=time.time_ns)
        for post in posts:
            store.append(post, decode(post)).result()
        logged = store.stats()["wal_bytes"]
        store.seal()
        stored = store.stats()["segment_bytes"]
        store.close()
    results.add("OTLP protobuf: log over bytes sent", logged / sent, "x", at_most=1.05)
    results.add("OTLP protobuf: stored Parquet over zstd of what was sent", stored / packed, "x", at_most=0.65)


def of_job(events: pa.Table, job: str) -> pa.Table:
    """The same events under another job's name, so that none is a duplicate of an earlier one."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * len(events), pa.int32()), pa.array([job]))
    return events.set_column(0, events.schema.field("job"), words)


def send(client: httpx.Client, post: Post) -> float:
    """Posts one request; wall milliseconds to its acknowledgement."""
    headers = {"Content-Type": post.content_type}
    if post.content_encoding:
        headers["Content-Encoding"] = post.content_encoding
    began = time.perf_counter()
    client.post(f"/v1/{post.route}", content=post.body, headers=headers).raise_for_status()
    return (time.perf_counter() - began) * 1e3


def pour(url: str, posts: list[Post]) -> None:
    """Posts all requests over several connections at once."""

    def connection(mine: list[Post]) -> None:
        with httpx.Client(base_url=url, timeout=300) as client:
            for post in mine:
                send(client, post)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(connection, [posts[i::CONNECTIONS] for i in range(CONNECTIONS)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--events", type=int, default=65_536, help="events of the end-to-end part")
    options = parser.parse_args()
    events = simulate(JobConfig(steps=40), seed=1).events
    results = Results("ingest")
    decoding(events.slice(0, REQUEST_EVENTS), options.rounds, results)
    sizes(SIZED_REQUESTS, results)
    end_to_end(events.slice(0, options.events), results)
    results.finish()


if __name__ == "__main__":
    main()
