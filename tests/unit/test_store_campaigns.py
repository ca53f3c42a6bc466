"""Campaigns write what they met into the operations page; every row they name is there."""

import re
from pathlib import Path

import pytest

from tests.support.campaigns import PAGE, record

TABLE = "# Page\n\n| campaign | demanded | met |\n| --- | --- | --- |\n| kills | none lost | not run |\n| cuts | none lost | not run |\n"


def test_a_run_replaces_its_own_cell_only(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(TABLE)
    record("cuts", "100 cuts, 0 lost", page=page)
    for part, met in ((2, "25 kills"), (1, "24 kills"), (2, "26 kills")):
        record("kills", met, part=(part, 8), page=page)
    lines = page.read_text().splitlines()
    assert lines[4:] == [
        "| kills | none lost | part 1 of 8: 24 kills; part 2 of 8: 26 kills |",
        "| cuts | none lost | 100 cuts, 0 lost |",
    ]
    with pytest.raises(KeyError, match="floods"):
        record("floods", "none", page=page)


def test_every_campaign_has_its_row():
    rows = {line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    folder = Path(__file__).resolve().parents[1]
    named = [
        name
        for path in (
            *folder.glob("app/test_store*.py"),
            *folder.glob("unit/test_store_damage.py"),
            *folder.glob("properties/test_store*.py"),
        )
        for name in re.findall(r'record\(\s*f?"([^"]+)"', path.read_text())
    ]
    assert len(named) == 6
    for name in named:
        wanted = [name.replace("{errno.errorcode[code]}", code) for code in ("ENOSPC", "EIO")]
        assert set(wanted) <= rows, name
