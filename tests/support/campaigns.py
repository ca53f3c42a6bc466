"""What a long campaign has met goes into docs/operations.md, written by the run itself: into the last column of its row."""

from __future__ import annotations

import fcntl
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def record(campaign: str, met: str, *, part: tuple[int, int] | None = None, page: Path = PAGE) -> None:
    """Replaces the last cell of the row that begins with this campaign; of a campaign in parts (number, of how many) only that part.

    Raises KeyError when there is no such row.
    """
    with page.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # campaigns run side by side
        lines = file.read().splitlines()
        at = [k for k, line in enumerate(lines) if line.startswith(f"| {campaign} |")]
        if len(at) != 1:
            raise KeyError(campaign)
        name, demand, before = lines[at[0]].removesuffix(" |").split(" | ")
        cell = met if part is None else _with_part(before, met, *part)
        lines[at[0]] = f"{name} | {demand} | {cell} |"
        file.seek(0)
        file.truncate()
        file.write("\n".join(lines) + "\n")


def _with_part(before: str, met: str, number: int, count: int) -> str:
    parts = {p.split(": ")[0]: p for p in before.split("; ") if ": " in p}
    parts[f"part {number} of {count}"] = f"part {number} of {count}: {met}"
    return "; ".join(parts[name] for name in sorted(parts, key=lambda n: (len(n), n)))
