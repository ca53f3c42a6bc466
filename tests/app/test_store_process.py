"""The store in real service processes: killed under load, stopped under load, and two of them on one folder."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.support.campaigns import record
from tests.support.server import Service, derived

WRITERS = 32
T0 = 1_800_000_000_000_000_000


def event(rank, serial):
    start = T0 + serial * 1_000_000
    return (
        f'{{"job":"crash","rank":{rank},"host":"h{rank}","name":"forward","kind":"compute","step":{serial // 50},'
        f'"start_ns":{start},"end_ns":{start + 500_000},"span_id":"{rank:04x}{serial:012x}"}}'
    )


class Writer(threading.Thread):
    """Posts batches, each one to eight times and some earlier ones again, until the service is gone."""

    def __init__(self, rank, cycle, url, acks, seed):
        super().__init__(daemon=True)
        self.rank, self.url, self.acks = rank, url, acks
        self.serial = cycle * 1_000_000 + 1
        self.rng = np.random.default_rng((seed, rank, cycle))
        self.acked, self.refused, self.other = set(), 0, []

    def run(self):
        earlier = []
        with httpx.Client(base_url=self.url, timeout=30) as client:
            while True:
                size = int(self.rng.integers(1, 20))
                first, self.serial = self.serial, self.serial + size
                body = "\n".join(event(self.rank, first + i) for i in range(size))
                earlier.append(body)
                bodies = [body] * int(self.rng.integers(1, 9)) + [earlier[int(self.rng.integers(len(earlier)))]]
                headers = {"Content-Type": "application/x-ndjson"}
                try:
                    statuses = [client.post("/v1/events", content=b, headers=headers).status_code for b in bodies]
                except httpx.TransportError:
                    return
                if 200 in statuses[:-1]:  # one answer is enough, the others may have been refused
                    self.acked |= {f"{self.rank:04x}{first + i:012x}" for i in range(size)}
                    self.acks.release()
                if set(statuses) <= {200, 503}:
                    self.refused += 503 in statuses
                    if self.refused > 50:
                        return
                else:
                    self.other.append(statuses)
                    return


def loaded(service, cycle, batches, seed):
    """Writers on a running service, once they have had that many batches acknowledged."""
    acks = threading.Semaphore(0)
    writers = [Writer(rank, cycle, service.url, acks, seed) for rank in range(WRITERS)]
    for w in writers:
        w.start()
    for _ in range(batches):
        assert acks.acquire(timeout=120)
    return writers


def joined(writers):
    acked = set()
    for w in writers:
        w.join(60)
        assert w.other == []
        acked |= w.acked
    return acked


def stored(client, job):
    """All span ids of a job, by way of its export."""
    derived(client, job)
    body = client.get(f"/v1/jobs/{job}/export", params={"format": "arrow"}).content
    return [i.hex() for i in pa.ipc.open_stream(body).read_all().column("span_id").to_pylist()]


def kill_cycles(folder, cycles, seed):
    print("seed", seed)
    rng, acked = np.random.default_rng(seed), set()
    for cycle in range(cycles):
        service = Service(folder).start()
        writers = loaded(service, cycle, int(rng.integers(20, 120)), seed)
        service.kill()
        acked |= joined(writers)
    with Service(folder) as service, service.client() as client:
        found = stored(client, "crash")
        assert len(found) == len(set(found)), "doubled"
        assert acked <= set(found), f"{len(acked - set(found))} lost"
        assert len(set(found) - acked) <= cycles * WRITERS * 20, "only what was in flight may be there without an answer"
        assert client.get("/readyz").status_code == 200
    return len(acked)


def test_kill_minus_nine_with_32_writers_and_resends(tmp_path):
    assert kill_cycles(tmp_path / "data", 2, 7) > 0


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, 9))
def test_kill_minus_nine_200_times_with_32_writers_and_resends(tmp_path, part):
    acknowledged = kill_cycles(tmp_path / "data", 25, 8 + part)
    assert acknowledged > 0
    record(
        "kill -9 at random moments, 32 writers, each batch sent 1 to 8 times",
        f"25 kills, {acknowledged:,} events acknowledged, 0 lost, 0 doubled",
        part=(part, 8),
    )


def test_sigterm_under_load_loses_nothing_and_a_second_one_changes_nothing(tmp_path):
    service = Service(tmp_path / "data").start()
    writers = loaded(service, 0, 40, 9)
    os.kill(service.pid, signal.SIGTERM)
    assert service.stop() == 0
    acked = joined(writers)
    assert len(list((tmp_path / "data" / "lake" / "main" / "events").iterdir())) == 1, "everything was sealed"
    with Service(tmp_path / "data") as service, service.client() as client:
        found = stored(client, "crash")
        assert len(found) == len(set(found))
        assert acked <= set(found)


def test_a_second_process_is_told_who_holds_the_folder_and_harms_nothing(tmp_path):
    folder = tmp_path / "data"
    with Service(folder) as service, service.client() as client:
        body = "\n".join(event(0, i) for i in range(1, 10))
        client.post("/v1/events", content=body, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
        before = {p: p.stat().st_mtime_ns for p in Path(folder).rglob("*.parquet")}
        for words in (["serve", "--port", "0"], ["verify"], ["rebuild"]):
            done = subprocess.run(
                [sys.executable, "-m", "crossrank.cli", *words, "--data", str(folder)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 5, done.stderr
            assert f'"pid": {service.pid}' in done.stderr
        assert {p: p.stat().st_mtime_ns for p in Path(folder).rglob("*.parquet")} == before
        assert len(stored(client, "crash")) == 9
