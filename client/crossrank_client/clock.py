"""Times of spans: the monotonic clock of the machine plus one offset, so that a step of the wall clock cannot bend a span.

    epoch_ns = monotonic_ns + offset_ns

`monotonic_ns` is CLOCK_MONOTONIC: it never jumps, NTP only changes its rate, and it is the same for every process of a machine.
`offset_ns` is what the wall clock showed beside it once, read as a pair, and then stays as it is for the life of the process.
The clock domain of a rank is therefore smooth, whatever is done to the wall clock, and the service has no step to find.

All ranks of a machine must share one offset, since they are one clock domain. Two processes that read their own pair agree within
a microsecond unless the wall clock was stepped between their starts; so the first process of a job on a machine leaves
its offset in a small file, and the others take it from there. Where no file can be shared, the offset is the process's own.

With each batch the pair is read again. A pair that differs from the last one by more than SMALLEST_STEP_NS is a step of the wall clock;
it is reported as a mark, for people who compare with logs, and changes nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
import time
from pathlib import Path

SMALLEST_STEP_NS = 1_000_000
SAME_NS = 1_000_000  # offsets of one machine without a step between them differ by far less
FRESH_NS = 24 * 3600 * 1_000_000_000  # a file this old that disagrees is of another run
READINGS = 5

mono_ns = time.monotonic_ns


def pause(seconds: float) -> None:
    """Sleeps, and lets other threads have the interpreter."""
    time.sleep(seconds)


def read_offset_ns() -> int:
    """Wall clock minus monotonic clock, by the tightest of a few readings."""
    best_width, best = None, 0
    for _ in range(READINGS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best_width is None or after - before < best_width:
            best_width, best = after - before, wall - (before + after) // 2
    return best


class Clock:
    """The clock of this process. `epoch_ns` of a stamp is the stamp plus `offset_ns`."""

    __slots__ = ("_pair_ns", "offset_ns", "shared")

    def __init__(self, offset_ns: int, *, shared: bool) -> None:
        self.offset_ns, self.shared = offset_ns, shared
        self._pair_ns = read_offset_ns()

    def wall_step_ns(self) -> int | None:
        """How far the wall clock was stepped since the last call, None if it was not."""
        now = read_offset_ns()
        moved, self._pair_ns = now - self._pair_ns, now
        return moved if abs(moved) >= SMALLEST_STEP_NS else None


def machine_clock(job: str, attempt: int) -> Clock:
    """The clock that all processes of this attempt of a job on this machine share."""
    own = read_offset_ns()
    try:
        return Clock(_shared_offset_ns(_file_of(job, attempt), own), shared=True)
    except (OSError, ValueError, KeyError, TypeError):
        return Clock(own, shared=False)


def _file_of(job: str, attempt: int) -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    # Processes in different time namespaces have different monotonic clocks.
    space = str(Path("/proc/self/ns/time").readlink()) if Path("/proc/self/ns/time").is_symlink() else ""
    key = hashlib.sha256("\0".join((boot, space, job, str(attempt))).encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"crossrank-clock-{os.getuid()}-{key}.json"


def _shared_offset_ns(path: Path, own: int) -> int:
    """The offset in the file, made from `own` where there is none yet or only one of a run long over."""
    for _ in range(3):
        found = _read(path)
        if found is not None:
            offset, made = found
            age = time.monotonic_ns() - made
            if abs(offset - own) <= SAME_NS or 0 <= age < FRESH_NS:
                return offset
            path.unlink(missing_ok=True)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")  # several threads may be here at once
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="ascii") as out:
            json.dump({"offset_ns": own, "made_ns": time.monotonic_ns()}, out)
        try:
            os.link(draft, path)  # fails if another process was first: then its offset is read
        except FileExistsError:
            continue
        finally:
            draft.unlink(missing_ok=True)
        return own
    raise OSError("the clock file changes all the time")


def _read(path: Path) -> tuple[int, int] | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, encoding="ascii") as text:
        if os.fstat(handle).st_uid != os.getuid():
            raise OSError("the clock file belongs to somebody else")
        found = json.loads(text.read(1024))
    return int(found["offset_ns"]), int(found["made_ns"])
