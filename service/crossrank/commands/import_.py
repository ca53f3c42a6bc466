"""`crossrank import`: recorded files to a service, decoded here and sent as columns, in batches.

Decoding here, and not by one request a file, takes files of any size, keeps the service free for the ranks that post, and lets
files be compared before anything is sent: two files that claim the same rank at the same time cannot both be right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa

from crossrank.commands.client import HttpAnswers, base_url, connect, fault_of, reaching, restated
from crossrank.commands.figures import count, plain
from crossrank.commands.poster import ERRORS_KEPT, Poster, Tally
from crossrank.commands.reading import waiting
from crossrank.commands.source import DEFAULT_URL, job_path
from crossrank.errors import BadParameter, CrossrankError
from crossrank.importers.formats import FORMATS, format_named
from crossrank.importers.source import Recording, Source
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded

BATCH_BYTES: Final = 16 << 20  # in clear, well below what the service takes in one body
_LIMITS: Final = replace(
    Limits(), import_bytes=1 << 50, events_per_body=1 << 40
)  # the file is the user's own; batches bound memory


@dataclass(slots=True)
class Imported:
    """What a run did. `failed` holds files that could not be imported whole."""

    files: int = 0
    tally: Tally = field(default_factory=Tally)
    failed: list[tuple[Path, CrossrankError]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A file's claim to a rank for a time."""

    path: Path
    recording: Recording

    def contradicts(self, other: _Claim) -> bool:
        """Both are of one rank, and not of different times."""
        a, b = self.recording, other.recording
        if a.rank is None or a.rank != b.rank:
            return False
        if a.first_ns is None or a.last_ns is None or b.first_ns is None or b.last_ns is None:
            return True
        return a.first_ns <= b.last_ns and b.first_ns <= a.last_ns


def find_recordings(given: Sequence[str]) -> list[Path]:
    """The files named by paths, folders (all files in them) and glob patterns, each once. Raises BadParameter."""
    found: dict[Path, None] = {}
    for name in given:
        path = Path(name)
        if path.is_file():
            hits = [path]
        elif path.is_dir():
            hits = [p for p in sorted(path.rglob("*")) if p.is_file() and not p.name.startswith(".")]
        else:
            hits = [p for p in sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))) if p.is_file()]
        if not hits:
            raise BadParameter(f"{name}: {'no files in this folder' if path.is_dir() else 'no such file'}", field="files")
        found.update(dict.fromkeys(hits))
    return list(found)


def import_files(
    format_: str, files: Sequence[Path], *, poster: Poster, rank: int | None, say: Callable[[str], None] = lambda _: None
) -> Imported:
    """Imports files one after the other.

    A file that cannot be read is noted in `failed` and the others go on. Raises BadParameter for files that contradict each
    other, before anything of the second is sent, and what the poster raises.
    """
    read = format_named(format_)
    if rank is not None and len(files) > 1:
        raise BadParameter(
            "--rank says whose one file is; name the files after their ranks, or import them one by one", field="rank"
        )
    done = Imported()
    claims: list[_Claim] = []
    posted: set[str] = set()
    for number, path in enumerate(files, 1):
        say(f"importing {plain(path.name, 40)} ({number} of {len(files)})")
        latest = max((c.recording.last_ns or 0 for c in claims), default=0)
        with path.open("rb") as file:
            source = Source(str(path), rank, latest or path.stat().st_mtime_ns)
            try:
                claim = _Claim(path, read(file, source, _LIMITS))
                _refuse_contradiction(claim, claims)
                claims.append(claim)
                done.files += 1
                _send(claim, poster, done.tally)
                _post_topology(claim.recording.topology, poster, posted)
            except BadParameter:
                raise
            except CrossrankError as fault:
                if poster.stop.is_set():
                    raise
                done.failed.append((path, restated(fault, f"{path}: {fault.message}")))
    return done


def _refuse_contradiction(claim: _Claim, claims: Sequence[_Claim]) -> None:
    for other in claims:
        if claim.contradicts(other):
            raise BadParameter(
                f"{other.path} and {claim.path} both say they are rank {claim.recording.rank} at the same time; "
                "leave the wrong one out, or import it by itself with --rank N if only its name says that rank",
                field="rank",
            )


def _send(claim: _Claim, poster: Poster, tally: Tally) -> None:
    for decoded in claim.recording.batches:
        tally.rejected += len(decoded.rejections)
        tally.reasons.update(r.reason for r in decoded.rejections)
        tally.errors += [
            (f"{claim.path}: event {r.index}", r.reason) for r in decoded.rejections[: ERRORS_KEPT - len(tally.errors)]
        ]
        tally.warnings.update(f"{claim.path}: {w}" for w in decoded.warnings)
        for stream in _streams(decoded):
            tally.add(poster.post_arrow(stream, str(claim.path)))


def _post_topology(stated: Mapping[str, Any] | None, poster: Poster, posted: set[str]) -> None:
    """Says once what files say of the job's shape; ranks mostly say the same."""
    text = json.dumps(stated, sort_keys=True)
    if stated is None or poster.job is None or text in posted:
        return
    posted.add(text)
    path = job_path(poster.job, "topology")
    with reaching(poster.url):
        answer = poster.client.post(path, content=text, headers={"content-type": "application/json"})
    if answer.status_code != httpx.codes.OK:
        raise fault_of(answer.status_code, answer.content, f"POST {path}")


def _streams(decoded: Decoded) -> Iterator[bytes]:
    """The rows as Arrow streams of bounded size, without columns that hold nothing."""
    rows = decoded.rows
    rows = rows.select([n for n in rows.column_names if n != "flags" and rows[n].null_count < len(rows)])
    most = max(1, len(rows) * BATCH_BYTES // max(rows.nbytes, 1))
    for at in range(0, len(rows), most):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.slice(at, most))
        yield sink.getvalue().to_pybytes()


@contextmanager
def _service(url: str | None, data: Path | None) -> Iterator[str]:
    """The address to post to: a running service, or one of our own on a data folder for as long as it takes."""
    if data is None:
        yield base_url(url or DEFAULT_URL)
        return
    if url is not None:
        raise BadParameter("give --url or --data, not both: one is a running service, the other a folder without one", field="data")
    from crossrank.commands.child_service import ChildService, free_port

    with ChildService(data, free_port(0)) as child:
        answers = HttpAnswers(child.url)
        child.wait_ready(answers)
        answers.close()
        yield child.url


def summary(imported: Imported) -> list[str]:
    """What a run did, as lines."""
    tally = imported.tally
    lines = [f"imported   {count(imported.files, 'file')}", f"accepted   {count(tally.accepted, 'event')}"]
    if tally.duplicate:
        lines.append(f"duplicate  {count(tally.duplicate, 'event')}: the service had them already")
    if tally.rejected:
        reasons = ", ".join(f"{plain(r)} {count(n)}" for r, n in sorted(tally.reasons.items(), key=lambda i: (-i[1], i[0])))
        lines.append(f"rejected   {count(tally.rejected, 'event')}: {reasons}")
        lines += [f"           {plain(where, 200)}: {plain(reason)}" for where, reason in tally.errors]
    lines += [f"warning    {plain(text, 300)}" for text in sorted(tally.warnings)]
    lines += [f"failed     {plain(fault.message, 400)}" for _, fault in imported.failed]
    return lines


def run_import(
    format_: str, files: Sequence[str], *, job: str, rank: int | None, url: str | None, data: Path | None, patience_s: float
) -> bool:
    """Runs the command. Returns whether some events were rejected; raises the fault of the first file that failed."""
    if format_ not in FORMATS:
        format_named(format_)
    paths = find_recordings(files)
    with waiting("importing") as say, _service(url, data) as address, connect(address, 1) as client:
        imported = import_files(format_, paths, poster=Poster(client, address, job, patience_s), rank=rank, say=say)
    print("\n".join(summary(imported)))
    if imported.failed:
        raise imported.failed[0][1]
    return imported.tally.rejected > 0
