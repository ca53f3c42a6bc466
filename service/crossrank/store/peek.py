"""Reads a catalog without touching it: from a copy, because opening one writes to it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from crossrank.errors import StoreUnavailable
from crossrank.store.lake import Contents, Lake


def peek(data: Path) -> tuple[Contents, set[str]] | None:
    """What the catalog says, and the files of DuckLake's own list; None when it is not there or cannot be read.

    Raises StoreUnavailable when a newer release wrote it.
    """
    if not (data / "catalog.duckdb").exists():
        return None
    with tempfile.TemporaryDirectory(prefix="crossrank-catalog-") as folder:
        for name in ("catalog.duckdb", "catalog.duckdb.wal"):
            if (data / name).exists():
                shutil.copyfile(data / name, Path(folder) / name)
        try:
            lake = Lake(Path(folder), now_ns=0)
            try:
                return lake.contents(), lake.listed()
            finally:
                lake.close()
        except StoreUnavailable as fault:
            if "newest" in fault.detail:
                raise
            return None
