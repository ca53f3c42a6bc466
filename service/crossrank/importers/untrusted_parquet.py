"""The columns of a Parquet file from anywhere, read by `parquet_child`, a limited process, and validated here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import BinaryIO, Final

import pyarrow as pa

from crossrank.errors import UndecodableBody

_CHILD: Final = Path(__file__).with_name("parquet_child.py")
_REASON_BYTES: Final = 2000


def parquet_batches(file: BinaryIO, columns: Sequence[str], most_rows: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns that the file has, in batches. Raises UndecodableBody, also while it is iterated."""
    with TemporaryFile() as copy:
        process = subprocess.Popen(  # noqa: S603 -- our own file
            [sys.executable, "-I", str(_CHILD), str(most_rows), *columns],
            stdin=_on_disk(file, copy),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield from _validated(process)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def _on_disk(file: BinaryIO, copy: BinaryIO) -> BinaryIO:
    """The file itself when it has a descriptor, else a copy that has one."""
    file.seek(0)
    try:
        file.fileno()
    except OSError:
        copyfileobj(file, copy)
        copy.seek(0)
        return copy
    return file


def _validated(process: subprocess.Popen[bytes]) -> Iterator[pa.RecordBatch]:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with pa.ipc.open_stream(process.stdout) as reader:
            if len(set(reader.schema.names)) != len(reader.schema.names):
                raise UndecodableBody("The Parquet file has two columns of one name")
            for batch in reader:
                batch.validate(full=True)
                yield batch
    except (pa.ArrowException, OSError) as fault:
        reason = process.stderr.read(_REASON_BYTES).decode("utf-8", "replace")
        raise UndecodableBody(f"The Parquet file cannot be read: {reason or fault}"[:500]) from fault
    if process.wait() != 0:
        reason = process.stderr.read(_REASON_BYTES).decode("utf-8", "replace")
        raise UndecodableBody(f"The Parquet file cannot be read: {reason or 'reading it was stopped'}"[:500])
