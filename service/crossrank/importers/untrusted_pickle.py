"""A pickle as JSON text, read without ever being executed: the reading happens in `pickle_child`, a limited process.

Unpickling runs whatever program the file holds, so a recorded file from anywhere must never meet the standard unpickler.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from crossrank.errors import UndecodableBody

_CHILD: Final = Path(__file__).with_name("pickle_child.py")
_REFUSED: Final = 3
_PATIENCE_S: Final = 60


def pickle_as_json(data: bytes) -> bytes:
    """JSON text of the plain containers in a pickle. Raises UndecodableBody for anything else."""
    command = [sys.executable, "-I", "-S", str(_CHILD)]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False, env={}, timeout=_PATIENCE_S)  # noqa: S603 -- our own file
    except subprocess.TimeoutExpired as fault:
        raise UndecodableBody("The pickle takes longer to read than is allowed") from fault
    if done.returncode == 0:
        return done.stdout
    if done.returncode == _REFUSED:
        raise UndecodableBody(f"The pickle is refused: {done.stderr.decode('utf-8', 'replace')[:500]}")
    raise UndecodableBody(f"The pickle is refused: reading it was stopped (exit {done.returncode})")


def looks_like_pickle(head: bytes) -> bool:
    """Protocol 2 and later begin with PROTO and its number; JSON begins with a brace."""
    return head[:1] == b"\x80" or head.lstrip()[:1] not in (b"{", b"[")
