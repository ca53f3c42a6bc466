"""A process with a store under load, to be killed or to meet a failing disk.

python -m tests.support.store_child load FOLDER ACKS SEED     writers, seals and compactions until it is killed
python -m tests.support.store_child sweep FOLDER NOTES ERRNO STRIDE FROM     each (or each n-th) call to the disk fails once

The sweep notes what was acknowledged, prints what it met, and exits with RESTART where only a new process can go on: after some
failures DuckDB does not let go of the catalog file until its process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path

import numpy as np

from crossrank.errors import CrossrankError, StoreUnavailable
from crossrank.store.store import Store
from tests.support.store_posts import open_store, put, row, spans

WRITERS = 32
RESTART = 3


def load(folder: Path, acks: Path, seed: int) -> None:
    """Each writer posts batches, most of them several times, and notes the ids once they are acknowledged."""
    store = open_store(folder, compact_segments=3, wal_segment_bytes=20_000)
    notes = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for writer in range(WRITERS):
        threading.Thread(target=_write, args=(store, notes, seed, writer), daemon=True).start()
    while True:
        store.seal()
        store.compact()


def _write(store: Store, notes: int, seed: int, writer: int) -> None:
    rng = np.random.default_rng((seed, writer))
    job, serial, earlier = f"job{writer % 3}", 0, []
    while True:
        first = (seed << 40) + (writer << 30) + serial + 1
        size = int(rng.integers(1, 20))
        serial += size
        batch = [row(first + k, k, None if k % 7 == 0 else k + 5, rank=writer, job=job) for k in range(size)]
        for _ in range(int(rng.integers(1, 9))):
            put(store, batch)
        os.write(notes, "".join(f"{job} {first + k}\n" for k in range(size)).encode())
        earlier.append(batch)
        put(store, earlier[int(rng.integers(len(earlier)))])


def sweep(folder: Path, notes: Path, code: int, stride: int, first: int) -> None:
    """Puts, seals and compacts while the n-th call fails, for every `stride`-th n from `first` on; what was acknowledged stays."""
    shim = ctypes.CDLL(None)
    store = open_store(folder, compact_segments=2)
    acknowledged = [int(line) for line in notes.read_text().split()] if notes.exists() else []
    span, reopened = 10 * first, 0
    for nth in range(first, 2000, stride):
        shim.crossrank_fail(nth, code)
        for _ in range(2):
            span += 1
            with contextlib.suppress(StoreUnavailable):
                put(store, [row(span)])
                acknowledged.append(span)
            with contextlib.suppress(StoreUnavailable):
                store.seal()
                store.compact()
        left = shim.crossrank_left()
        shim.crossrank_fail(0, 0)
        stored = [s[1] for s in spans(store.snapshot("j").events())] if acknowledged else []
        assert set(acknowledged) <= set(stored), f"call {nth}: {set(acknowledged) - set(stored)} lost"
        assert len(stored) == len(set(stored)), f"call {nth}: doubled"
        assert store.snapshot("j").partial == () if acknowledged else True, nth
        try:
            span += 1
            put(store, [row(span)])
        except StoreUnavailable:  # a failed sync: a restart reads back what is there
            store.close()
            store = open_store(folder, compact_segments=2)
            reopened += 1
            put(store, [row(span)])
        acknowledged.append(span)
        notes.write_text("\n".join(map(str, acknowledged)))
        sys.stderr.write(f"{nth} ")
        try:
            store.seal()
        except StoreUnavailable:
            store.close()
            sys.stdout.write(f"restart from {nth + stride}\n")
            sys.exit(RESTART)
        if left > 0:
            store.close()
            sys.stdout.write(f"{nth} calls in all, {reopened} restarts\n")
            return
    raise CrossrankError("the sweep did not reach the last call")


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        sweep(Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
