"""Posts, rows and a decoder for store tests: bodies are JSON lists of rows, so that nothing of ingest is needed."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossrank.counters import Counters
from crossrank.limits import Limits
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.flags import EventFlag
from crossrank.model.post import Admitted, Post, Receipt, Rejection
from crossrank.store.store import Store

T0 = 1_800_000_000_000_000_001
BASE: dict[str, Any] = {
    "job": "j",
    "attempt": 0,
    "rank": 0,
    "host": "h",
    "clock": "h",
    "lane": "main",
    "name": "n",
    "kind": "compute",
    "is_async": False,
    "flags": 0,
}


def row(span: int, start: int | None = 0, end: int | None = 10, **more: Any) -> dict[str, Any]:
    """One event; start and end count from T0, end None is an open span, start None the end half of a pair."""
    flags = int(EventFlag.START_MISSING) if start is None else 0
    times = {"start_ns": None if start is None else T0 + start, "end_ns": None if end is None else T0 + end}
    return {**BASE, "flags": flags, **times, **more, "span_id": span}


def post(rows: Iterable[dict[str, Any]], received_ns: int = 1, rejects: Iterable[tuple[str, int | None, str]] = ()) -> Post:
    """A request with these rows and (job, rank, reason) rejections."""
    body = json.dumps({"rows": list(rows), "rejects": list(rejects)}).encode()
    return Post("events", "application/json", "", None, received_ns, body)


def table(rows: Iterable[dict[str, Any]], received_ns: int = 1) -> pa.Table:
    """Rows as an event table."""
    full = [{"received_ns": received_ns, **r, "span_id": r["span_id"].to_bytes(8, "big")} for r in rows]
    for r in full:
        for name in ("trace_id", "parent_span_id"):
            if isinstance(r.get(name), str):
                r[name] = bytes.fromhex(r[name])
    return pa.Table.from_pylist(full, schema=EVENT_SCHEMA)


def decode(sent: Post) -> Admitted:
    """What ingest does in the real program."""
    body = json.loads(sent.body)
    rejections = tuple(Rejection(i, reason, job, rank) for i, (job, rank, reason) in enumerate(body["rejects"]))
    return Admitted(table(body["rows"], sent.received_ns), rejections)


@functools.cache
def _empty_folder() -> Path:
    """A data folder that has been opened once: making one takes longer than most tests."""
    parent = Path(tempfile.mkdtemp(prefix="crossrank-store-"))
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    Store.open(parent / "data", decode=decode, limits=Limits(disk_free_bytes=0), counters=Counters(), now_ns=lambda: T0).close()
    return parent / "data"


def open_store(
    folder: Path, *, counters: Counters | None = None, decoder: Callable[[Post], Admitted] = decode, **limits: int
) -> Store:
    """A store, in a new folder or in what is there, with a fixed clock and a disk that is never called full."""
    if not folder.exists():
        shutil.copytree(_empty_folder(), folder)
    bounds = Limits(**{"disk_free_bytes": 0, **limits})
    return Store.open(folder, decode=decoder, limits=bounds, counters=counters or Counters(), now_ns=lambda: T0)


def put(
    store: Store, rows: Iterable[dict[str, Any]], received_ns: int = 1, rejects: Iterable[tuple[str, int | None, str]] = ()
) -> Receipt:
    """Appends and waits until it is durable."""
    sent = post(rows, received_ns, rejects)
    return store.append(sent, decode(sent)).result(30)


def crashed(folder: Path, copy: Path) -> Path:
    """A copy of the data folder as a kill would leave it now; the store that holds the original knows nothing of it."""
    shutil.copytree(folder, copy)
    return copy


def spans(events: pa.Table) -> list[tuple[Any, ...]]:
    """(rank, span, start, end, name, attrs) of all rows, sorted; times from T0."""
    out = []
    for r in events.to_pylist():
        start, end = (None if r[k] is None else r[k] - T0 for k in ("start_ns", "end_ns"))
        out.append((r["rank"], int.from_bytes(r["span_id"], "big"), start, end, r["name"], r["attrs"]))
    return sorted(out, key=lambda r: r[:2])


def counted(counters: Counters, name: str) -> float:
    """The value of a declared counter."""
    return sum(
        s.value
        for m in counters.registry.collect()
        for s in m.samples
        if s.name in {f"crossrank_{name}_total", f"crossrank_{name}"}
    )
