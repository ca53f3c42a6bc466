"""A large job in a data folder, made by the store's own path: appended, hashed, condensed and sealed slice by slice.

Only the request bodies are left out (an empty one is logged for each slice): they are gone once a slice is sealed, and making them
would take longer than everything else. Spans are spread over ranks as in training: every rank runs the same program, each step
starts a new trace on each rank, one span in ten is a collective of the whole job or of a group of eight ranks.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossrank.counters import Counters
from crossrank.limits import Limits
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.post import Admitted, Post
from crossrank.store.store import Store

JOB = "big"
T0 = 1_800_000_000_000_000_000
STEP_NS = 1_000_000_000
KINDS = ("compute", "collective", "copy", "data")
GROUP_RANKS = 8


def open_big(folder: Path) -> Store:
    """The store, sealed by us alone and without a floor for the disk."""
    limits = Limits(disk_free_bytes=0, memtable_bytes=4 << 30)
    return Store.open(folder, decode=nothing, limits=limits, counters=Counters(), now_ns=lambda: T0)


def nothing(_: Post) -> Admitted:
    """Decodes the empty bodies."""
    return Admitted(EVENT_SCHEMA.empty_table())


def fill(store: Store, *, ranks: int, steps: int, spans: int) -> int:
    """Stores ranks x steps x spans events in slices of about a million; returns how many."""
    total, steps_at_once = 0, max(1, 1_000_000 // (ranks * spans))
    for first in range(0, steps, steps_at_once):
        for step in range(first, min(first + steps_at_once, steps)):
            for events in slices(ranks, step, spans):
                post = Post("events", "", "", JOB, T0 + (step + 1) * STEP_NS, b"")
                total += store.append(post, Admitted(events)).result().accepted
        store.seal()
        sys.stderr.write(f"\r{total:,} spans, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    sys.stderr.write("\n")
    return total


def slices(ranks: int, step: int, spans: int) -> Iterator[pa.Table]:
    """One step of all ranks, in tables of at most 64 ranks."""
    for first in range(0, ranks, 64):
        yield _step(np.arange(first, min(first + 64, ranks)), step, spans)


def _step(ranks: np.ndarray, step: int, spans: int) -> pa.Table:
    rng = np.random.default_rng((step, int(ranks[0])))
    count = len(ranks) * spans
    rank, place = np.repeat(ranks, spans), np.tile(np.arange(spans), len(ranks))
    kind = np.where(place % 10 == 9, 1, np.where(place % 25 == 3, 2, np.where(place == 0, 3, 0)))
    pitch = STEP_NS // spans
    start = T0 + step * STEP_NS + place * pitch + rng.integers(0, pitch // 4, count)
    end = start + rng.integers(pitch // 4, pitch // 2, count)
    ids = rng.integers(1, 1 << 63, count, dtype=np.uint64).astype(">u8")
    is_collective, all_ranks = kind == 1, place % 20 == 19
    group = np.where(all_ranks, 0, 1 + rank // GROUP_RANKS)
    groups = ["world", *(f"tp{g}" for g in range(int(ranks[-1]) // GROUP_RANKS + 1))]
    names = [f"{KINDS[k]}_{n}" for k in range(len(KINDS)) for n in range(8)]
    seq = (step * spans + place) // 10
    values = {
        "job": _words(np.zeros(count, np.int32), [JOB]),
        "attempt": pa.array(np.zeros(count, np.int32)),
        "rank": pa.array(rank.astype(np.int32)),
        "host": _words(rank // 8, [f"host{h}" for h in range(int(ranks[-1]) // 8 + 1)]),
        "clock": _words(rank // 8, [f"host{h}" for h in range(int(ranks[-1]) // 8 + 1)]),
        "lane": _words(is_collective.astype(np.int32), ["cuda:0", "cuda:1"]),
        "name": _words(kind * 8 + place % 8, names),
        "kind": _words(kind, KINDS),
        "start_ns": pa.array(start),
        "end_ns": pa.array(end),
        "step": pa.array(np.full(count, step)),
        "group": _words(group, groups, mask=~is_collective),
        "seq": pa.array(seq, mask=~is_collective),
        "op": _words(np.zeros(count, np.int32), ["all_reduce"], mask=~is_collective),
        "bytes": pa.array(np.full(count, 1 << 24), mask=~is_collective),
        "is_async": pa.array(np.zeros(count, np.bool_)),
        "trace_id": _ids(np.column_stack([rank, np.full(count, step + 1)]).astype(">u8").tobytes(), 16, count),
        "span_id": _ids(ids.tobytes(), 8, count),
        "parent_span_id": _ids(np.repeat(ids[place == 0], spans).tobytes(), 8, count),
        "flags": pa.array(np.zeros(count, np.int32)),
        "received_ns": pa.array(np.full(count, T0 + (step + 1) * STEP_NS)),
    }
    columns = [values[f.name] if f.name in values else pa.nulls(count, f.type) for f in EVENT_SCHEMA]
    return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)


def _words(codes: np.ndarray, words: list[str] | tuple[str, ...], mask: np.ndarray | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), pa.array(list(words), pa.string()))


def _ids(data: bytes, width: int, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(data)])
