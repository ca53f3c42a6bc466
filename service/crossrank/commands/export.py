"""`crossrank export`: a job's aligned events as Parquet files that anyone can read.

    DIR/job=NAME/attempt=0/steps=0000000-0000099/events.parquet

The service streams the events rank after rank; here they are cut into windows of steps, one file each, so that a later query
of some steps opens few files. Events outside every step are in `steps=none`. Memory holds one record batch; the file names in
a hive layout are understood by pandas, polars, DuckDB and Spark. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import count, size
from crossrank.commands.reading import waiting
from crossrank.commands.source import Answers, job_path, open_answers, step_range
from crossrank.errors import BadParameter, Refused

FILES_MOST: Final = 64  # open at once, one a window
_WINDOWS: Final = tuple(m * 10**e for e in range(2, 12) for m in (1, 2, 5))
_PIECE_BYTES: Final = 1 << 20


def run_export(job: str, folder: Path, *, url: str | None, data: Path | None, first: int | None, last: int | None) -> None:
    """Runs the command and prints what was written. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        summary = answers.get(job_path(job), {})
        window = window_of(summary["steps"].get("first"), summary["steps"].get("last"))
        target = folder / f"job={quote(job, safe='')}" / f"attempt={summary['attempt']}"
        chosen = {"format": "arrow", **step_range(first, last)}
        with waiting("exporting") as say, _arrow_stream(answers, job, chosen) as stream:
            files, rows = write_windows(stream, target, window, lambda rows: say(f"exporting, {count(rows, 'event')} so far"))
    finally:
        answers.close()
    total = sum(path.stat().st_size for path in files)
    print(f"{count(rows, 'event')} in {count(len(files), 'file')} ({size(total)}) under {target}")


def window_of(first: int | None, last: int | None) -> int:
    """Steps a file: 100, or as many as keep the number of files small."""
    steps = 0 if first is None or last is None else last - first + 1
    return next(w for w in _WINDOWS if steps <= (FILES_MOST - 2) * w)


@contextmanager
def _arrow_stream(answers: Answers, job: str, params: dict[str, object]) -> Iterator[io.RawIOBase | io.BufferedIOBase]:
    path = job_path(job, "export")
    if isinstance(answers, HttpAnswers):
        with answers.stream(path, params) as response:
            yield io.BufferedReader(_Pieces(response.iter_bytes(_PIECE_BYTES)), _PIECE_BYTES)
    else:
        yield io.BytesIO(answers.download(path, params))


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a readable file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken


def write_windows(
    stream: io.RawIOBase | io.BufferedIOBase, target: Path, window: int, on_rows: Callable[[int], None] = lambda _: None
) -> tuple[list[Path], int]:
    """Writes an Arrow IPC stream as one Parquet file a window of steps. Returns the files and the number of rows.

    on_rows: called with the rows written so far.

    Raises Refused when the stream breaks off, BadParameter when the folder cannot be written to.
    """
    rows = 0
    try:
        with _Windows(target) as files:
            for table in _tables(stream):
                rows += len(table)
                for name, part in _by_window(table, window):
                    files.write(name, part)
                on_rows(rows)
            return files.keep(), rows
    except OSError as fault:
        raise BadParameter(f"cannot write to {target}: {fault}", field="output") from fault


def _tables(stream: io.RawIOBase | io.BufferedIOBase) -> Iterator[pa.Table]:
    """The batches of the stream. Raises Refused where it cannot be read on."""
    rows = 0
    try:
        with pa.ipc.open_stream(stream) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
                rows += len(batch)
    except (pa.ArrowException, OSError) as fault:
        raise Refused(f"the export broke off after {count(rows, 'event')}: {fault}") from fault


def _by_window(table: pa.Table, window: int) -> Iterator[tuple[str, pa.Table]]:
    step = table["step_inferred"]
    known = pc.is_valid(step).to_numpy()
    number = np.where(known, step.fill_null(0).to_numpy() // window, np.iinfo(np.int64).max)
    for value in np.unique(number).tolist():
        name = f"steps={value * window:07d}-{(value + 1) * window - 1:07d}" if value != np.iinfo(np.int64).max else "steps=none"
        yield name, table.filter(pa.array(number == value))


class _Windows:
    """The files being written. Left without `keep`, it removes them."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._open: dict[str, pq.ParquetWriter] = {}
        self._stack = ExitStack()

    def write(self, name: str, part: pa.Table) -> None:
        """Appends rows to the file of a window."""
        if name not in self._open:
            partial = self._partial(name)
            partial.parent.mkdir(parents=True, exist_ok=True)
            self._open[name] = self._stack.enter_context(pq.ParquetWriter(partial, part.schema, compression="zstd"))
        self._open[name].write_table(part)

    def keep(self) -> list[Path]:
        """Finishes all files and gives them their names."""
        self._stack.close()
        return [self._partial(name).replace(self._target / name / "events.parquet") for name in sorted(self._open)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
        for name in self._open:
            self._partial(name).unlink(missing_ok=True)

    def _partial(self, name: str) -> Path:
        return self._target / name / "events.parquet.partial"
