"""One process that has PyTorch and one service for all jobs of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.server import Service
from tests.support.torch_job import Trainer


@pytest.fixture(scope="session")
def trainer() -> Iterator[Trainer]:
    started = Trainer()
    yield started
    started.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened
