"""The wheel holds what the code needs at run time, found without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The wheel, built offline from a copy of the source and unpacked."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("unpacked")
    for name in ("service", "schemas", "migrations"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True, capture_output=True)
    (wheel,) = (source / "dist").glob("crossrank-*-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(target)
    return target


@pytest.mark.parametrize("name", ["schemas", "migrations"])
def test_the_wheel_ships_every_contract_and_migration(unpacked, name):
    shipped = {p.name: p.read_bytes() for p in (unpacked / "crossrank" / "_shipped" / name).rglob("*") if p.is_file()}
    ours = {p.name: p.read_bytes() for p in (ROOT / name).rglob("*") if p.is_file()}
    assert shipped == ours
    assert shipped


@pytest.mark.parametrize("name", ["schemas", "migrations"])
def test_assets_are_found_in_the_unpacked_wheel(unpacked, name):
    script = f"from crossrank._assets import asset_folder; print(asset_folder({name!r}))"
    # -P and an explicit path: neither the checkout nor the editable install may answer.
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(unpacked / "crossrank" / "_shipped" / name), done.stderr


def test_the_wheel_holds_the_whole_package_and_nothing_else(unpacked):
    modules = {str(p.relative_to(ROOT / "service")) for p in (ROOT / "service" / "crossrank").rglob("*.py")}
    packed = {str(p.relative_to(unpacked)) for p in (unpacked / "crossrank").rglob("*.py")}
    assert packed == modules
    assert {p.name.split("-")[0] for p in unpacked.iterdir()} == {"crossrank"}


def test_the_wheel_ships_every_file_of_the_page(unpacked):
    static = Path("crossrank/web/static")
    ours = {p.relative_to(ROOT / "service") for p in (ROOT / "service" / static).rglob("*") if p.is_file()}
    shipped = {p.relative_to(unpacked) for p in (unpacked / static).rglob("*") if p.is_file()}
    assert shipped == ours
    assert static / "index.html" in shipped


def test_the_entry_point_is_the_command(unpacked):
    (entry_points,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "crossrank = crossrank.cli:main" in entry_points.read_text()
