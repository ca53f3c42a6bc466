"""How long a service takes to be ready again after a kill that left a full log: 1 GiB of requests as received, none of them sealed.

The log is written by the store's own log, with requests of 8,192 spans as OTLP protobuf and NDJSON exporters send them, uncompressed:
that is how a log gets large. Spans are those of the simulator under new span ids in each request. Then a real service is started on the
folder and timed until GET /readyz answers 200; the same service on an empty folder shows how much of that is not the log.

    python benchmarks/restart.py [--gib 1.0]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
from _results import Results
from _service import service

from crossrank.model.post import Post
from crossrank.simulate.config import JobConfig
from crossrank.simulate.encode import NDJSON_TYPE, PROTOBUF_TYPE, ndjson, otlp_protobuf
from crossrank.simulate.job import simulate
from crossrank.store.wal import Wal

REQUEST_EVENTS = 8192
FILE_BYTES = 64 << 20


def with_new_ids(events: pa.Table, number: int) -> pa.Table:
    """The same spans under other span ids."""
    ids = np.random.default_rng(number).integers(1, 1 << 63, len(events), dtype=np.uint64).astype(">u8").tobytes()
    column = pa.Array.from_buffers(pa.binary(8), len(events), [None, pa.py_buffer(ids)])
    return events.set_column(events.schema.get_field_index("span_id"), events.schema.field("span_id"), column)


def fill_log(data: Path, size: int) -> int:
    """Writes that many bytes of requests to the log of a folder; returns how many spans they hold."""
    data.mkdir(parents=True)
    events = simulate(JobConfig(steps=8), seed=1).events
    events = events.slice(0, len(events) // REQUEST_EVENTS * REQUEST_EVENTS)
    wal, total = Wal(data), 0
    wal.start_file()
    while wal.size_bytes < size:
        number = total // REQUEST_EVENTS
        part = with_new_ids(events.slice(number * REQUEST_EVENTS % len(events), REQUEST_EVENTS), number)
        is_otlp = number % 2 == 0
        body, kind, route = (otlp_protobuf(part), PROTOBUF_TYPE, "traces") if is_otlp else (ndjson(part), NDJSON_TYPE, "events")
        if wal.current_bytes > FILE_BYTES:
            wal.start_file()
        wal.append([Post(route, kind, "", None, 1_800_000_000_000_000_000 + number, body)])
        total += len(part)
    wal.close()
    return total


def until_ready(prepare: Callable[[Path], object], what: str, results: Results, *, at_most: float | None = None) -> int:
    """Starts a service on a prepared folder and times it until it is ready; returns how many events its jobs have."""
    began = 0.0

    def prepared(data: Path) -> None:
        nonlocal began
        prepare(data)
        began = time.perf_counter()

    with service(prepared) as server:
        results.add(what, time.perf_counter() - began, "s", at_most=at_most)
        jobs = httpx.get(f"{server.url}/v1/jobs", timeout=60).json()["jobs"]
        results.add(f"{what}: resident memory", server.rss_mb(), "MB")
        return sum(job["events"] for job in jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=1.0)
    options = parser.parse_args()
    results = Results("restart")
    until_ready(lambda _: None, "ready with an empty folder", results)
    with tempfile.TemporaryDirectory(prefix="crossrank-log-") as folder:
        data = Path(folder) / "data"
        spans = fill_log(data, int(options.gib * (1 << 30)))
        results.add("log, not sealed", options.gib, "GiB")
        results.add("spans in it", spans, "spans")
        stored = until_ready(data.rename, "ready with the log", results, at_most=10)
    assert stored == spans, (stored, spans)
    results.finish()


if __name__ == "__main__":
    main()
