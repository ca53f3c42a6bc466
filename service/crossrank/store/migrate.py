"""Brings a catalog to this release's form: numbered SQL files, forward only, each in one transaction with its own record.

A file that was applied is recorded with its checksum; if it reads differently today, the release was tampered with or built
wrongly, and nothing is touched. A catalog that has seen a migration we do not know was written by a newer release: refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from crossrank.errors import StoreUnavailable

_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_RECORD_TABLE: Final = "CREATE TABLE lake.migrations (number INTEGER, name VARCHAR, sha256 VARCHAR, applied_ns BIGINT)"


@dataclass(frozen=True, slots=True)
class Migration:
    """One SQL file."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Checksum of the file's text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read_migrations(folder: Path) -> list[Migration]:
    """All migrations in order. Raises ValueError when their numbers do not run from 1 without a gap."""
    found = [Migration(int(m[1]), p.name, p.read_text("utf-8")) for p in sorted(folder.iterdir()) if (m := _NAME.fullmatch(p.name))]
    if [m.number for m in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations in {folder} are not numbered 1, 2, 3, …: {[m.name for m in found]}")
    return found


def migrate(connection: duckdb.DuckDBPyConnection, migrations: Sequence[Migration], *, now_ns: int) -> int:
    """Applies what is missing to the catalog attached as `lake`; returns how many were applied.

    Raises StoreUnavailable, with the catalog unchanged, when it is newer than this release or a migration was altered.
    """
    try:
        applied = connection.execute("SELECT number, name, sha256 FROM lake.migrations ORDER BY number").fetchall()
    except duckdb.CatalogException:
        connection.execute(_RECORD_TABLE)
        applied = []
    _check(applied, migrations)
    missing = migrations[len(applied) :]
    for migration in missing:
        connection.execute("BEGIN")
        try:
            connection.execute(migration.sql)
            row = [migration.number, migration.name, migration.sha256, now_ns]
            connection.execute("INSERT INTO lake.migrations VALUES (?, ?, ?, ?)", row)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return len(missing)


def _check(applied: Sequence[tuple[int, str, str]], migrations: Sequence[Migration]) -> None:
    if len(applied) > len(migrations):
        newest = applied[-1][1]
        raise StoreUnavailable(
            f"this data folder was written by a newer crossrank (it has {newest}, this release knows {len(migrations)} migrations);"
            " use that release. Nothing was changed.",
            newest=newest,
        )
    for (_, name, sha256), migration in zip(applied, migrations, strict=False):
        if sha256 != migration.sha256:
            raise StoreUnavailable(f"migration {name} is not the one that was applied to this data folder; reinstall crossrank")
