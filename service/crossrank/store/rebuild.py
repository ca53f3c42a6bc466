"""Makes a new catalog out of the segments alone, when catalog.duckdb is lost or damaged.

Every segment is read from end to end (see `scrub`). What is whole is registered, what is not is moved to `quarantine/`, and so is
the old catalog. Segments that a compaction has replaced are moved there too. The log is not touched: the next start replays all
that is in it, and recognises the events that are in segments already.

What segments do not know: topologies and rejects that came behind a job's last event, and jobs without events. They are taken
from the old catalog as far as it can still be read. A deletion or an expiry that was cut short may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crossrank.errors import StoreUnavailable
from crossrank.store.facts import JobFacts
from crossrank.store.lake import Contents, Lake
from crossrank.store.lock import FolderLock
from crossrank.store.peek import peek
from crossrank.store.scrub import NewerSegment, is_replaced, move_away, scrub
from crossrank.store.segment import SEGMENT_FOLDER, SegmentInfo
from crossrank.store.wal import Wal, sync_folder

_NEW: Final = "rebuilding.duckdb"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did. set_aside: file and reason."""

    segments: int
    rows: int
    jobs: int
    set_aside: tuple[tuple[str, str], ...]


def rebuild(data: Path, *, now_ns: int, progress: Callable[[int, int], None]) -> Rebuilt:
    """Replaces the catalog of a data folder; progress is told how many of the files are read.

    Raises StoreUnavailable, with nothing changed, when a service runs on the folder or a newer release wrote it.
    """
    lock = FolderLock(data, started_ns=now_ns)
    try:
        return _rebuild(data, now_ns, progress)
    finally:
        lock.release()


def _rebuild(data: Path, now_ns: int, progress: Callable[[int, int], None]) -> Rebuilt:
    Wal(data)  # refuses a newer log
    read = peek(data)
    old = read[0] if read is not None else None
    lake = data / "lake"
    paths = sorted(f"{SEGMENT_FOLDER}/{p.name}" for p in (lake / SEGMENT_FOLDER).glob("*.parquet"))
    whole, aside = _read_all(lake, paths, progress)
    infos = [info for info, _ in whole]
    aside |= {i.path: "a compacted segment holds its rows" for i in infos if is_replaced(i, infos)}
    kept = [info for info in infos if info.path not in aside]
    facts = _newest_facts([f for i, f in whole if i.path not in aside], old)
    numbers = [int(Path(path).stem) for path in paths if Path(path).stem.isdigit()]
    for left in data.glob(f"{_NEW}*"):
        left.unlink()
    for path in aside:
        move_away(lake / path, data / "quarantine")
    new = Lake(data, now_ns=now_ns, catalog=_NEW)
    try:
        # Floor 1: every log file counts. What of it is in segments is recognised when it is replayed.
        new.hand_over(kept, facts, wal_floor=1, next_segment=max(numbers, default=0) + 1)
    finally:
        new.close()
    for name in ("catalog.duckdb", "catalog.duckdb.wal"):
        if (data / name).exists():
            move_away(data / name, data / "quarantine")
    for name in sorted(p.name for p in data.glob(f"{_NEW}*")):
        (data / name).rename(data / name.replace(_NEW, "catalog.duckdb"))
    for folder in (lake / SEGMENT_FOLDER, data / "quarantine", data):
        if folder.exists():
            sync_folder(folder)
    return Rebuilt(len(kept), sum(i.rows for i in kept), len(facts), tuple(sorted(aside.items())))


def _read_all(
    lake: Path, paths: Sequence[str], progress: Callable[[int, int], None]
) -> tuple[list[tuple[SegmentInfo, JobFacts]], dict[str, str]]:
    """The segments that are whole, and why the others are not."""
    whole, damaged = [], dict[str, str]()
    for count, path in enumerate(paths):
        progress(count, len(paths))
        try:
            whole.append(scrub(lake, path))
        except NewerSegment as fault:
            raise StoreUnavailable(f"{fault}; use a newer crossrank. Nothing was changed.") from fault
        except ValueError as fault:
            damaged[path] = str(fault)
    return whole, damaged


def _newest_facts(known: Sequence[JobFacts], old: Contents | None) -> list[JobFacts]:
    """Of each job the facts of its latest version; those of the old catalog, where it can be read, win a tie."""
    newest: dict[str, JobFacts] = {}
    for facts in (*known, *(old.jobs if old is not None else ())):
        if facts.job not in newest or facts.version >= newest[facts.job].version:
            newest[facts.job] = facts
    return [newest[job] for job in sorted(newest)]
