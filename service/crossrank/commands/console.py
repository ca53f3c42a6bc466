"""The console that answers are printed on: rich's, but a reader that goes away is told to the program, not hidden as code 1."""

from __future__ import annotations

import errno

from rich.console import Console


class AnswerConsole(Console):
    """A console on stdout that raises BrokenPipeError; `output.CheckedGroup` turns it into the documented exit code."""

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output")
