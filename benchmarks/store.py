"""How fast the store reads and exports a large job, how small it is on disk and how much memory that takes.

The job is made first (see `_big_job`), or taken from an earlier run with --folder. Reads use two threads and run warm: once
unmeasured, then the median of --rounds. "Breakdown" sums the time of every kind on every rank; "match" finds first and last arrival of
every collective, ties by rank. Both go through the store's snapshot, which merges identities.

    python benchmarks/store.py [--ranks 512] [--steps 10] [--spans 1000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from _big_job import JOB, STEP_NS, T0, fill, nothing, open_big, slices
from _results import Results

from crossrank.counters import Counters
from crossrank.limits import Limits
from crossrank.model.post import Admitted, Post
from crossrank.query.derive import derive
from crossrank.query.export import aligned_batches, parquet_stream
from crossrank.store.filter import EventFilter
from crossrank.store.snapshot import Snapshot
from crossrank.store.store import Store

COLLECTIVE = "collective"
KINDS = 16  # more than there are


def breakdown(snapshot: Snapshot) -> np.ndarray:
    """[rank * KINDS + kind] total nanoseconds."""
    total = np.zeros(0)
    kinds: dict[str, int] = {}
    for rows in snapshot.batches(["rank", "kind", "start_ns", "end_ns"]):
        coded = rows.column("kind").chunk(0)
        place = np.array([kinds.setdefault(k, len(kinds)) for k in coded.dictionary.to_pylist()])
        cell = rows.column("rank").to_numpy() * KINDS + place[coded.indices.to_numpy()]
        spent = rows.column("end_ns").to_numpy() - rows.column("start_ns").to_numpy()
        part = np.bincount(cell, weights=spent, minlength=len(total))
        part[: len(total)] += total
        total = part
    return total


def match(snapshot: Snapshot) -> int:
    """How many collectives there are; for each (group, seq) members, first and last arrival and who that was."""
    groups: dict[str, int] = {}
    parts = []
    for rows in snapshot.batches(["rank", "kind", "start_ns", "group", "seq"], EventFilter(kinds=(COLLECTIVE,))):
        coded = rows.column("group").chunk(0)
        place = np.array([groups.setdefault(g, len(groups)) for g in coded.dictionary.to_pylist()])
        key = place[coded.indices.to_numpy()].astype(np.int64) << 40 | rows.column("seq").to_numpy()
        parts.append((key, rows.column("start_ns").to_numpy() - T0, rows.column("rank").to_numpy()))
    key, start, rank = (np.concatenate([p[k] for p in parts]) for k in range(3))
    order = np.argsort(key, kind="stable")
    key, arrival = key[order], (start << 16 | rank)[order]  # ties by rank
    first = np.flatnonzero(np.diff(key, prepend=-1))
    earliest, latest = np.minimum.reduceat(arrival, first), np.maximum.reduceat(arrival, first)
    assert ((latest >> 16) >= (earliest >> 16)).all()
    return len(first)


def timed(results: Results, what: str, task: Callable[[], object], rounds: int, at_most: float | None = None) -> None:
    """Adds the median wall seconds, warm, and the CPU seconds of all threads, which do not depend on what else the machine does."""
    task()
    walls, cpus = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        task()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    results.add(what, median(walls), "s", at_most=at_most)
    results.add(f"{what}: CPU of all threads", median(cpus), "s")


def export_all(snapshot: Snapshot) -> int:
    """Streams everything as Parquet; bytes produced. The alignment is that of a derivation of the first step."""
    some = snapshot.events(where=EventFilter(step_from=0, step_to=1, ranks=tuple(range(16))))
    derived = derive(some, job=JOB, attempt=0, version=1, topology=None, truncated=True)
    view = SimpleNamespace(snapshot=snapshot, derived=derived)  # all that an export asks of a JobView
    return sum(len(block) for block in parquet_stream(aligned_batches(view)))


def measure(folder: Path, options: argparse.Namespace, results: Results) -> None:
    """All figures of a folder that has been filled."""
    steps, rounds = options.steps, options.rounds
    pa.set_cpu_count(2)
    store = Store.open(
        folder,
        decode=nothing,
        limits=Limits(disk_free_bytes=0),
        counters=Counters(),
        now_ns=lambda: T0,
    )
    snapshot, sizes = store.snapshot(JOB), store.stats()
    middle = T0 + (steps // 2) * STEP_NS
    trace = (77).to_bytes(8, "big") + (steps // 2 + 1).to_bytes(8, "big")
    columns = ["rank", "start_ns", "end_ns", "name", "kind", "step", "span_id"]
    window = EventFilter(ranks=(77,), from_ns=middle, to_ns=middle + 2 * STEP_NS)
    short = EventFilter(from_ns=middle, to_ns=middle + 50_000_000)
    share = sizes["segment_rows"] / 50_000_000  # the demands are those of 50 M spans
    results.add("spans", sizes["segment_rows"], "spans")
    stored = sizes["segment_bytes"] + sizes["identity_run_bytes"]
    results.add("on disk, segments and identity runs", stored / sizes["segment_rows"], "B/span", at_most=25)
    results.add("of these identity runs", sizes["identity_run_bytes"] / sizes["segment_rows"], "B/span")
    timed(results, "full per-rank breakdown", lambda: breakdown(snapshot), rounds, 3 * max(share, 0.1))
    timed(results, "match all collectives", lambda: match(snapshot), rounds, 4 * max(share, 0.1))
    timed(results, "1 rank x 2 s window", lambda: snapshot.events(columns, window), rounds, 0.1)
    timed(results, "1 rank x 2 s window, every column", lambda: snapshot.events(None, window), rounds)
    timed(results, "all ranks x 50 ms", lambda: snapshot.events(columns, short), rounds, 0.1)
    timed(results, "all ranks x 50 ms, every column", lambda: snapshot.events(None, short), rounds)
    timed(results, "trace by id", lambda: snapshot.events(None, EventFilter(trace_id=trace)), rounds, 0.3)
    results.add(
        "resident memory of reads, most", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, "MB", at_most=1000
    )
    began = time.perf_counter()
    export_all(snapshot)
    results.add("export as Parquet", sizes["segment_rows"] / (time.perf_counter() - began) / 1e6, "M rows/s", at_least=1)
    results.add(
        "resident memory with export, most", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, "MB", at_most=1000
    )
    if options.resends:
        resends(store, options.ranks, steps, options.spans, results)
    store.close()


def resends(store: Store, ranks: int, steps: int, spans: int, results: Results) -> None:
    """What it costs to tell new events from known ones beside everything stored, after a restart: batches of up to 64 ranks."""
    batches = {
        "first post of all, new": next(slices(ranks, steps, spans)),
        "new": next(slices(ranks, steps + 1, spans)),
        "resent from the first step": next(slices(ranks, 0, spans)),
        "resent from the middle, again and again": next(slices(ranks, steps // 2, spans)),
    }
    for what, events in batches.items():
        walls = []
        for _ in range(3 if "again" in what else 1):
            began = time.perf_counter()
            post = Post("events", "", "", JOB, T0 + (steps + 2) * STEP_NS, b"")
            receipt = store.append(post, Admitted(events)).result()
            walls.append(time.perf_counter() - began)
        known = receipt.duplicate == len(events)
        assert known == ("resent" in what), (what, receipt)
        results.add(f"events accepted or recognised, {what}", len(events) / median(walls) / 1e3, "k events/s")
    results.add("event versions in memory to recognise resends", store.stats()["identities"], "versions")


def make(folder: Path, ranks: int, steps: int, spans: int) -> None:
    """Fills the folder in a process of its own, whose memory is not counted."""
    store = open_big(folder)
    began = time.perf_counter()
    total = fill(store, ranks=ranks, steps=steps, spans=spans)
    sys.stderr.write(f"{total / (time.perf_counter() - began) / 1e3:,.0f} k spans/s stored\n")
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--spans", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="made when absent, else measured as it is")
    parser.add_argument("--resends", action="store_true", help="also post new and known events; the folder is changed by it")
    parser.add_argument("--make", action="store_true", help="only make the folder")
    options = parser.parse_args()
    if options.make:
        make(options.folder, options.ranks, options.steps, options.spans)
        return
    with tempfile.TemporaryDirectory(prefix="crossrank-benchmark-") as temporary:
        folder = options.folder or Path(temporary) / "data"
        if not folder.exists():
            sizes = [f"--{k}={getattr(options, k)}" for k in ("ranks", "steps", "spans")]
            subprocess.run([sys.executable, __file__, "--make", f"--folder={folder}", *sizes], check=True)
        results = Results("store")
        measure(folder, options, results)
    results.finish()


if __name__ == "__main__":
    main()
