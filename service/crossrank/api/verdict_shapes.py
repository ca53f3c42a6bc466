"""The shapes of answers about standstills, disagreements, shape and order of a job. Fields may be added, never renamed."""

from __future__ import annotations

from pydantic import Field

from crossrank.api.shapes import Carried, Shape


class Culprit(Shape):
    """A rank that holds the job up."""

    rank: int
    reason: str = Field(description="not_entered, host_stopped, device_stopped, desynchronised or deadlock.")
    group: str | None
    seq: int | None
    op: str | None
    proof: str


class Waiting(Shape):
    """A rank in an operation that has not ended."""

    rank: int
    group: str | None
    seq: int | None
    op: str
    peer: int | None
    step: int | None
    waits_for: list[int] = Field(description="Ranks that have not come, the first of them; empty where all have.")
    since_ns: int


class Hangs(Carried):
    """Whether the job hangs, and who holds it up."""

    hung: bool = Field(description="Something has been open for longer than this job's own rhythm explains.")
    since_ns: int | None
    sentence: str
    unseen: list[int] = Field(description="Ranks of which nothing is known.")
    culprits: list[Culprit]
    suspects: list[int] = Field(description="At least one of them holds the job up; the events do not say which.")
    deadlock: list[int] = Field(description="Ranks that wait for each other, in order.")
    waiting: list[Waiting]
    collect: str = Field(description="What to gather next where the events cannot decide.")
    now_ns: int
    silent_ns: int = Field(description="Nothing has been received for this long.")
    threshold_ns: int


class OddCall(Shape):
    """What one rank called."""

    rank: int
    called: str


class Window(Shape):
    """Sequence numbers."""

    from_seq: int
    to_seq: int


class Mismatch(Shape):
    """One cause of disagreement inside a group."""

    class_: str = Field(alias="class", description="skipped, extra, op, size, dtype, order or membership.")
    group: str
    seq: int
    step: int | None
    odd_ranks: list[int] = Field(description="By majority; empty where there is none.")
    candidates: list[int] = Field(description="Without a majority: between whom the events do not decide.")
    majority: str
    odd: list[OddCall]
    followers: int = Field(description="Later disagreements that follow from this one.")
    window: Window | None = Field(description="Numbers that all members seen have recorded.")
    unseen: list[int]
    confidence: float = Field(ge=0, le=1)
    sentence: str


class Mismatches(Carried):
    """All causes, the earliest first."""

    mismatches: list[Mismatch]


class PlacedRank(Shape):
    """A rank and where it stands."""

    rank: int
    host: str | None
    seen: bool
    stage: int | None
    coords: dict[str, int]


class PlacedGroup(Shape):
    """A process group and what it is for."""

    name: str
    kind: str
    ranks: list[int]
    scope: str | None = Field(description="intra_host or inter_host; null where hosts are not known.")


class Topology(Carried):
    """The shape of a job."""

    world_size: int
    sizes: dict[str, int] = Field(description="Ranks along each kind of parallelism.")
    ranks: list[PlacedRank]
    groups: list[PlacedGroup]
    conflicts: list[str]


class WitnessSpan(Shape):
    """One span of a chain."""

    rank: int
    span_id: str
    name: str
    start_ns: int
    end_ns: int | None


class Causality(Carried):
    """How two spans relate."""

    relation: str = Field(description="before, after or concurrent.")
    path: list[str] = Field(description="Span ids of a chain that proves it, from the earlier span to the later one.")
    spans: list[WitnessSpan]


class ConeEntry(WitnessSpan):
    """Where a lane enters a cone."""

    lane: str
    at: str = Field(description="start or end: the stamp of the span that first depends on the apex.")


class Cone(Carried):
    """All that happened after a span."""

    of: WitnessSpan
    stamps: int = Field(description="Starts and ends inside the cone.")
    ranks: list[int] = Field(description="Ranks that anything inside belongs to.")
    entries: list[ConeEntry] = Field(description="One a lane, in causal order.")


class RankTimes(Shape):
    """What a rank did with its time."""

    rank: int
    host: str | None
    waits_suffered_ns: int
    waits_caused_ns: int = Field(description="Summed over all who waited.")
    came_last: int
    steps: int
    phases_ns: dict[str, int]


class Ranks(Carried):
    """All ranks seen."""

    ranks: list[RankTimes]
    total: int
