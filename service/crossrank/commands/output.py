"""What every command's output has in common: it never ends in a traceback because of where it goes.

A terminal that cannot show `±` or `▁` (a locale without UTF-8) gets ASCII in their place. A reader that goes away (`| head`) ends the
program quietly, with the code a shell gives a process that died of it. A full disk behind `>` is said in one line.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import Any, Final

from typer.core import TyperGroup

EXIT_CLOSED: Final = 141  # 128 + SIGPIPE
EXIT_UNWRITABLE: Final = 5
_OF_STREAMS: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT})

_HANDLER: Final = "crossrank-ascii"
_IN_ASCII: Final = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.-~=+*#", strict=True)),
    "±": "+-", "µ": "u", "…": "...", "→": "->", "←": "<-", "·": ".", "\ufffd": "?", "\u00a0": " ", "●": "*", "✓": "+", "✗": "x", "≥": ">=", "≤": "<=",
}  # fmt: skip


class OutputFault(Exception):
    """Stdout or stderr cannot be written. `closed`: whoever read it has gone."""

    def __init__(self, fault: OSError) -> None:
        super().__init__(str(fault))
        self.closed = isinstance(fault, BrokenPipeError)

    def say(self) -> int:
        """Says so on stderr, where that still works; the exit code."""
        try:
            sys.stderr.write(f"crossrank: cannot write the output: {self}\n")
            sys.stderr.flush()
        except OSError:
            _silence()
        return EXIT_UNWRITABLE


class CheckedGroup(TyperGroup):
    """A group of commands in which faults of files and streams are told from faults of ours."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command chosen. Raises OutputFault, or BadParameter for a file that cannot be used."""
        try:
            answer = super().invoke(ctx)
        except OSError as fault:
            raise _named(fault) from fault
        flush_output()
        return answer


def _named(fault: OSError) -> Exception:
    from crossrank.errors import BadParameter, CrossrankError

    if fault.filename is not None:
        return BadParameter(f"{fault.filename}: {fault.strerror or fault}")
    return OutputFault(fault) if fault.errno in _OF_STREAMS else CrossrankError(str(fault))


def prepare_output() -> None:
    """Lets stdout and stderr take any text, whatever their encoding."""
    codecs.register_error(_HANDLER, _ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def flush_output() -> None:
    """Writes out what is buffered, here and not while the interpreter ends. Raises OutputFault."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as fault:
        _silence()
        raise OutputFault(fault) from fault


def one_line(text: str) -> str:
    """A message as one line that a terminal may show: words of senders may be in it."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text.replace("\n", " "))


def _ascii(fault: UnicodeError) -> tuple[str, int]:
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    text = fault.object[fault.start : fault.end]
    return "".join(_IN_ASCII.get(c, "?") for c in text), fault.end


def _silence() -> None:
    """Points stdout at nothing, so that the interpreter does not fail at it again when it ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
