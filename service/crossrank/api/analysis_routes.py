"""Questions about where time goes and what moved: breakdown, comparison, bandwidth, metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from crossrank.api.job_routes import ERRORS, INT64, Attempt, From, Limit, To, rows_limit
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import CallerParam, JobParam, RoomsParam, view_of
from crossrank.api.shapes import Carried, Shape
from crossrank.errors import NotFound
from crossrank.query.answers import anomalies, bandwidth, breakdown, causes, compare

router = APIRouter(tags=["jobs"])
RankOf = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only this rank.")]


class BreakdownRow(Shape):
    """One rank's step; the parts sum to total_ns exactly."""

    step: int
    rank: int
    total_ns: int
    parts_ns: dict[str, int] = Field(description="compute, data, checkpoint, copy, other, transfer, wait, sync, idle, unknown.")
    overlapped_ns: int = Field(description="Communication beside work; part of no sum.")
    closed: bool


class BreakdownAnswer(Carried):
    """Rows by step, then rank."""

    rows: list[BreakdownRow]
    total: int


class Moved(Shape):
    """Median time on the critical path of a step, before and after; band_ns is the 95 % band of the change, null: cannot tell."""

    by: Literal["step", "phase", "rank", "group"]
    what: str
    before_ns: int
    after_ns: int
    change_ns: int
    band_ns: int | None
    moved: bool


class MovedLink(Shape):
    """A ring fed by a slow link: into to_rank, from one of from_ranks."""

    group: str
    op: str
    to_rank: int
    from_ranks: list[int]
    behind_ns: int
    band_ns: int
    transfer_before_ns: int
    transfer_after_ns: int
    sentence: str


class CompareAnswer(Carried):
    """ratio = step after / before."""

    steps_before: int
    steps_after: int
    step: Moved
    ratio: float | None
    ratio_band: float | None
    parts: list[Moved]
    links: list[MovedLink]


class SpeedRow(Shape):
    """A group and operation, or a link (group null). below: median over best, when that is under 0.7."""

    group: str | None
    op: str
    ranks: list[int]
    operations: int
    latency_ns: int | None
    bandwidth_gbs: float | None
    residual_ns: int | None
    busbw_gbs: float | None
    best_gbs: float | None
    below: float | None
    reason: str | None


class BandwidthAnswer(Carried):
    """Those below their best first."""

    speeds: list[SpeedRow]
    total: int


class AnomalyRow(Shape):
    """One value of a metric; null where it was no number."""

    class_: Literal["not_finite", "loss_spike", "gradient_explosion", "gradient_vanishing"] = Field(alias="class")
    metric: str
    rank: int
    step: int | None
    at_ns: int
    value: float | None
    usual: float | None
    limit: float | None
    batch: str | None


class AnomaliesAnswer(Carried):
    """By time."""

    anomalies: list[AnomalyRow]
    total: int


class MetricCause(Shape):
    """influence: product of the weights along the path, and of a decay per hop."""

    metric: str
    influence: float
    path: list[str]


class MetricEdge(Shape):
    """Granger test (weight, adjusted p_value) and mutual information in nats."""

    from_metric: str
    to_metric: str
    weight: float
    p_value: float
    information: float


class CausesAnswer(Carried):
    """Statistical: metrics that follow something nobody posted look like cause and effect."""

    of: str
    kind: Literal["statistical"]
    steps: int
    enough_steps: bool
    causes: list[MetricCause]
    edges: list[MetricEdge]


@router.get("/v1/jobs/{job:path}/breakdown", responses={200: {"model": BreakdownAnswer}, **ERRORS})
def get_breakdown(
    rooms: RoomsParam,
    job: JobParam,
    first: From = None,
    last: To = None,
    rank: RankOf = None,
    limit: Limit = None,
    attempt: Attempt = None,
) -> Response:
    """What every rank did with every step: compute, exposed communication (waits, transfers), data, idle; exact sums."""
    view = view_of(rooms, job, attempt)
    return JsonReply(breakdown.breakdown_of(view, first=first, last=last, rank=rank, limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/compare", responses={200: {"model": CompareAnswer}, **ERRORS})
def get_compare(
    rooms: RoomsParam,
    caller: CallerParam,
    job: JobParam,
    base: Annotated[str | None, Query(max_length=256, description="Job to compare with; this one by default.")] = None,
    base_from: Annotated[int | None, Query(**INT64, description="First step of the base.")] = None,
    base_to: Annotated[int | None, Query(**INT64, description="Last step of the base.")] = None,
    first: From = None,
    last: To = None,
    limit: Limit = None,
    attempt: Attempt = None,
) -> Response:
    """What moved on the critical path since `base`, by phase, rank and group, with noise bands; slow links inside rings."""
    if base is not None and caller.job not in (None, base):  # the gate knows the job of the address only
        raise NotFound(f"there is no job {base!r}", job=base)
    view = view_of(rooms, job, attempt)
    before = view if base is None else view_of(rooms, base, None)
    return JsonReply(compare.comparison(before, view, (base_from, base_to), (first, last), rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/bandwidth", responses={200: {"model": BandwidthAnswer}, **ERRORS})
def get_bandwidth(
    rooms: RoomsParam,
    job: JobParam,
    peak_gbs: Annotated[
        float | None, Query(gt=0, le=1e6, description="Peak bus bandwidth; each group's own best by default.")
    ] = None,
    limit: Limit = None,
    attempt: Attempt = None,
) -> Response:
    """Latency and bandwidth of every group and link by a line through its sizes; groups below 70 % of their best."""
    return JsonReply(bandwidth.bandwidth(view_of(rooms, job, attempt), peak_gbs=peak_gbs, limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/anomalies", responses={200: {"model": AnomaliesAnswer}, **ERRORS})
def get_anomalies(
    rooms: RoomsParam,
    job: JobParam,
    sigmas: Annotated[float, Query(gt=0, le=1000, description="How far a loss must leave its window.")] = 3.0,
    limit: Limit = None,
    attempt: Attempt = None,
) -> Response:
    """Posted metrics that are no number, losses that spike, gradients that explode or vanish."""
    return JsonReply(anomalies.anomalies(view_of(rooms, job, attempt), sigmas=sigmas, limit=rows_limit(rooms, limit)))


@router.get("/v1/jobs/{job:path}/causes", responses={200: {"model": CausesAnswer}, **ERRORS})
def get_causes(
    rooms: RoomsParam, job: JobParam, of: Annotated[str, Query(max_length=256, description="A metric.")], attempt: Attempt = None
) -> Response:
    """Metrics that may stand behind another one, walked back with decaying influence. Statistical, not a fact."""
    return JsonReply(causes.causes(view_of(rooms, job, attempt), of))
