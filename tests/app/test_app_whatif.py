"""A prediction over REST: what fixing the slow rank would save is what the simulator says it costs."""

from pathlib import Path

from crossrank.api.whatif_routes import WhatIfAnswer
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from crossrank.simulate.truth import true_cost
from tests.support.inprocess import InProcess

CONFIG = JobConfig(job="w", dp=4, tp=2, pp=1, steps=10, microbatches=2, ranks_per_host=2)
FAULTS = (SlowCompute(rank=3, phase="forward", steps=(2, 8), extra_ns=10_000_000),)
SEED = 5


def test_fixing_the_slow_rank_saves_what_it_costs(tmp_path: Path) -> None:
    cost = true_cost(CONFIG, FAULTS, SEED)
    with InProcess(tmp_path) as service:
        service.post("/v1/events", encode.ndjson(simulate(CONFIG, FAULTS, seed=SEED).events), encode.NDJSON_TYPE)
        service.derive("w")
        fixed = {"changes": [{"rank": 3, "name": "forward", "from": 2, "to": 8, "as": "median"}]}
        answer = service.request("POST", "/v1/jobs/w/whatif", json=fixed)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        WhatIfAnswer.model_validate(found)
        assert found["replay_error"] == 0
        assert abs(found["saving_ns"] - cost.total_ns) < 0.01 * found["baseline_ns"]
        for bad in (
            {"changes": []},
            {"changes": [{"rank": 3}]},
            {"changes": [{"scale": -1}]},
            {"changes": [{"kind": "x", "scale": 1}]},
            {},
        ):
            assert service.request("POST", "/v1/jobs/w/whatif", json=bad).status_code == 400, bad
