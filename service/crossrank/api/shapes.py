"""The shapes of answers and posted documents, for OpenAPI and for checking. Fields may be added, never renamed.

All times are aligned nanoseconds since the epoch unless named raw; durations and bounds are nanoseconds.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Answers may gain fields, so unknown ones are allowed."""

    model_config = ConfigDict(extra="allow")


class Alignment(Shape):
    reference: str | None = Field(description="Clock domain whose time the answer is in.")
    bound_ns: int | None = Field(description="Worst guaranteed bound of any clock against the reference.")
    components: int = Field(description="Groups of clocks that nothing connects with each other; 1 is good.")
    version: int = Field(
        description="Grows when aligned times told before have moved by more than 1 us; starts anew with the service."
    )
    settled_ns: int | None = Field(
        default=None, description="Of a long job: aligned times before do not change with later events unless `version` grows."
    )


class Carried(Shape):
    complete_to_ns: int | None = Field(description="Every rank seen has reported up to here.")
    alignment: Alignment
    dropped: dict[str, int] = Field(description="Events that are not in the answer, by reason.")
    truncated: bool = Field(description="Something was left out because of a limit or a damaged file.")
    partial: list[str] = Field(default=[], description="Damaged files left out, with the reason.")


class EventError(Shape):
    index: int
    reason: str
    detail: str = ""


class ProfileAsked(Shape):
    id: str
    steps: int


class EventsReceipt(Shape):
    accepted: int
    duplicate: int
    rejected: int
    reasons: dict[str, int]
    errors: list[EventError]
    received_ns: int
    sent_ns: int
    profile: ProfileAsked | None = Field(default=None, description="Only there when this rank is asked for a profile.")


class ErrorBody(Shape):
    code: str
    message: str
    detail: dict[str, Any]


class ErrorAnswer(Shape):
    error: ErrorBody


class JobEntry(Shape):
    job: str
    attempts: list[int]
    last_received_ns: int
    state: str = Field(description="live, hung or ended (nothing came for 30 s).")
    version: int | None = Field(description="Of the answers; null, as what follows, until the job is asked about.")
    ranks_seen: int | None
    ranks_missing: int | None
    steps: int | None
    last_step: int | None
    spark_ns: list[int] | None = Field(description="Step times, at most 60 values, each the longest of its stretch.")
    top_finding: dict[str, Any] | None = Field(description="As in /bottlenecks.")


class Jobs(Shape):
    jobs: list[JobEntry]


class Cause(Shape):
    kind: str
    name: str


class Straggler(Shape):
    rank: int
    cost_ns: int = Field(description="What the job would have been shorter by.")
    cost_error_ns: int
    cost_per_step_ns: int
    steps: list[int]
    cause: Cause
    confidence: float = Field(ge=0, le=1)
    evidence: list[str]


class Stragglers(Carried):
    stragglers: list[Straggler]


class Finding(Shape):
    class_: str = Field(alias="class")
    ranks: list[int]
    group: str | None
    steps: list[int]
    cost_ns: int
    cost_error_ns: int
    share: float
    confidence: float = Field(ge=0, le=1)
    sentence: str
    evidence: list[str]


class Bottlenecks(Carried):
    findings: list[Finding]


class RanksSeen(Shape):
    seen: list[int]
    missing: list[int]
    missing_count: int


class Summary(Carried):
    job: str
    attempt: int
    attempts: list[int]
    world_size: int
    ranks: RanksSeen
    hosts: list[str]
    span: dict[str, int] | None
    steps: dict[str, int | None]
    events: dict[str, Any]
    rejects: list[dict[str, Any]]
    unmatched: dict[str, int]
    joins: dict[str, int] = Field(
        description="Entries of dumps joined with spans of traces of the same rank, and kept apart, by reason."
    )
    conflicts: list[str]
    findings: list[Finding]


class Knot(Shape):
    t_ns: int
    offset_ns: int


class ClockStep(Shape):
    t_ns: int
    size_ns: int


class Domain(Shape):
    clock: str
    host: str | None
    ranks: list[int]
    component: int
    offset_ns: int = Field(description="reference = local + offset, at the first knot.")
    drift_ppm: float | None
    bound_lo_ns: int
    bound_hi_ns: int
    sigma_ns: float
    bias_floor_ns: float
    knots: list[Knot]
    clock_steps: list[ClockStep]


class Violations(Shape):
    raw: int
    after_fit: int
    after_repair: int


class Contradiction(Shape):
    from_ns: int
    to_ns: int


class DroppedSync(Shape):
    kind: str = Field(description="collective or message.")
    group: str | None
    seq: int | None
    ranks: list[int] = Field(description="Ranks of its members; at most 64.")


class Clocks(Carried):
    reference: str | None
    domains: list[Domain]
    violations: Violations
    contradictions: list[Contradiction] = Field(
        description="Stretches in which facts contradict each other, as wrongly matched or stepped clocks do: bounds were widened until they agree."
    )
    cycles: int = Field(description="Matched operations that closed a cycle, which no run can do: wrongly matched, not relied on.")
    dropped_syncs: list[DroppedSync] = Field(description="The first 100 of them.")


class Step(Shape):
    step: int
    start_ns: int
    end_ns: int
    duration_ns: int
    complete: bool
    ranks: int
    last_rank: int | None


class Steps(Carried):
    steps: list[Step]


class NextLimit(Shape):
    """What limits the step once the stretch has shrunk by `after_ns`; kind `idle`: time that no span names."""

    rank: int
    kind: str
    name: str
    after_ns: int


class PathSegment(Shape):
    """slack_ns: how much the operation can grow (0 on the path; null: the replay does not know it).

    next_limit: null when the whole stretch could go before anything else limits the step.
    """

    rank: int
    lane: str
    kind: str
    name: str
    start_ns: int
    end_ns: int
    on_path_ns: int
    slack_ns: int | None
    next_limit: NextLimit | None


class NearOperation(Shape):
    """Off the path; `slack_ns` is how much it could grow before the step gets longer. The longest of each (rank, slack)."""

    rank: int
    lane: str
    kind: str
    name: str
    start_ns: int
    end_ns: int
    slack_ns: int


class Hop(Shape):
    from_rank: int
    to_rank: int
    at_ns: int
    edge: str
    group: str | None
    seq: int | None


class CriticalPath(Carried):
    step: int
    total_ns: int
    segments: list[PathSegment]
    hops: list[Hop]
    near: list[NearOperation]
    near_truncated: bool


class Collective(Shape):
    group: str | None
    seq: int
    op: str | None
    step: int | None
    members: list[int]
    missing: list[int]
    first_arrival_ns: int
    last_arrival_ns: int
    last_arriver: int | None = Field(description="null: the clock bounds do not allow to tell.")
    spread_ns: int
    spread_bound_ns: int | None = Field(description="The spread is right within this; null when nothing relates the clocks.")
    transfer_ns: int | None
    bytes: int
    match_confidence: float = Field(ge=0, le=1, description="That the members are one operation; 1 by sequence number.")
    algbw_gbs: float | None
    busbw_gbs: float | None


class Collectives(Carried):
    collectives: list[Collective]


class Event(Shape):
    job: str
    attempt: int
    rank: int
    name: str
    kind: str
    end_ns: int | None
    span_id: str


class Events(Carried):
    events: list[Event]
    next_cursor: str | None


class TraceAnswer(Carried):
    trace_id: str
    events: list[Event]


class TopologyRank(BaseModel):
    rank: int = Field(ge=0, le=2**31 - 1)
    host: str | None = None
    clock: str | None = None
    coords: dict[str, Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]] | None = None


class TopologyGroup(BaseModel):
    name: str = Field(max_length=1024)
    ranks: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(max_length=65_536)
    desc: str | None = None


class TopologyPost(BaseModel):
    world_size: int | None = Field(default=None, ge=1, le=2**31 - 1)
    ranks: list[TopologyRank] = Field(default=[], max_length=1_000_000)
    groups: list[TopologyGroup] = Field(default=[], max_length=100_000)


class TopologyReceipt(Shape):
    world_size: int | None
    ranks: int
    groups: int


class DeriveReceipt(Shape):
    job: str
    version: int
    current: bool
    events: int


class Deleted(Shape):
    deleted: str
