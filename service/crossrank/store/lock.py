"""One process per data folder: an advisory lock that names its holder.

flock is released by the kernel when the process ends in any way, so a crash never leaves a stale lock behind; the text inside
the file is only for the message.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from crossrank.errors import StoreUnavailable


class FolderLock:
    """Holds `<folder>/lock` from construction to `release`."""

    def __init__(self, folder: Path, *, started_ns: int) -> None:
        """Takes the lock. Raises StoreUnavailable, saying who holds it, when another process (or store) has it."""
        self._fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            holder = os.pread(self._fd, 4096, 0).decode("utf-8", "replace").strip()
            os.close(self._fd)
            raise StoreUnavailable(
                f"the data folder {folder} is in use by another process ({holder or 'unknown'}); stop it or choose another --data",
                folder=str(folder),
                holder=holder,
            ) from fault
        who = {"pid": os.getpid(), "host": socket.gethostname(), "started_ns": started_ns}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(who).encode(), 0)

    def release(self) -> None:
        """Gives the folder free. Called once."""
        os.close(self._fd)
