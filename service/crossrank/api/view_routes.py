"""What the page draws: the timeline of a window, one span and what it waited for, the heatmap, figures, data quality."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from crossrank.api.job_routes import ERRORS, INT64, Aligned, Attempt, From, Limit, To, rows_limit
from crossrank.api.reply import JsonReply
from crossrank.api.rooms import CallerParam, JobParam, RoomsParam, view_of
from crossrank.api.view_shapes import Figure, Heatmap, Quality, Search, SpanAnswer, Timeline
from crossrank.errors import NotFound
from crossrank.figures.palette import Theme
from crossrank.query.answers import figures, heatmap, quality, span, timeline
from crossrank.query.answers.breakdown_means import By
from crossrank.query.timeline_index import timeline_index

router = APIRouter(tags=["views"])
Offset = Annotated[int | None, Query(**INT64, description="ns after `base_ns`.")]
EpochNs = Annotated[int | None, Query(**INT64, description="ns since the epoch.")]
Ranks = Annotated[str, Query(max_length=4096, description="Ranks as `0-31,40`; all by default.")]
Rows = Annotated[int, Query(ge=1, le=4096, description="Most rows.")]
Columns = Annotated[int, Query(ge=1, le=10_000, description="Most columns.")]
Text = Annotated[str, Query(max_length=256, description="Part of a name, operation or group, or a whole span id.")]


@router.get("/v1/jobs/{job:path}/figures/{name}", responses={200: {"model": Figure}, **ERRORS})
def get_figure(
    rooms: RoomsParam,
    caller: CallerParam,
    job: JobParam,
    name: figures.FigureName,
    first: From = None,
    last: To = None,
    theme: Theme = "light",
    rows: Rows = 1024,
    columns: Columns = 2000,
    by: By = "step",
    base: Annotated[str | None, Query(max_length=256, description="compare: with this job; itself by default.")] = None,
    base_from: Annotated[int | None, Query(**INT64, description="compare: first step of the base.")] = None,
    base_to: Annotated[int | None, Query(**INT64, description="compare: last step of the base.")] = None,
    attempt: Attempt = None,
) -> Response:
    """A figure as plotly describes it, {data, layout, config}: the same for the page and for notebooks."""
    if base is not None and caller.job not in (None, base):
        raise NotFound(f"there is no job {base!r}", job=base)
    view = view_of(rooms, job, attempt)
    other = view if base is None else view_of(rooms, base, None)
    asked = figures.Asked(first, last, theme, rows, columns, by, other, (base_from, base_to))
    return JsonReply(figures.figure_of(view, name, asked))


@router.get("/v1/jobs/{job:path}/timeline/search", responses={200: {"model": Search}, **ERRORS})
def get_search(
    rooms: RoomsParam,
    job: JobParam,
    q: Annotated[str, Query(min_length=1, max_length=256)],
    limit: Annotated[int, Query(ge=1, le=timeline.MOST_FOUND)] = 50,
    aligned: Aligned = "repaired",
    attempt: Attempt = None,
) -> Response:
    """Spans whose name, operation or group holds `q`, by time."""
    return JsonReply(timeline.search(view_of(rooms, job, attempt), q, aligned, limit))


@router.get("/v1/jobs/{job:path}/timeline", responses={200: {"model": Timeline}, **ERRORS})
def get_timeline(
    rooms: RoomsParam,
    job: JobParam,
    from_ns: EpochNs = None,
    to_ns: EpochNs = None,
    from_: Annotated[int | None, Query(alias="from", **INT64, description="Instead of from_ns: ns after `base_ns`.")] = None,
    to: Offset = None,
    width: Annotated[int, Query(ge=1, le=16_384, description="Pixels.")] = 1200,
    ranks: Ranks = "",
    rows: Annotated[int, Query(ge=1, le=timeline.MOST_ROWS, description="Most rows; a row is a lane of a rank.")] = 256,
    row_from: Annotated[int, Query(ge=0, le=2**31 - 1, description="First of the chosen rows that is answered.")] = 0,
    locate: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="A rank whose row is asked for.")] = None,
    aligned: Aligned = "repaired",
    kinds: Annotated[str, Query(max_length=256, description="Only these kinds, with commas.")] = "",
    q: Text = "",
    attempt: Attempt = None,
) -> Response:
    """A window of the timeline, reduced to what so many pixels show: bars, arrows, critical path, steps, clock bounds."""
    view = view_of(rooms, job, attempt)
    base = timeline_index(view.derived, aligned).base_ns
    first = from_ if from_ is not None else None if from_ns is None else from_ns - base
    last = to if to is not None else None if to_ns is None else to_ns - base
    window = timeline.Window(first, last, width, ranks, rows, aligned, kinds, q, row_from, locate)
    return JsonReply(timeline.timeline(view, window))


@router.get("/v1/jobs/{job:path}/spans/{rank}/{span_id}", responses={200: {"model": SpanAnswer}, **ERRORS})
def get_span(
    rooms: RoomsParam,
    job: JobParam,
    rank: Annotated[int, Path(ge=0, le=2**31 - 1)],
    span_id: Annotated[str, Path(max_length=64)],
    attempt: Attempt = None,
) -> Response:
    """One span with its attributes, aligned and raw times, what had to happen first and who waited for it."""
    return JsonReply(span.span_answer(view_of(rooms, job, attempt), rank, span_id))


@router.get("/v1/jobs/{job:path}/heatmap", responses={200: {"model": Heatmap}, **ERRORS})
def get_heatmap(
    rooms: RoomsParam,
    job: JobParam,
    first: From = None,
    last: To = None,
    rows: Rows = 1024,
    columns: Columns = 1000,
    attempt: Attempt = None,
) -> Response:
    """Rank x step: how much too long each rank worked; a cell is the largest delay of what it stands for."""
    return JsonReply(heatmap.heatmap(view_of(rooms, job, attempt), first=first, last=last, rows=rows, columns=columns))


@router.get("/v1/jobs/{job:path}/quality", responses={200: {"model": Quality}, **ERRORS})
def get_quality(rooms: RoomsParam, job: JobParam, limit: Limit = None, attempt: Attempt = None) -> Response:
    """Rejected, duplicate, conflicting, missing, unmatched and open, by rank and reason, each with what it means."""
    return JsonReply(quality.quality(view_of(rooms, job, attempt), limit=rows_limit(rooms, limit)))
