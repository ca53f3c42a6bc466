"""Event files as batches of whole lines: plain, gzip or zstd (told apart by their first bytes), read in constant memory.

A batch knows its place: the byte offset after its last line, in the uncompressed text, is what `resume` remembers, and the
number of its first line is what a rejected event is reported by.
"""

from __future__ import annotations

import glob
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import zstandard
from isal import igzip

from crossrank.errors import BadParameter, UndecodableBody

SUFFIXES: Final = tuple(f"{name}{packed}" for name in (".ndjson", ".jsonl") for packed in ("", ".gz", ".zst"))

BATCH_BYTES: Final = 2 << 20  # small enough that four workers give the group commit something to group
BATCH_LINES: Final = 20_000
LINE_BYTES: Final = 64 << 20  # the service takes no larger body
_READ_BYTES: Final = 256 << 10

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole lines of one file. `first_line` counts from 1; `end` is the byte offset behind the last line."""

    path: Path
    first_line: int
    lines: int
    start: int
    end: int
    text: bytes


def find_files(given: Sequence[str]) -> list[Path]:
    """The files named by paths, folders (searched for event files) and glob patterns, each once, in the order given.

    Raises BadParameter for a name that is none of these, or a folder or pattern that holds nothing to send.
    """
    found: dict[Path, None] = {}
    for name in given:
        path = Path(name)
        if path.is_file():
            hits = [path]
        elif path.is_dir():
            hits = [p for p in sorted(path.rglob("*")) if p.name.endswith(SUFFIXES) and p.is_file()]
            if not hits:
                raise BadParameter(f"{name}: no event files in this folder (looked for *{', *'.join(SUFFIXES)})", field="files")
        else:
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 -- Path.glob takes no absolute pattern
            hits = [p for p in map(Path, matches) if p.is_file()]
            if not hits:
                raise BadParameter(f"{name}: no such file", field="files")
        found.update(dict.fromkeys(hits))
    return list(found)


def open_text(path: Path) -> BinaryIO:
    """The uncompressed text of a file as a binary stream."""
    raw = path.open("rb")
    start = raw.read(4)
    raw.seek(0)
    packed: Any
    if start.startswith(_GZIP):
        raw.close()
        packed = igzip.IGzipFile(path, mode="rb")  # given a name, it closes what it opens
    elif start == _ZSTD:
        packed = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=True)
    else:
        return raw
    return packed


def read_batches(
    path: Path, skip_bytes: int = 0, skip_lines: int = 0, *, batch_bytes: int = BATCH_BYTES, batch_lines: int = BATCH_LINES
) -> Iterator[Batch]:
    """The lines of a file behind the first `skip_bytes`, in batches; a last line without a newline counts.

    Raises UndecodableBody where a compressed file is damaged or ends early, or a line is longer than the service takes;
    batches before that place have been given out by then.
    """
    stream = open_text(path)
    try:
        yield from _cut(
            path, _parts(path, stream, skip_bytes), skip_bytes, skip_lines, batch_bytes=batch_bytes, batch_lines=batch_lines
        )
    finally:
        stream.close()


def _parts(path: Path, stream: BinaryIO, skip_bytes: int) -> Iterator[bytes]:
    """The text behind `skip_bytes` in parts as they can be read."""
    at = 0
    try:
        if skip_bytes and isinstance(stream, io.BufferedReader):
            stream.seek(skip_bytes)
            at = skip_bytes
        while part := stream.read(_READ_BYTES):
            at += len(part)
            if at > skip_bytes:
                yield part[max(0, len(part) - (at - skip_bytes)) :]
    except (EOFError, zstandard.ZstdError, igzip.BadGzipFile, OSError, ValueError) as fault:
        raise UndecodableBody(f"{path}: cannot be read on from byte {at:,} of its text: {fault}") from fault


def _cut(path: Path, parts: Iterable[bytes], at: int, line: int, *, batch_bytes: int, batch_lines: int) -> Iterator[Batch]:
    kept = bytearray()
    line += 1
    for part in parts:
        kept += part
        while len(kept) >= batch_bytes and (end := kept.rfind(b"\n", 0, batch_bytes) + 1 or kept.find(b"\n") + 1):
            end = _end_of_line(kept, end, batch_lines)
            batch = _batch(path, bytes(kept[:end]), at, line)
            yield batch
            del kept[:end]
            at, line = batch.end, line + batch.lines
        if len(kept) > LINE_BYTES + batch_bytes:
            raise UndecodableBody(
                f"{path}: line {line:,} is longer than {LINE_BYTES >> 20} MiB; is this a file of one event a line?"
            )
    while kept:
        end = _end_of_line(kept, len(kept), batch_lines)
        batch = _batch(path, bytes(kept[:end]), at, line)
        yield batch
        del kept[:end]
        at, line = batch.end, line + batch.lines


def _end_of_line(text: bytearray, end: int, most_lines: int) -> int:
    """The end of the line number `most_lines`, or `end` when there are fewer."""
    if text.count(b"\n", 0, end) <= most_lines:
        return end
    newlines = np.flatnonzero(np.frombuffer(bytes(text[:end]), np.uint8) == ord("\n"))
    return int(newlines[most_lines - 1]) + 1


def _batch(path: Path, text: bytes, at: int, line: int) -> Batch:
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    return Batch(path, line, lines, at, at + len(text), text)
