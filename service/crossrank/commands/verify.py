"""`crossrank verify`: tells whether everything in a data folder is as it was written."""

from __future__ import annotations

from pathlib import Path

from crossrank.commands.figures import count, plain
from crossrank.commands.reading import reading
from crossrank.errors import Damaged
from crossrank.store.verify import verify
from crossrank.timesource import wall_ns


def run_verify(data: Path) -> None:
    """Prints what was read and what is wrong. Raises Damaged when something is, other CrossrankErrors when it cannot be said."""
    with reading("verifying") as progress:
        report = verify(data, now_ns=wall_ns(), progress=progress)
    print(
        f"{count(report.segments, 'segment')} with {count(report.rows, 'event')}, "
        f"{count(report.log_files, 'log file')} with {count(report.log_records, 'record')}"
    )
    for note in report.notes:
        print(f"note: {plain(note, 400)}")
    for fault in report.damage:
        print(f"damage: {plain(fault, 400)}")
    if report.damage:
        raise Damaged(f"{data}: {count(len(report.damage), 'damaged part')}", damage=report.damage)
    print("no damage")
