"""What a command shows while it works for more than a second: on stderr, and only where somebody watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def reading(what: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a callable (files read, files there are) that moves a bar on stderr."""
    with Progress(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner and the time so far, for work of unknown length. Gives a callable that says what is going on now."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda now: bar.update(task, description=now)
