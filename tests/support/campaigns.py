"""What a long campaign has met goes into docs/operations.md, written by the run itself: into the last column of its row."""

from __future__ import annotations

import fcntl
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def record(campaign: str, met: str, page: Path = PAGE) -> None:
    """Replaces the last cell of the row that begins with this campaign. Raises KeyError when there is no such row."""
    with page.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # campaigns run side by side
        lines = file.read().splitlines()
        at = [k for k, line in enumerate(lines) if line.startswith(f"| {campaign} |")]
        if len(at) != 1:
            raise KeyError(campaign)
        name, demand = lines[at[0]].split(" | ")[:2]
        lines[at[0]] = f"{name} | {demand} | {met} |"
        file.seek(0)
        file.truncate()
        file.write("\n".join(lines) + "\n")
