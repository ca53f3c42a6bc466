"""The catalog: which segments there are, as a DuckLake that any DuckDB can attach, with our own tables beside it.

`<data>/catalog.duckdb` holds DuckLake's tables and ours; `<data>/lake/main/events/NNNNNNNN.parquet` the segments. Handing rows over
from the log is one transaction: the files are registered, their `segments` rows (the guard against registering twice) are
written, the jobs' facts replaced, and the log floor raised. Either all of it happened or none, so a restart knows exactly which
log files still count.

The store reads the catalog once, at start; answers never wait for it. Values go in as bound parameters only. The extension is
loaded by path from its installed package; DuckDB is told never to fetch one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import duckdb
import duckdb_extension_ducklake

from crossrank._assets import asset_folder
from crossrank.errors import StoreUnavailable
from crossrank.store.facts import EXPIRED, JobFacts, Tally
from crossrank.store.migrate import migrate, read_migrations
from crossrank.store.segment import SEGMENT_FOLDER, SegmentInfo, columns_of
from crossrank.store.wal import sync_folder

_CONFIG: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a table name must never be looked up among our variables
    "threads": 1,
    "memory_limit": "256MB",
}
_INLINE_ROWS: Final = 100_000  # our small tables live inside the catalog file, not as a Parquet file for each change
_KEEP_DAYS: Final = 1  # how long the lake's own snapshots can be queried back in time


@dataclass(frozen=True, slots=True)
class Contents:
    """What the catalog says at start."""

    segments: list[SegmentInfo]
    jobs: list[JobFacts]
    wal_floor: int
    next_segment: int


class Lake:
    """The catalog of one data folder. All methods may be called from any thread; they wait for each other."""

    def __init__(self, data: Path, *, now_ns: int, catalog: str = "catalog.duckdb") -> None:
        """Opens or creates the catalog; `catalog` is its file's name. Raises StoreUnavailable when it is newer than this release or cannot be read."""
        self._data = data
        self._catalog = data / catalog
        self.folder = data / "lake"
        segments = self.folder / SEGMENT_FOLDER
        segments.mkdir(parents=True, exist_ok=True)
        for folder in (segments.parent, self.folder):
            sync_folder(folder)
        self._lock = threading.Lock()
        self._is_open = True
        migrations = read_migrations(asset_folder("migrations"))
        try:
            self._connection = _attached(self._catalog, self.folder)
        except duckdb.Error as fault:
            raise unusable(self._catalog, fault) from fault
        try:
            migrate(self._connection, migrations, now_ns=now_ns)
        except BaseException:
            self._connection.close()
            raise
        sync_folder(data)

    def contents(self) -> Contents:
        """Everything the store needs to start. Raises StoreUnavailable."""
        with self._lock:
            try:
                return self._contents()
            except duckdb.Error as fault:
                raise unusable(self._catalog, fault) from fault

    def _contents(self) -> Contents:
        names = ", ".join(f.name for f in fields(SegmentInfo))
        rows = self._connection.execute(f"SELECT {names} FROM lake.segments ORDER BY path").fetchall()  # noqa: S608  - our own names
        floor, number = self._connection.execute("SELECT wal_floor, next_segment FROM lake.handover").fetchall()[0]
        return Contents([SegmentInfo(*row) for row in rows], self._jobs(), floor, number)

    def _jobs(self) -> list[JobFacts]:
        rejects: dict[str, list[tuple[int | None, str, int]]] = {}
        for job, rank, reason, events in self._connection.execute("SELECT job, rank, reason, events FROM lake.rejects").fetchall():
            rejects.setdefault(job, []).append((rank, reason, events))
        topologies = dict(self._connection.execute("SELECT job, topology FROM lake.topologies").fetchall())
        columns = "job, version, accepted, duplicate, conflict, last_received_ns, attempts, forgot"
        rows = self._connection.execute(f"SELECT {columns} FROM lake.jobs ORDER BY job").fetchall()  # noqa: S608  - our own names
        return [
            JobFacts(job, version, Tally(*tally), last, tuple(attempts), forgot, tuple(rejects.get(job, ())), topologies.get(job))
            for job, version, *tally, last, attempts, forgot in rows
        ]

    def hand_over(
        self,
        segments: Sequence[SegmentInfo],
        jobs: Sequence[JobFacts],
        *,
        wal_floor: int,
        next_segment: int,
    ) -> None:
        """Registers sealed files, replaces the jobs' facts and raises the log floor: all of it or nothing.

        May be repeated after a failure; what turns out to have been done is not done twice. Raises StoreUnavailable.
        """
        with self._transaction() as connection:
            if connection.execute("SELECT wal_floor FROM lake.handover").fetchall()[0][0] >= wal_floor:
                return
            for segment in segments:
                self._register(segment)
            for facts in jobs:
                self._forget_facts(facts.job)
                self._insert_facts(facts)
            connection.execute("UPDATE lake.handover SET wal_floor = ?, next_segment = ?", [wal_floor, next_segment])

    def _register(self, segment: SegmentInfo) -> None:
        options = "ignore_extra_columns => true"  # `marks` is ours alone
        self._connection.execute(f"CALL ducklake_add_data_files('lake', 'events', ?, {options})", [str(self.folder / segment.path)])
        values = list(columns_of(segment).values())
        self._connection.execute(f"INSERT INTO lake.segments VALUES ({_marks(len(values))})", values)  # noqa: S608

    def swap(self, old: Sequence[SegmentInfo], new: SegmentInfo | None, *, expired: int, next_segment: int) -> None:
        """Replaces segments of a job by the one made of them, or by none: all of it or nothing. The files themselves stay.

        expired: rows that go with them, added to the job's rejects. May be repeated after a failure; what turns out to have been
        done is not done twice. Raises StoreUnavailable.
        """
        try:
            self._swap(old, new, expired=expired, next_segment=next_segment)
        except StoreUnavailable:
            self._unlist([s.path for s in old])
            self._swap(old, new, expired=expired, next_segment=next_segment, is_listed=False)

    def _swap(
        self, old: Sequence[SegmentInfo], new: SegmentInfo | None, *, expired: int, next_segment: int, is_listed: bool = True
    ) -> None:
        paths = [s.path for s in old]
        with self._transaction() as connection:
            listed = "FROM lake.segments WHERE list_contains(?, path)"
            if connection.execute(f"SELECT count(*) {listed}", [paths]).fetchall() == [(0,)]:
                return
            connection.execute(f"DELETE {listed}", [paths])
            if is_listed:
                self._unregister(old)
            if new is not None:
                self._register(new)
            if expired:
                of_job = [old[0].job, EXPIRED]
                before = "SELECT coalesce(sum(events), 0) FROM lake.rejects WHERE job = ? AND rank IS NULL AND reason = ?"
                (count,) = connection.execute(before, of_job).fetchall()[0]
                connection.execute("DELETE FROM lake.rejects WHERE job = ? AND rank IS NULL AND reason = ?", of_job)
                connection.execute("INSERT INTO lake.rejects VALUES (?, NULL, ?, ?)", [*of_job, count + expired])
            connection.execute("UPDATE lake.handover SET next_segment = greatest(next_segment, ?)", [next_segment])

    def _unregister(self, segments: Sequence[SegmentInfo]) -> None:
        """Takes whole files of a job out of DuckLake's table, which reads them for it; by the time of receipt it reads few others."""
        files = [str(self.folder / s.path) for s in segments]
        received = [(s.received_min_ns, s.received_max_ns) for s in segments]
        known = [(least, most) for least, most in received if least is not None and most is not None]
        within, bounds = "", list[int]()
        if len(known) == len(received):
            within, bounds = " AND received_ns BETWEEN ? AND ?", [min(k[0] for k in known), max(k[1] for k in known)]
        delete = f"DELETE FROM lake.events WHERE job = ? AND list_contains(?, filename){within}"  # noqa: S608  - our own words
        self._connection.execute(delete, [segments[0].job, files, *bounds])

    def remove(self, jobs: Collection[str]) -> None:
        """Takes the files and facts of jobs out of the catalog; the files themselves stay. Raises StoreUnavailable."""
        try:
            self._remove(jobs)
        except StoreUnavailable:
            self._unlist(self._paths_of(jobs))
            self._remove(jobs)

    def _remove(self, jobs: Collection[str]) -> None:
        with self._transaction() as connection:
            for job in sorted(jobs):
                self._forget_facts(job)
                connection.execute("DELETE FROM lake.segments WHERE job = ?", [job])
                connection.execute("DELETE FROM lake.events WHERE job = ?", [job])

    def _paths_of(self, jobs: Collection[str]) -> list[str]:
        with self._lock:
            try:
                asked = "SELECT path FROM lake.segments WHERE list_contains(?, job)"
                return [path for (path,) in self._connection.execute(asked, [sorted(jobs)]).fetchall()]
            except duckdb.Error:
                return []

    def _unlist(self, paths: Sequence[str]) -> None:
        """Strikes files from DuckLake's own list: a plain DELETE must read them and fails when one is damaged."""
        with self._lock, contextlib.suppress(duckdb.Error):
            names = [Path(path).name for path in paths]
            files = "SELECT data_file_id FROM __ducklake_metadata_lake.ducklake_data_file WHERE list_contains(?, path)"
            for table in ("ducklake_file_column_stats", "ducklake_data_file"):
                self._connection.execute(
                    f"DELETE FROM __ducklake_metadata_lake.{table} WHERE data_file_id IN ({files})",  # noqa: S608  - our own names
                    [names],
                )

    def _forget_facts(self, job: str) -> None:
        for table in ("jobs", "rejects", "topologies"):
            self._connection.execute(f"DELETE FROM lake.{table} WHERE job = ?", [job])  # noqa: S608  - our own names

    def _insert_facts(self, f: JobFacts) -> None:
        t = f.tally
        row = [f.job, f.version, t.accepted, t.duplicate, t.conflict, f.last_received_ns, list(f.attempts), f.forgot]
        self._connection.execute(f"INSERT INTO lake.jobs VALUES ({_marks(len(row))})", row)  # noqa: S608
        if f.rejects:
            ranks, reasons, counts = zip(*f.rejects, strict=True)
            self._connection.execute(
                "INSERT INTO lake.rejects SELECT ?, unnest(?::INTEGER[]), unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
                [f.job, list(ranks), list(reasons), list(counts)],
            )
        if f.topology is not None:
            self._connection.execute("INSERT INTO lake.topologies VALUES (?, ?)", [f.job, f.topology])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            if not self._is_open:
                self._reopen()  # the disk may be well again
            try:
                self._connection.execute("BEGIN")
                yield self._connection
                self._connection.execute("COMMIT")
                sync_folder(self._data)  # DuckDB syncs its log file, but not the name of a log file it has just made
            except (duckdb.Error, OSError) as fault:
                self._reopen()
                raise StoreUnavailable(f"the catalog cannot be written: {fault}") from fault
            except BaseException:
                self._reopen()
                raise

    def _reopen(self) -> None:
        """Rolls back by starting over: after a failed write DuckDB may refuse every later statement of the old connection."""
        self._is_open = False
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        with contextlib.suppress(duckdb.Error):  # if it cannot be opened now, the next transaction tries again
            self._connection = _attached(self._catalog, self.folder)
            self._is_open = True

    def probe(self) -> None:
        """Runs a real query. Raises StoreUnavailable."""
        with self._lock:
            if not self._is_open:
                self._reopen()
            try:
                self._connection.execute("SELECT count(*), max(wal_floor) FROM lake.handover").fetchall()
            except duckdb.Error as fault:
                raise StoreUnavailable(f"the catalog cannot be read: {fault}") from fault

    def tidy(self) -> None:
        """Drops the lake's record of states older than a day. Segments that were deleted long ago leave the catalog for good."""
        with self._lock, contextlib.suppress(duckdb.Error):  # tried again at the next start
            for call in ("ducklake_expire_snapshots", "ducklake_cleanup_old_files"):
                older = f"older_than => now()::TIMESTAMPTZ - INTERVAL {_KEEP_DAYS} DAY"
                self._connection.execute(f"SELECT count(*) FROM {call}('lake', {older})").fetchall()  # noqa: S608

    def listed(self) -> set[str]:
        """Paths, below the lake folder, of the files that DuckLake's own list names. Raises StoreUnavailable."""
        asked = "SELECT path FROM __ducklake_metadata_lake.ducklake_data_file WHERE end_snapshot IS NULL AND path_is_relative"
        with self._lock:
            try:
                rows = self._connection.execute(asked).fetchall()
            except duckdb.Error as fault:
                raise unusable(self._catalog, fault) from fault
        return {f"{SEGMENT_FOLDER}/{Path(path).name}" for (path,) in rows}

    def close(self) -> None:
        """Closes the catalog file."""
        with self._lock:
            self._connection.close()


def unusable(catalog: Path, fault: Exception) -> StoreUnavailable:
    """What to say about a catalog that cannot be read."""
    return StoreUnavailable(
        f"the catalog {catalog} cannot be opened: {fault}. `crossrank rebuild --data {catalog.parent}` makes a new one from the"
        " segments; nothing was changed."
    )


def _attached(catalog: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=_CONFIG)
    try:
        connection.execute(f"LOAD {_quoted(_extension())}")
        # The folder may have been moved since: its path today counts, and all paths in the catalog are relative to it.
        options = f"DATA_PATH {_quoted(f'{folder}/')}, OVERRIDE_DATA_PATH true, DATA_INLINING_ROW_LIMIT {_INLINE_ROWS}"
        connection.execute(f"ATTACH {_quoted(f'ducklake:{catalog}')} AS lake ({options})")
    except BaseException:
        connection.close()
        raise
    return connection


def _extension() -> str:
    """Path of the DuckLake extension in its installed package; DuckDB checks its signature and that it fits this release."""
    for folder in duckdb_extension_ducklake.__path__:
        for path in sorted(Path(folder).glob(f"extensions/v{duckdb.__version__}/**/ducklake.duckdb_extension")):
            return str(path)
    raise StoreUnavailable(f"duckdb-extension-ducklake for DuckDB {duckdb.__version__} is not installed")


def _quoted(text: str) -> str:
    """A string literal: LOAD and ATTACH take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def _marks(count: int) -> str:
    return ", ".join("?" * count)
