"""Migrations: forward only, recorded with checksums, and a newer or altered catalog is refused untouched."""

import hashlib
import shutil

import pytest

from crossrank._assets import asset_folder
from crossrank.errors import StoreUnavailable
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store import lake as lake_module
from crossrank.store.lake import Lake, _attached
from crossrank.store.migrate import Migration, migrate, read_migrations


@pytest.fixture
def connection(tmp_path):
    with _attached(tmp_path / "catalog.duckdb", tmp_path / "lake") as opened:
        yield opened


def test_each_migration_is_applied_once_and_recorded(connection):
    steps = [Migration(1, "0001_a.sql", "CREATE TABLE lake.a (x INTEGER); INSERT INTO lake.a VALUES (1)")]
    assert migrate(connection, steps, now_ns=5) == 1
    assert migrate(connection, steps, now_ns=6) == 0
    steps.append(Migration(2, "0002_b.sql", "ALTER TABLE lake.a ADD COLUMN y INTEGER"))
    assert migrate(connection, steps, now_ns=7) == 1
    assert connection.execute("SELECT * FROM lake.a").fetchall() == [(1, None)]
    recorded = connection.execute("SELECT number, sha256, applied_ns FROM lake.migrations ORDER BY number").fetchall()
    assert recorded == [(i + 1, hashlib.sha256(s.sql.encode()).hexdigest(), 5 + 2 * i) for i, s in enumerate(steps)]


def test_a_failing_migration_leaves_nothing_of_itself(connection):
    steps = [Migration(1, "0001_a.sql", "CREATE TABLE lake.a (x INTEGER); SELECT no_such_thing")]
    with pytest.raises(Exception, match="no_such_thing"):
        migrate(connection, steps, now_ns=5)
    good = [Migration(1, "0001_a.sql", "CREATE TABLE lake.a (x INTEGER)")]
    assert migrate(connection, good, now_ns=6) == 1


class Dying:
    """A connection of a process that is killed in front of its n-th statement: nothing more happens, not even a rollback."""

    def __init__(self, connection, at):
        self._connection, self._left = connection, at

    def execute(self, *words):
        self._left -= 1
        if self._left < 0:
            raise Killed
        return self._connection.execute(*words)


class Killed(BaseException):
    """What a failpoint raises."""


def test_a_kill_between_any_two_statements_of_a_migration_changes_nothing_that_the_next_start_does_not_repair(tmp_path):
    steps = [
        Migration(1, "0001_a.sql", "CREATE TABLE lake.a (x INTEGER); INSERT INTO lake.a VALUES (1)"),
        Migration(2, "0002_b.sql", "ALTER TABLE lake.a ADD COLUMN y INTEGER; UPDATE lake.a SET y = 2"),
    ]
    for at in range(20):
        folder = tmp_path / str(at)
        folder.mkdir()
        with _attached(folder / "catalog.duckdb", folder / "lake") as opened:
            try:
                migrate(Dying(opened, at), steps, now_ns=5)
                is_done = True
            except Killed:
                is_done = False
            killed = shutil.copytree(folder, tmp_path / f"killed{at}")
        with _attached(killed / "catalog.duckdb", killed / "lake") as opened:
            migrate(opened, steps, now_ns=6)
            assert opened.execute("SELECT * FROM lake.a").fetchall() == [(1, 2)]
            assert opened.execute("SELECT number FROM lake.migrations ORDER BY number").fetchall() == [(1,), (2,)]
            assert migrate(opened, steps, now_ns=7) == 0
        if is_done:
            break
    assert at == 10, "a look, the table of records, and four statements for each migration"


def test_a_newer_catalog_is_refused(tmp_path, monkeypatch):
    known = read_migrations(asset_folder("migrations"))
    newer = [*known, Migration(len(known) + 1, "0099_future.sql", "CREATE TABLE lake.future (x INTEGER)")]
    monkeypatch.setattr(lake_module, "read_migrations", lambda folder: newer)
    Lake(tmp_path, now_ns=1).close()
    monkeypatch.undo()
    before = (tmp_path / "catalog.duckdb").read_bytes()
    with pytest.raises(StoreUnavailable, match=r"newer crossrank .*0099_future"):
        Lake(tmp_path, now_ns=1)
    assert (tmp_path / "catalog.duckdb").read_bytes() == before


def test_an_altered_migration_is_refused(tmp_path, monkeypatch):
    Lake(tmp_path, now_ns=1).close()
    known = read_migrations(asset_folder("migrations"))
    altered = [Migration(1, known[0].name, known[0].sql + "-- changed"), *known[1:]]
    monkeypatch.setattr(lake_module, "read_migrations", lambda folder: altered)
    with pytest.raises(StoreUnavailable, match="not the one that was applied"):
        Lake(tmp_path, now_ns=1)


def test_numbers_must_not_have_gaps(tmp_path):
    for name in ("0001_a.sql", "0003_c.sql", "notes.txt"):
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="0003_c"):
        read_migrations(tmp_path)


def test_a_catalog_that_is_not_one_is_refused_with_its_name(tmp_path):
    (tmp_path / "catalog.duckdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreUnavailable, match=r"catalog\.duckdb cannot be opened"):
        Lake(tmp_path, now_ns=1)


def test_the_events_table_has_the_columns_of_the_schema(tmp_path):
    lake = Lake(tmp_path, now_ns=1)
    described = lake._connection.execute("DESCRIBE lake.events").fetchall()
    assert [d[0] for d in described] == EVENT_SCHEMA.names
    lake.close()
