"""Test session set-up shared by the whole suite: deterministic hypothesis profile, seeds printed, recordings when present."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

REPOSITORY = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long campaigns are left out unless asked for by `-m long`."""
    if "long" in (config.option.markexpr or ""):
        return
    kept = [item for item in items if "long" not in item.keywords]
    dropped = [item for item in items if "long" in item.keywords]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Real recordings: the full set beside the checkout when it is there, else the committed sample."""
    beside = REPOSITORY.parent / "shared" / "data"
    return beside if beside.is_dir() else REPOSITORY / "tests" / "recordings"
