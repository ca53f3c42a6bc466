"""The identity tables of all jobs within one memory bound: which are held, which are rebuilt, which must forget.

A table is a cache of what is stored, so an idle job's table is simply dropped and rebuilt when the job is posted to again. Only
when jobs in use together hold more than the bound does the biggest one forget the older half of its identities. Dropping tables
of jobs in use instead would rebuild them at every post.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from crossrank.model.arrays import Int32Array, Int64Array
from crossrank.store.identity import IdentityTable

Take = Callable[[Int64Array, Int32Array], None]
_IDLE_NS: Final = 600_000_000_000


class Remembered:
    """Identity tables by job. For the thread that owns the log order; `len` may be asked from any."""

    def __init__(self, identities_max: int, stored: Callable[[str, Take], bool], monotonic_ns: Callable[[], int]) -> None:
        """identities_max: bound on the marks of all tables together.

        stored: hands all stored keys and marks of a job to a callable and returns whether all of them could be read.
        """
        self._max = identities_max
        self._stored = stored
        self._monotonic_ns = monotonic_ns
        self._tables: dict[str, IdentityTable] = {}
        self._used_ns: dict[str, int] = {}
        self._forgot: set[str] = set()

    def __len__(self) -> int:
        return sum(len(t) for t in list(self._tables.values()))

    def table(self, job: str) -> IdentityTable:
        """The job's table, rebuilt from what is stored when it is not in memory."""
        self._used_ns[job] = self._monotonic_ns()
        table = self._tables.get(job)
        if table is None:
            table = self._tables[job] = IdentityTable()

            def take(keys: Int64Array, marks: Int32Array) -> None:
                table.remember(keys, marks)
                self.keep_bound()

            if not self._stored(job, take):
                self._forgot.add(job)
        return table

    def drop(self, job: str) -> None:
        """Forgets a deleted job."""
        self._tables.pop(job, None)
        self._used_ns.pop(job, None)
        self._forgot.discard(job)

    def keep_bound(self) -> None:
        """Makes the tables fit the bound again."""
        while len(self) > self._max:
            oldest = min(self._used_ns, key=lambda job: (self._used_ns[job], job))
            if self._monotonic_ns() - self._used_ns[oldest] > _IDLE_NS:
                self.drop_table(oldest)
                continue
            biggest = max(self._tables, key=lambda job: (len(self._tables[job]), job))
            if self._tables[biggest].forget_older():
                self._forgot.add(biggest)

    def drop_table(self, job: str) -> None:
        """Takes a table out of memory; it is rebuilt when it is asked for again."""
        del self._tables[job]
        del self._used_ns[job]

    def take_forgotten(self) -> set[str]:
        """The jobs that lost identities since the last call."""
        forgot, self._forgot = self._forgot, set()
        return forgot
