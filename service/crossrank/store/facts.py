"""The values the store passes between its parts about jobs: what is listed, counted, and written to the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from crossrank.model.arrays import Int32Array, Int64Array

if TYPE_CHECKING:
    from crossrank.store.memtable import Memtable


EXPIRED: Final = "expired"  # the reason under which rows are counted that retention took away


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One line of the job list. `version` grows with every change of the job; times are the service's clock."""

    job: str
    attempts: tuple[int, ...]
    version: int
    events: int  # accepted ones; several versions of one event count each
    last_received_ns: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of a job's admitted events: accepted + duplicate = admitted; conflicts are among the accepted."""

    accepted: int = 0
    duplicate: int = 0
    conflict: int = 0


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The durable part of a job's state besides its events.

    rejects: (rank or None, reason, count). topology: JSON as put last. forgot: identities were dropped from memory, so resends
    may have been stored again and every read must merge by full identity.
    """

    job: str
    version: int = 0
    tally: Tally = Tally()
    last_received_ns: int = 0
    attempts: tuple[int, ...] = ()
    forgot: bool = False
    rejects: tuple[tuple[int | None, str, int], ...] = ()
    topology: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The admitted rows of one job in one request, and what can be computed of them in the caller's thread.

    keys [n], marks [n]: see `content`. attempts: those that occur. row_bytes: memory a row takes, on average.
    """

    job: str
    events: pa.Table
    keys: Int64Array
    marks: Int32Array
    attempts: tuple[int, ...]
    row_bytes: float


@dataclass(frozen=True, slots=True)
class Frozen:
    """The content of all memtables when a seal began, and the durable facts as of that moment.

    wal_floor: log files with a lower number hold exactly what is in here or in segments.
    """

    wal_floor: int
    memtables: dict[str, Memtable]
    facts: dict[str, JobFacts]
