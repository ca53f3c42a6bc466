"""kill -9 in the middle of load, restart, and again: every acknowledged event is there, once."""

import threading
from pathlib import Path

import httpx
import numpy as np

from tests.support.server import Service, derived

SEED = 20261129
WRITERS, CYCLES, ACKS_A_CYCLE = 4, 3, 40


def event(rank: int, serial: int) -> str:
    start = 1_800_000_000_000_000_000 + serial * 1_000_000
    return (
        f'{{"job":"crash","rank":{rank},"host":"h{rank}","name":"forward","kind":"compute","step":{serial // 50},'
        f'"start_ns":{start},"end_ns":{start + 500_000},"span_id":"{rank:04x}{serial:012x}"}}'
    )


class Writer(threading.Thread):
    """Posts batches until the service dies; notes which span ids were acknowledged. Resends some batches on purpose."""

    def __init__(self, rank: int, first: int, url: str, acknowledged: threading.Semaphore) -> None:
        super().__init__()
        self.rank, self.serial, self.url, self.acks = rank, first, url, acknowledged
        self.acked: set[str] = set()
        self.rng = np.random.default_rng((SEED, rank, first))

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as client:
            while True:
                size = int(self.rng.integers(1, 30))
                body = "\n".join(event(self.rank, self.serial + i) for i in range(size))
                for _ in range(1 + int(self.rng.random() < 0.3)):
                    try:
                        answer = client.post("/v1/events", content=body, headers={"Content-Type": "application/x-ndjson"})
                    except httpx.TransportError:
                        return
                    assert answer.status_code == 200, answer.text
                    assert answer.json()["rejected"] == 0
                self.acked |= {f"{self.rank:04x}{self.serial + i:012x}" for i in range(size)}
                self.serial += size
                self.acks.release()


def test_every_acknowledged_event_survives_kill_minus_nine_once(tmp_path: Path) -> None:
    print("seed", SEED)
    acked: set[str] = set()
    first = [1] * WRITERS  # an id of zeros is no id
    for _ in range(CYCLES):
        service = Service(tmp_path / "data").start()
        acknowledged = threading.Semaphore(0)
        writers = [Writer(rank, first[rank], service.url, acknowledged) for rank in range(WRITERS)]
        for w in writers:
            w.start()
        for _ in range(ACKS_A_CYCLE):
            assert acknowledged.acquire(timeout=60)
        service.kill()
        for w in writers:
            w.join(60)
            acked |= w.acked
            first[w.rank] = w.serial + 1000
    with Service(tmp_path / "data") as service, service.client() as client:
        derived(client, "crash")
        stored: list[str] = []
        cursor = None
        while True:
            page = client.get("/v1/jobs/crash/events", params={"limit": 500, **({"cursor": cursor} if cursor else {})}).json()
            stored += [e["span_id"] for e in page["events"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(stored) == len(set(stored)), "an event was stored twice"
        assert acked <= set(stored), "an acknowledged event was lost"
        unacknowledged = set(stored) - acked
        assert len(unacknowledged) <= CYCLES * WRITERS * 30, "only batches in flight at a kill may be there without an answer"
        assert client.get("/readyz").status_code == 200
