"""Holds a data folder against itself, changing nothing: segments, catalog, log, and that they agree.

    damage   something that was stored is not there, or not as it was written
    note     left by a kill or a deletion, and cleared by the next start

The folder must not be in use, so that nothing moves while it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crossrank.errors import NotFound, StoreUnavailable
from crossrank.store.lock import FolderLock
from crossrank.store.peek import peek
from crossrank.store.scrub import NewerSegment, scrub
from crossrank.store.segment import SEGMENT_FOLDER, SegmentInfo
from crossrank.store.wal import Wal
from crossrank.store.wal_format import Damaged


@dataclass(slots=True)
class Report:
    """What was looked at and found. Each damage and note is a sentence that names the file."""

    segments: int = 0
    rows: int = 0
    log_files: int = 0
    log_records: int = 0
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(data: Path, *, now_ns: int, progress: Callable[[int, int], None]) -> Report:
    """Reads everything in a data folder; progress is told how many of the segments are read.

    Raises NotFound when it is no data folder, and StoreUnavailable when a service runs on it or a newer release wrote it.
    """
    if not any((data / name).exists() for name in ("catalog.duckdb", "wal", "lake")):
        raise NotFound(f"{data} is not a data folder of this service", field="data")
    lock = FolderLock(data, started_ns=now_ns)
    try:
        report = Report()
        _check_log(Wal(data), report)
        _check_lake(data, report, progress)
        kept = len(list((data / "quarantine").glob("*")))
        if kept:
            report.notes.append(f"quarantine holds {kept} files for a person to look at")
        return report
    finally:
        lock.release()


def _check_log(wal: Wal, report: Report) -> None:
    numbers = wal.numbers()
    for number in numbers:
        report.log_files += 1
        for found in wal.replay(number):
            if not isinstance(found, Damaged):
                report.log_records += 1
            elif found.at_end and number == numbers[-1]:
                report.notes.append(
                    f"wal/{number:08d}.wal ends in a write that was never acknowledged, {found.end - found.start} bytes"
                )
            else:
                report.damage.append(f"wal/{number:08d}.wal cannot be read from byte {found.start} to {found.end}")


def _check_lake(data: Path, report: Report, progress: Callable[[int, int], None]) -> None:
    on_disk = {f"{SEGMENT_FOLDER}/{p.name}" for p in (data / "lake" / SEGMENT_FOLDER).glob("*")}
    read = peek(data)
    if read is None:
        if on_disk or (data / "catalog.duckdb").exists():
            report.damage.append(f"{len(on_disk)} segments have no catalog that can be read; `crossrank rebuild` makes a new one")
        return
    contents, listed = read
    known = {s.path: s for s in contents.segments}
    for count, info in enumerate(contents.segments):
        progress(count, len(contents.segments))
        fault = _fault_of(data / "lake", info)
        if fault is not None:
            report.damage.append(f"lake/{info.path} ({info.rows} events of job {info.job!r}): {fault}")
        report.segments += 1
        report.rows += info.rows
    report.notes += [f"lake/{path} is in no catalog" for path in sorted(on_disk - known.keys())]
    report.damage += [
        f"lake/{path} is missing from the lake's own list; `crossrank rebuild`" for path in sorted(known.keys() - listed)
    ]
    report.damage += [f"lake/{path} is in the lake's own list only; `crossrank rebuild`" for path in sorted(listed - known.keys())]


def _fault_of(lake: Path, info: SegmentInfo) -> str | None:
    """What is wrong with a segment the catalog lists; None when nothing is."""
    if not (lake / info.path).exists():
        return "it is missing"
    try:
        found, _ = scrub(lake, info.path)
    except NewerSegment as fault:
        raise StoreUnavailable(f"{fault}; use a newer crossrank. Nothing was changed.") from fault
    except ValueError as fault:
        return str(fault)
    if (found.size_bytes, found.crc32c) != (info.size_bytes, info.crc32c):
        return "its size or checksum is another than the catalog's"
    return None if (found.rows, found.job) == (info.rows, info.job) else f"the catalog says {info.rows} rows, it has {found.rows}"
