"""Every route, asked with whatever its description allows and forbids, answers; it never has a fault of its own."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

JOB = "asked"


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    config = JobConfig(job=JOB, dp=2, tp=1, pp=2, steps=2, microbatches=1, ranks_per_host=1)
    with InProcess(tmp_path_factory.mktemp("data")) as service:
        service.post("/v1/events", encode.ndjson(simulate(config, seed=2).events), "application/x-ndjson")
        service.derive(JOB)
        yield schemathesis.openapi.from_asgi("/openapi.json", service.api)


def test_no_question_is_a_fault(description: schemathesis.BaseSchema) -> None:
    asked = 0
    for found in description.get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/live"):
            continue  # a stream without an end: tests/app/test_view_live.py

        @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            if case.method == "GET" and "job" in (case.path_parameters or {}):
                case.path_parameters["job"] = JOB
            case.call_and_validate(checks=[not_a_server_error, response_schema_conformance])

        ask()
        asked += 1
    assert asked >= 15
