"""Power cuts and failing disks, met by a real process whose calls to the disk go through a shim."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crossrank.counters import Counters
from crossrank.store.verify import verify
from tests.support.campaigns import record
from tests.support.disk import after_power_cut, seed_shadow, shim
from tests.support.store_child import RESTART
from tests.support.store_posts import T0, counted, open_store, put, row

ROOT = Path(__file__).resolve().parents[2]
needs_shim = pytest.mark.skipif(shim() is None, reason="no C compiler here: the shim cannot be built")


def child(*words, **more):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'service'}", **({"LD_PRELOAD": str(shim())} if more else {}), **more}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.store_child", *map(str, words)],
        env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run_until(process, acks, lines):
    """Waits until that many acknowledgements are noted."""
    while process.poll() is None:
        if acks.exists() and acks.read_bytes().count(b"\n") >= lines:
            return
        os.sched_yield()
    raise AssertionError(process.stdout.read())


def check(folder, acks):
    """Everything acknowledged is there once; returns how many events that are."""
    acknowledged: dict[str, set[int]] = {}
    for line in acks.read_text().splitlines():
        job, span = line.split()
        acknowledged.setdefault(job, set()).add(int(span))
    assert verify(folder, now_ns=T0, progress=lambda *_: None).damage == []
    counters = Counters()
    store = open_store(folder, compact_segments=10**6, counters=counters)
    assert counted(counters, "wal_damaged_records") == counted(counters, "wal_undecodable_posts") == 0
    for job, wanted in acknowledged.items():
        snapshot = store.snapshot(job)
        ids = [int.from_bytes(i, "big") for i in snapshot.events(["span_id"]).column("span_id").to_pylist()]
        assert snapshot.partial == ()
        assert len(ids) == len(set(ids)), "doubled"
        assert wanted <= set(ids), f"{len(wanted - set(ids))} acknowledged events of {job} lost"
    total = store.stats()
    files = len(list((folder / "lake" / "main" / "events").iterdir()))
    assert files == total["segments"], "orphans"
    store.close()
    return sum(map(len, acknowledged.values()))


def power_cycles(tmp_path, cycles, seed):
    print("seed", seed)
    rng, acks, folder = np.random.default_rng(seed), tmp_path / "acks", tmp_path / "data0"
    store = open_store(folder)
    store.close()
    for cycle in range(cycles):
        shadow = tmp_path / f"shadow{cycle}"
        seed_shadow(folder, shadow)
        before = acks.read_bytes().count(b"\n") if acks.exists() else 0
        process = child("load", folder, acks, cycle + 1, CROSSRANK_CUT_ROOT=str(folder), CROSSRANK_CUT_SHADOW=str(shadow))
        run_until(process, acks, before + int(rng.integers(300, 4000)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = after_power_cut(folder, shadow, tmp_path / f"data{cycle + 1}")
        shutil.rmtree(folder)
        shutil.rmtree(shadow)
        folder = after
        acknowledged = check(folder, acks)
    assert acknowledged > 0
    return acknowledged


@needs_shim
def test_a_power_cut_loses_nothing_acknowledged(tmp_path):
    power_cycles(tmp_path, 1, 41)


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("part", range(1, 5))
def test_a_hundred_power_cuts_lose_nothing_acknowledged(tmp_path, part):
    acknowledged = power_cycles(tmp_path, 25, 41 + part)
    record(
        "power cuts: all that was not synced is dropped, seals and compactions under way",
        f"25 cuts, {acknowledged:,} events acknowledged, 0 lost, 0 doubled",
        part=(part, 4),
    )


@needs_shim
def test_the_shim_forgets_what_was_not_synced(tmp_path):
    """The model is only worth something if it does lose: a file without sync is empty, a name without folder sync is gone."""
    root, shadow = tmp_path / "root", tmp_path / "shadow"
    root.mkdir()
    seed_shadow(root, shadow)
    script = (
        "import os, sys; r = sys.argv[1]\n"
        "for name in 'ab': open(f'{r}/{name}', 'w').write(name)\n"
        "f = os.open(f'{r}/a', os.O_RDWR); os.fsync(f); os.write(f, b'later')\n"
        "d = os.open(r, os.O_RDONLY); os.fsync(d)\n"
        "g = os.open(f'{r}/c', os.O_RDWR | os.O_CREAT); os.write(g, b'c'); os.fsync(g)\n"
    )
    env = {**os.environ, "LD_PRELOAD": str(shim()), "CROSSRANK_CUT_ROOT": str(root), "CROSSRANK_CUT_SHADOW": str(shadow)}
    subprocess.run([sys.executable, "-c", script, root], env=env, check=True)
    left = after_power_cut(root, shadow, tmp_path / "left")
    assert {p.name: p.read_text() for p in left.iterdir()} == {"a": "a", "b": ""}


def swept(tmp_path, code, stride):
    """Also inside DuckDB and the Parquet writer; the process finds out for itself, see `store_child.sweep`."""
    folder = tmp_path / "data"
    open_store(folder).close()
    first, restarts = 1, 0
    while True:
        process = child("sweep", folder, tmp_path / "notes", code, stride, first, CROSSRANK_CUT_ROOT=str(folder))
        said = process.communicate()[0]
        if process.returncode != RESTART:
            break
        first, restarts = int(re.search(r"restart from (\d+)", said)[1]), restarts + 1
        assert restarts < 100, said
    assert process.returncode == 0, said
    calls = int(re.search(r"(\d+) calls in all", said)[1])
    assert calls > 60, said
    assert verify(folder, now_ns=T0, progress=lambda *_: None).damage == []
    store = open_store(folder)
    assert put(store, [row(10**6)]).accepted == 1
    store.close()
    return calls


@needs_shim
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_failing_now_and_then_loses_nothing(tmp_path, code):
    swept(tmp_path, code, 113)


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_failing_at_any_call_of_any_library_loses_nothing(tmp_path, code):
    calls = swept(tmp_path, code, 1)
    record(
        f"{errno.errorcode[code]} at the n-th call to the disk, for every n, also inside DuckDB and the Parquet writer",
        f"each of {calls} calls, 0 lost",
    )
