"""What was received, as far back as events are kept and in bounded memory: the relation of each event of a batch to what came before.

    not in a segment yet      a hash table of the job, as small as the memtables       exact
    in a segment              the identity runs of the job, mapped from files          "new" or "maybe"
                              for a "maybe" the segment itself, a row group at a time  exact

So nothing is ever forgotten, and the memory of the process does not grow with the job. Only where a segment that may know an event cannot
be read is it taken for new; such a job is marked, and every read of it merges by full identity, so that answers stay right even so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crossrank.model.arrays import Int8Array, Int64Array
from crossrank.store.facts import Part
from crossrank.store.identity import NO_VERSIONS, IdentityTable, Versions
from crossrank.store.identity_run import IdentityRun
from crossrank.store.identity_runs import IdentityRuns
from crossrank.store.merge import column_values
from crossrank.store.snapshot import Hold
from crossrank.store.source import SegmentFile
from crossrank.store.stored_versions import StoredVersions

Segments = tuple[SegmentFile, ...]
_Runs = list[tuple[IdentityRun, list[SegmentFile | None]]]


class Remembered:
    """Tables and runs by job. For the thread that owns the log order; `len` may be asked from any."""

    def __init__(
        self,
        runs: IdentityRuns,
        *,
        groups_max: int,
        segments: Callable[[str], Segments],
        hold: Callable[[str, Segments], Hold | None],
    ) -> None:
        """groups_max: row groups of segments kept in memory for resends.

        segments: those of a job as of now. hold: keeps them on disk as long as the result lives; None when the job has others by now.
        """
        self._runs = runs
        self._stored = StoredVersions(runs.salt, groups_max)
        self._segments, self._hold = segments, hold
        self._tables: dict[str, IdentityTable] = {}
        self._known: dict[str, tuple[Segments, _Runs]] = {}
        self._forgot: set[str] = set()

    def __len__(self) -> int:
        return sum(len(t) for t in list(self._tables.values()))

    def classify(self, part: Part) -> Int8Array:
        """[n] NEW, DUPLICATE, AMENDING or CONFLICTING for the rows of a batch, which are known from now on."""
        table = self._tables.setdefault(part.job, IdentityTable())
        return table.classify(part.keys, part.marks, self._versions(part, table.unseen(part.keys, part.marks)))

    def _versions(self, part: Part, asked: Int64Array) -> Versions:
        """What segments hold of these rows' identities."""
        while True:
            segments = self._segments(part.job)
            if not segments or not len(asked):
                return NO_VERSIONS
            suspects = _suspects(self._runs_of(part.job, segments), part.keys, asked)
            if not suspects:
                return NO_VERSIONS
            held = self._hold(part.job, segments)
            if held is None:  # compacted in the meantime
                continue
            versions, is_readable = self._stored.find(part.keys, part.marks, column_values(part.events, "start_ns"), suspects)
            if not is_readable:
                self._forgot.add(part.job)
            del held
            return versions

    def _runs_of(self, job: str, segments: Segments) -> _Runs:
        known = self._known.get(job)
        if known is None or known[0] is not segments:
            runs, is_whole = self._runs.of(segments)
            if not is_whole:
                self._forgot.add(job)
            known = self._known[job] = segments, runs
        return known[1]

    def rotate(self) -> None:
        """A seal begins, and the one before it is finished: what that one wrote is in segments and need not be held."""
        for job, table in list(self._tables.items()):
            table.rotate()
            if not len(table):
                self.drop(job)

    def drop(self, job: str) -> None:
        """Lets go of a job that is deleted, or of which everything is in segments."""
        self._tables.pop(job, None)
        self._known.pop(job, None)

    def take_forgotten(self) -> set[str]:
        """The jobs of which something could not be read since the last call."""
        forgot, self._forgot = self._forgot, set()
        return forgot


def _suspects(runs: _Runs, keys: Int64Array, asked: Int64Array) -> Sequence[tuple[SegmentFile, Int64Array]]:
    """The segments that may hold some of the asked rows, newest first, and those rows."""
    found = []
    for run, segments in reversed(runs):
        rows, places = run.probe(keys, asked)
        for place in np.unique(places)[::-1].tolist():
            segment = segments[place]
            if segment is not None:
                found.append((segment, np.unique(rows[places == place])))
    return found
