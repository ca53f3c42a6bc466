"""Numbers of a posted topology are ranks: what no rank can have is refused with the field's name, and breaks no later answer."""

from pathlib import Path

import pytest

from tests.support.inprocess import InProcess


@pytest.mark.parametrize("wrong", [2**63, 2**31, -1])
def test_ranks_that_cannot_be_are_refused(tmp_path: Path, wrong: int):
    with InProcess(tmp_path) as service:
        for body in (
            {"groups": [{"name": "world", "ranks": [0, wrong]}]},
            {"ranks": [{"rank": wrong}]},
            {"ranks": [{"rank": 0, "coords": {"dp": wrong if wrong > 0 else -(2**40)}}]},
        ):
            answer = service.request("POST", "/v1/jobs/j/topology", json=body)
            assert answer.status_code == 400, answer.text
        assert service.request("GET", "/v1/jobs/j").status_code == 404, "nothing was stored"
