"""Answers follow a running job by themselves: nobody asks for a derivation."""

from pathlib import Path

from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import Delivery, deliver
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.server import Service

MOST_LOOKS = 20_000


def test_answers_follow_the_events(tmp_path: Path) -> None:
    config = JobConfig(job="live", dp=4, tp=1, pp=1, steps=16, microbatches=1, ranks_per_host=2)
    simulated = simulate(config, (SlowCompute(rank=3, phase="forward", steps=(4, 15), extra_ns=9_000_000),), seed=8)
    batches = deliver(simulated, Delivery(every_ns=100_000_000))
    with Service(tmp_path) as service, service.client() as client:
        seen: list[int] = []
        for part in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
            for batch in part:
                answer = client.post(
                    "/v1/events", content=encode.ndjson(batch.events), headers={"Content-Type": encode.NDJSON_TYPE}
                )
                assert answer.status_code == 200, answer.text
            stored = sum(b.events.num_rows for b in part) + (seen[-1] if seen else 0)
            for _ in range(MOST_LOOKS):
                if client.get("/v1/jobs/live").json()["events"]["stored"] == stored:
                    break
            else:
                raise AssertionError("the answers did not follow")
            seen.append(stored)
        first = client.get("/v1/jobs/live/stragglers").json()["stragglers"][0]
        assert (first["rank"], first["cause"]["name"]) == (3, "forward")
        finding = client.get("/v1/jobs/live").json()["findings"][0]
        assert finding["class"] == "straggler"
        assert "Rank 3" in finding["sentence"]
