"""The client's own wheel: its modules, its command, no dependency."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[2] / "client"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from a copy of the source and unpacked."""
    source, target = tmp_path_factory.mktemp("client"), tmp_path_factory.mktemp("unpacked")
    shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("__pycache__", "dist"), dirs_exist_ok=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True, capture_output=True)
    (wheel,) = (source / "dist").glob("crossrank_client-*-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def test_the_wheel_holds_the_client_and_nothing_else(unpacked: Path):
    modules = {str(p.relative_to(CLIENT)) for p in (CLIENT / "crossrank_client").rglob("*.py")}
    assert {str(p.relative_to(unpacked)) for p in unpacked.rglob("*.py")} == modules
    assert {p.name.split("-")[0] for p in unpacked.iterdir()} == {"crossrank_client"}


def test_installing_it_installs_nothing_else(unpacked: Path):
    (folder,) = unpacked.glob("*.dist-info")
    required = [line for line in (folder / "METADATA").read_text().splitlines() if line.startswith("Requires-Dist:")]
    assert [line for line in required if "extra ==" not in line] == []
    assert "crossrank-agent = crossrank_client.agent.main:main" in (folder / "entry_points.txt").read_text()


def test_it_works_from_the_wheel_alone(unpacked: Path):
    script = "import crossrank_client as cr, crossrank_client.agent.main; print(cr.__file__)"
    env = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run([sys.executable, "-S", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(unpacked))
