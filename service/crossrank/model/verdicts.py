"""What is said about a job that stands still or whose ranks disagree: who holds it up, who waits, who called something else.

A verdict names a rank only when the events leave no other reading. What they cannot decide is kept apart: `suspects` (one of them
it must be), `unseen` (ranks without any data), `candidates` of a mismatch without a majority.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MismatchClass = Literal["skipped", "extra", "op", "size", "dtype", "order", "membership"]
Reason = Literal["not_entered", "host_stopped", "device_stopped", "desynchronised", "deadlock"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One cause of disagreement inside one group; what disagrees only because of it is counted in `followers`.

    odd_ranks: who did it, by majority; () where there is none, then `candidates` says between whom.
    majority, odd: what the others called, and what each odd rank (or candidate) called.
    count: operations skipped or called too much. window: sequence numbers that all members seen have in common, None if there
    are none. unseen: members without any operation of the group.
    """

    class_: MismatchClass
    group: str
    members: tuple[int, ...]
    seq: int
    step: int | None
    odd_ranks: tuple[int, ...]
    candidates: tuple[int, ...]
    majority: str
    odd: dict[int, str]
    count: int
    followers: int
    window: tuple[int, int] | None
    unseen: tuple[int, ...]
    confidence: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation that some ranks have entered and none has left.

    kind: COLLECTIVE, or SEND or RECV as the waiting rank sees it, then `peer` is the other one (else -1). group: index into
    `trace.groups`, -1 for none. since_ns: first arrival, aligned.
    """

    kind: int
    group: int
    peer: int
    seq: int | None
    op: str
    step: int | None
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    since_ns: int


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that holds the job up, and the proof in words. at: the operation the others wait in."""

    rank: int
    reason: Reason
    group: str | None
    seq: int | None
    op: str | None
    proof: str


@dataclass(frozen=True, slots=True)
class Standstill:
    """What is open in a job and whom it waits for; whether that is a hang is a question of time (analysis.hangs).

    inside: operations that all members have entered and none has left. suspects: ranks of which at least one holds the job up.
    unseen: ranks without data that are waited for. cycle: ranks that wait for each other, in order.
    dumped: the open operations are from dumps, which are written when a job hangs.
    """

    pending: tuple[Pending, ...]
    inside: tuple[Pending, ...]
    culprits: tuple[Culprit, ...]
    suspects: tuple[int, ...]
    unseen: tuple[int, ...]
    cycle: tuple[int, ...]
    skipped: tuple[Mismatch, ...]
    dumped: bool

    @property
    def since_ns(self) -> int | None:
        """When the first of the open operations was entered; None when nothing is open."""
        return min((p.since_ns for p in self.pending + self.inside), default=None)


@dataclass(frozen=True, slots=True)
class Silence:
    """How long nothing has come, against what is usual. All ns.

    now_ns: on the common timeline. threshold_ns: open for longer than this is a hang.
    """

    now_ns: int
    silent_ns: int
    threshold_ns: int


@dataclass(frozen=True, slots=True)
class Hang:
    """The verdict at one moment. collect: what to gather next where the events cannot decide; "" where they can."""

    hung: bool
    since_ns: int | None
    silence: Silence
    culprits: tuple[Culprit, ...]
    standstill: Standstill
    sentence: str
    collect: str
