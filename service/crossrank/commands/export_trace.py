"""`crossrank export` in any format; for perfetto and chrome, chosen ranks of a job as one file for a trace viewer.

The file appears under its name only when it is whole; `-o -` writes to standard output instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from crossrank.commands.client import HttpAnswers
from crossrank.commands.export import run_export
from crossrank.commands.figures import size
from crossrank.commands.reading import waiting
from crossrank.commands.source import Answers, job_path, open_answers, step_range
from crossrank.errors import BadParameter

_PIECE_BYTES: Final = 1 << 20
_OPENS: Final = {"perfetto": "https://ui.perfetto.dev", "chrome": "https://ui.perfetto.dev or chrome://tracing"}


def run_export_as(
    format_: str,
    job: str,
    output: Path,
    *,
    url: str | None,
    data: Path | None,
    steps: tuple[int | None, int | None],
    ranks: str | None,
    top: int | None,
    aligned: str,
) -> None:
    """Runs the command for any format and says where to open a trace. Raises CrossrankError."""
    if format_ == "parquet":
        if ranks is not None or top is not None or aligned != "repaired":
            raise BadParameter(
                "--ranks, --top and --aligned are for the formats perfetto and chrome; Parquet holds all ranks, "
                "raw and repaired times",
                field="format",
            )
        run_export(job, output, url=url, data=data, first=steps[0], last=steps[1])
        return
    if format_ not in _OPENS:
        raise BadParameter(f"--format {format_}: it is parquet, perfetto or chrome", field="format")
    asked = {"ranks": ranks, "top": top}
    params = {"format": format_, "aligned": aligned, **step_range(*steps)}
    params.update({name: value for name, value in asked.items() if value is not None})
    answers = open_answers(url, data)
    try:
        with waiting("drawing") as say, _pieces(answers, job_path(job, "export"), params) as pieces:
            told = _telling(pieces, say)
            if str(output) == "-":
                _write(sys.stdout.buffer, told)
                return
            total = _write_file(output, told)
    finally:
        answers.close()
    print(f"{output} ({size(total)}); open it in {_OPENS[format_]}")


@contextmanager
def _pieces(answers: Answers, path: str, params: dict[str, object]) -> Iterator[Iterator[bytes]]:
    if isinstance(answers, HttpAnswers):
        with answers.stream(path, params) as response:
            yield response.iter_bytes(_PIECE_BYTES)
    else:
        yield iter((answers.download(path, params),))


def _telling(pieces: Iterator[bytes], say: Callable[[str], None]) -> Iterator[bytes]:
    """The pieces, saying how much has come."""
    total = 0
    for piece in pieces:
        total += len(piece)
        say(f"writing, {size(total)} so far")
        yield piece


def _write_file(output: Path, pieces: Iterator[bytes]) -> int:
    partial = output.with_name(output.name + ".partial")
    try:
        with partial.open("wb") as file:
            total = _write(file, pieces)
        partial.replace(output)
    except OSError as fault:
        raise BadParameter(f"cannot write {output}: {fault}", field="output") from fault
    finally:
        partial.unlink(missing_ok=True)
    return total


def _write(file: BinaryIO, pieces: Iterator[bytes]) -> int:
    return sum(file.write(piece) for piece in pieces)
