"""The identity runs of a data folder: `<data>/identities/`, one for each segment, merged to larger ones where there are many.

    salt                      of the keys, chosen once: nobody outside can prepare span ids that crowd one corner
    00000007.ids              of segment 7
    00000007-00000071.ids     of large segments between these two, those of one job

Every event asks every run of its job, so runs of segments that compaction leaves alone are merged by eights, and those again. Whatever
is here can be made anew from the segments and is, when it is missing: a run is used for a segment only if it names its checksum.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.store.identity_run import IdentityRun, Part, merged, of_keys, read
from crossrank.store.segment import SegmentInfo
from crossrank.store.source import DamagedSegment, SegmentFile
from crossrank.store.wal import sync_folder

_NAME: Final = re.compile(r"(\d{8})(?:-(\d{8}))?\.ids")
_SALT_BYTES: Final = 8
_FAN: Final = 8
_PARTS_MAX: Final = _FAN * _FAN


class IdentityRuns:
    """All runs of one data folder. Its methods may be called from any thread."""

    def __init__(self, data: Path, known: Sequence[SegmentInfo]) -> None:
        """known: the segments there are; files of others are removed. On a full disk everything is held in memory only."""
        self._folder = data / "identities"
        self.salt = self._read_salt()
        self._lock = threading.RLock()
        self._live = {Part(s.path, s.crc32c) for s in known}
        self._by_part: dict[Part, IdentityRun] = {}
        self._paths: dict[int, Path] = {}  # of the runs held, by id; a run without a file is not there
        self._sizes: dict[Path, int] = {}  # of all files; asking the folder each second would cost too much where there are many
        self._merged: dict[tuple[int, int], Path] = {}  # files of several segments not read yet, by first and last
        numbers = np.sort(np.array([_number(s.path) for s in known], np.int64))
        for path in sorted(self._folder.glob("*")):
            name = _NAME.fullmatch(path.name)
            if name is None:
                if path.name != "salt":
                    self._unlink(path)
                continue
            first, last = int(name[1]), int(name[2] or name[1])
            if not np.searchsorted(numbers, last, "right") - np.searchsorted(numbers, first, "left"):
                self._unlink(path)
                continue
            self._sizes[path] = path.stat().st_size
            if first != last:
                self._merged[first, last] = path

    def _read_salt(self) -> int:
        path = self._folder / "salt"
        with contextlib.suppress(OSError):
            known = path.read_bytes()
            if len(known) == _SALT_BYTES:
                return int.from_bytes(known, "little")
        salt = secrets.token_bytes(_SALT_BYTES)
        with contextlib.suppress(OSError):  # the next start chooses another one, and makes the runs anew
            self._folder.mkdir(exist_ok=True)
            path.write_bytes(salt)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(self._folder)
        return int.from_bytes(salt, "little")

    def add(self, info: SegmentInfo, keys: Int64Array) -> None:
        """Makes the run of a segment that was just written, of the keys of its rows."""
        run = of_keys(keys, Part(info.path, info.crc32c), salt=self.salt)
        with self._lock:
            self._live.add(run.parts[0])
            self._keep(run, self._folder / f"{_number(info.path):08d}.ids")

    def of(self, segments: Sequence[SegmentFile]) -> tuple[list[tuple[IdentityRun, list[SegmentFile | None]]], bool]:
        """The runs that together hold the identities of these segments of one job, and whether all segments are in one.

        With each run the segments of its parts, None where one is not among those asked for. What is missing is made.
        """
        wanted = {Part(s.info.path, s.info.crc32c): s for s in segments}
        is_whole = True
        runs: dict[int, IdentityRun] = {}
        with self._lock:
            self._open_merged(segments)
            for part, segment in wanted.items():
                run = self._by_part.get(part) or self._read_single(part) or self._made(part, segment)
                if run is None:
                    is_whole = False
                else:
                    runs[id(run)] = run
        return [(run, [wanted.get(p) for p in run.parts]) for run in runs.values()], is_whole

    def _open_merged(self, segments: Sequence[SegmentFile]) -> None:
        if not self._merged or not segments:
            return
        numbers = [_number(s.info.path) for s in segments]
        for (first, last), path in list(self._merged.items()):
            if min(numbers) <= last and first <= max(numbers):
                del self._merged[first, last]
                run = read(path, salt=self.salt)
                if run is not None and self._live.intersection(run.parts):
                    self._hold(run, path)
                else:
                    self._unlink(path)

    def _read_single(self, part: Part) -> IdentityRun | None:
        path = self._folder / f"{_number(part.path):08d}.ids"
        run = read(path, salt=self.salt)
        if run is None or run.parts != (part,):
            return None
        self._hold(run, path)
        return run

    def _made(self, part: Part, segment: SegmentFile) -> IdentityRun | None:
        try:
            keys = [segment.identities(group, self.salt)[0] for group in range(len(segment.group_starts()))]
        except DamagedSegment:
            return None
        run = of_keys(np.concatenate([np.zeros(0, np.int64), *keys]), part, salt=self.salt)
        self._keep(run, self._folder / f"{_number(part.path):08d}.ids")
        return run

    def _keep(self, run: IdentityRun, path: Path) -> None:
        """Holds a new run, and writes its file if that can be done: without one it is made again at the next start."""
        with contextlib.suppress(OSError):
            run.write(path)
            self._sizes[path] = path.stat().st_size
            self._hold(run, path)
            return
        self._hold(run, None)

    def _hold(self, run: IdentityRun, path: Path | None) -> None:
        for part in self._live.intersection(run.parts):
            self._by_part[part] = run
        if path is not None:
            self._paths[id(run)] = path

    def drop(self, infos: Sequence[SegmentInfo]) -> None:
        """These segments are gone: runs of which nothing is left are removed."""
        with self._lock:
            gone = [Part(i.path, i.crc32c) for i in infos]
            self._live.difference_update(gone)
            runs = {id(run): run for part in gone if (run := self._by_part.pop(part, None)) is not None}
            for run in runs.values():
                if not any(self._by_part.get(p) is run for p in run.parts):
                    self._remove(run)
            for part in gone:
                self._unlink(self._folder / f"{_number(part.path):08d}.ids")

    def _remove(self, run: IdentityRun) -> None:
        path = self._paths.pop(id(run), None)
        if path is not None:
            self._unlink(path)

    def _unlink(self, path: Path) -> None:
        self._sizes.pop(path, None)
        with contextlib.suppress(OSError):  # removed at the next start
            path.unlink(missing_ok=True)

    def merge(self, segments: Sequence[SegmentFile], *, rows_min: int, go_on: Callable[[], bool]) -> None:
        """Merges neighbouring runs of segments of one job with at least `rows_min` rows, which stay as they are."""
        while go_on():
            runs = self.of([s for s in segments if s.info.rows >= rows_min])[0]
            live = {p for run, held in runs for p, s in zip(run.parts, held, strict=True) if s is not None}
            chosen = _to_merge([run for run, _ in runs])
            if not chosen:
                return
            new = merged(chosen, live, salt=self.salt)
            numbers = [_number(p.path) for p in new.parts]
            with self._lock:
                self._keep(new, self._folder / f"{min(numbers):08d}-{max(numbers):08d}.ids")
                for run in chosen:
                    self._remove(run)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(list(self._sizes.values()))


def _to_merge(runs: Sequence[IdentityRun]) -> list[IdentityRun]:
    """The first neighbours of one size, as many as are worth it."""
    for parts in (1, _FAN):
        alike: list[IdentityRun] = []
        for run in runs:
            fits = parts <= len(run.parts) < parts * _FAN and len(run.parts) + sum(len(r.parts) for r in alike) <= _PARTS_MAX
            alike = [*alike, run] if fits else []
            if len(alike) == _FAN:
                return alike
    return []


def _number(path: str) -> int:
    return int(Path(path).stem)
