"""One process may hold as many clients as a large job has ranks: nothing of any is lost."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import crossrank_client as cr
from tests.support.server import Service, derived


def test_a_thousand_clients_of_one_process_lose_nothing(tmp_path: Path):
    ranks, spans = 1024, 5
    with Service(tmp_path / "data") as service:
        clients: list[cr.Client | None] = [None] * ranks
        lost: list[object] = []

        def rank(number: int) -> None:
            client = clients[number] = cr.Client(
                service.url, "many", rank=number, host=f"h{number // 8}", spool_dir=tmp_path / "spool"
            )
            for n in range(spans):
                with client.span("work", n=n):
                    pass
            if not client.flush(240):
                lost.append((number, client.stats()))
            client.shutdown()

        threads = [threading.Thread(target=rank, args=(n,)) for n in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lost == []
        stats = [client.stats() for client in clients if client is not None]
        assert [s["dropped"] for s in stats if s["dropped"]] == []
        with service.client() as asking:
            derived(asking, "many")
            summary = asking.get("/v1/jobs/many").json()
        totals = Counter({name: sum(s[name] for s in stats) for name in ("posts", "retries", "accepted")})
        print(totals)
        assert summary["events"]["by_kind"]["other"] == ranks * spans
