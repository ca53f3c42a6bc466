"""What `crossrank send` prints: a progress bar while it runs, a summary at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from crossrank.commands.figures import count, duration, plain, size
from crossrank.commands.line_batches import find_files, open_text
from crossrank.commands.resume import Memory, default_folder
from crossrank.commands.send import OnProgress, Upload, send_files
from crossrank.commands.source import DEFAULT_URL


@contextmanager
def progress_bar(files: Sequence[Path], console: Console) -> Iterator[OnProgress]:
    """A bar over all files, on a terminal only. The length of compressed text is not known before, so it is not guessed."""
    packed = any(_is_packed(path) for path in files)
    total = None if packed else float(sum(path.stat().st_size for path in files))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[sent]}"),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("sending", total=total, sent="")
        done = 0

        def advance(path: Path, sent_bytes: int) -> None:
            nonlocal done
            done += sent_bytes
            bar.update(task, advance=sent_bytes, description=plain(path.name, 40), sent=size(done))

        yield advance


def _is_packed(path: Path) -> bool:
    with path.open("rb") as raw, open_text(path) as text:
        return type(raw) is not type(text)


def summary(upload: Upload) -> list[str]:
    """The summary as lines."""
    tally = upload.tally
    rate = upload.text_bytes / upload.seconds if upload.seconds else 0.0
    lines = [
        f"sent       {count(upload.files, 'file')}, {size(upload.text_bytes)} in {duration(upload.seconds * 1e9)} ({size(rate)}/s)",
        f"accepted   {count(tally.accepted, 'event')}",
    ]
    if tally.duplicate:
        lines.append(f"duplicate  {count(tally.duplicate, 'event')}: the service had them already")
    if tally.rejected:
        reasons = ", ".join(
            f"{plain(reason)} {count(n)}" for reason, n in sorted(tally.reasons.items(), key=lambda r: (-r[1], r[0]))
        )
        lines.append(f"rejected   {count(tally.rejected, 'event')}: {reasons}")
        lines += [f"           {plain(where, 200)}: {plain(reason)}" for where, reason in tally.errors]
    lines += [f"warning    {plain(text, 200)} ({count(n)}x)" for text, n in sorted(tally.warnings.items())]
    if tally.retries:
        lines.append(f"retried    {count(tally.retries, 'time')}")
    if upload.resumed_files:
        lines.append(f"resumed    {count(upload.resumed_files, 'file')} where an earlier run stopped")
    if upload.skipped_files:
        lines.append(f"skipped    {count(upload.skipped_files, 'file')} sent in an earlier run (--restart sends them again)")
    lines += [f"failed     {plain(fault.message, 400)}" for _, fault in upload.failed]
    return lines


def run_send(files: Sequence[str], *, job: str | None, url: str | None, workers: int, restart: bool, patience_s: float) -> bool:
    """Runs the command. Returns whether some events were rejected.

    Raises the fault of the first file that could not be sent whole, after the summary of what could.
    """
    paths = find_files(files)
    # Progress goes to stderr, so that the summary can be piped.
    with progress_bar(paths, Console(stderr=True)) as on_progress:
        upload = send_files(
            paths,
            url=url or DEFAULT_URL,
            job=job,
            workers=workers,
            memory=Memory(default_folder()),
            restart=restart,
            patience_s=patience_s,
            on_progress=on_progress,
        )
    print("\n".join(summary(upload)))
    if upload.failed:
        raise upload.failed[0][1]
    return upload.tally.rejected > 0
