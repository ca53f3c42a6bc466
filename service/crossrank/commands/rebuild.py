"""`crossrank rebuild`: a new catalog from the segments of a data folder."""

from __future__ import annotations

from pathlib import Path

from crossrank.commands.figures import count, plain
from crossrank.commands.reading import reading
from crossrank.errors import NotFound
from crossrank.store.rebuild import rebuild
from crossrank.timesource import wall_ns


def run_rebuild(data: Path) -> None:
    """Prints what the new catalog holds and what had to be set aside. Raises CrossrankError."""
    if not (data / "lake").is_dir():
        raise NotFound(f"{data} holds no segments to make a catalog from", field="data")
    with reading("reading segments") as progress:
        done = rebuild(data, now_ns=wall_ns(), progress=progress)
    print(f"new catalog: {count(done.segments, 'segment')} with {count(done.rows, 'event')} of {count(done.jobs, 'job')}")
    for path, reason in done.set_aside:
        print(f"set aside in {data / 'quarantine'}: {plain(path, 200)}: {plain(reason, 200)}")
