"""What of a file the service has acknowledged, kept between runs of `crossrank send`.

One small file a source file, named by a hash of everything that makes it the same upload: the path, its size and time of
change, the service and the job. A file that has changed is another upload and starts again; the service drops what it has
already. Batches are acknowledged in any order, so only the acknowledged beginning of the file is remembered.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crossrank.commands.line_batches import Batch

KEPT_ENTRIES: Final = 4096  # uploads remembered; the oldest are forgotten, which costs a resend at worst


def default_folder() -> Path:
    """The user's cache folder for upload progress."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossrank" / "send"


@dataclass(slots=True)
class Progress:
    """The acknowledged beginning of one upload: bytes of its text and lines. Saved at each change."""

    entry: Path | None
    bytes_done: int = 0
    lines_done: int = 0
    finished: bool = False
    _ahead: list[tuple[int, int, int]] = field(default_factory=list)

    def acknowledge(self, batch: Batch) -> None:
        """Notes that the service has stored a batch."""
        heapq.heappush(self._ahead, (batch.start, batch.end, batch.lines))
        before = self.bytes_done
        while self._ahead and self._ahead[0][0] == self.bytes_done:
            _, self.bytes_done, lines = heapq.heappop(self._ahead)
            self.lines_done += lines
        if self.bytes_done != before:
            self.save()

    def finish(self) -> None:
        """Notes that the whole file has been stored."""
        self.finished = True
        self.save()

    def save(self) -> None:
        """Writes the entry whole or not at all. A cache folder that cannot be written to only costs the ability to resume."""
        if self.entry is None:
            return
        state = {"bytes": self.bytes_done, "lines": self.lines_done, "finished": self.finished}
        partial = self.entry.with_suffix(f".{os.getpid()}")
        try:
            partial.write_text(json.dumps(state))
            partial.replace(self.entry)
        except OSError:
            self.entry = None


class Memory:
    """The folder of upload entries. `folder` None remembers nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            entries = sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
            for entry in entries[:-KEPT_ENTRIES]:
                entry.unlink(missing_ok=True)
        except OSError:
            self._folder = None

    def progress(self, path: Path, url: str, job: str | None, *, restart: bool) -> Progress:
        """What is known of the upload of `path` to `url` under `job`; nothing when `restart`."""
        if self._folder is None:
            return Progress(None)
        status = path.stat()
        identity = json.dumps([str(path.resolve()), status.st_size, status.st_mtime_ns, url, job])
        entry = self._folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
        if restart:
            return Progress(entry)
        try:
            state = json.loads(entry.read_text())
            return Progress(entry, int(state["bytes"]), int(state["lines"]), bool(state["finished"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Progress(entry)
