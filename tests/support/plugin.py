"""Test session set-up shared by the whole suite: deterministic hypothesis profile, seeds printed, recordings when present."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

REPOSITORY = Path(__file__).resolve().parents[2]

# What a command prints depends on its terminal; the suite's is the same on every machine, whatever the caller's shell says.
TERMINAL = {"COLUMNS": "120", "LINES": "40", "TERM": "dumb"}
STYLE = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM")


def pytest_configure() -> None:
    """Gives the session, its workers and every process they start one terminal."""
    os.environ.update(TERMINAL)
    for name in STYLE:
        os.environ.pop(name, None)


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
