"""A job as a file of another tool: Parquet and Arrow for data frames, Perfetto and Chrome traces for a timeline."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from crossrank.api.job_routes import ERRORS, Aligned, Attempt, From, To
from crossrank.api.rooms import JobParam, RoomsParam, view_of
from crossrank.errors import BadParameter
from crossrank.exporters import chrome, perfetto
from crossrank.query import export
from crossrank.query.aligned import How
from crossrank.query.drawing import Asked, drawing
from crossrank.query.jobview import JobView

router = APIRouter(tags=["jobs"])
Format = Literal["parquet", "arrow", "perfetto", "chrome"]
_TABLES: Final = {
    "parquet": (export.parquet_stream, "application/vnd.apache.parquet"),
    "arrow": (export.arrow_stream, "application/vnd.apache.arrow.stream"),
}
_TRACES: Final = {
    "perfetto": (perfetto.perfetto_stream, perfetto.MEDIA_TYPE, "pftrace"),
    "chrome": (chrome.chrome_stream, chrome.MEDIA_TYPE, "json"),
}
_RANGE: Final = re.compile(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?")
_RANGES_MOST: Final = 10_000


@router.get("/v1/jobs/{job:path}/export", response_class=StreamingResponse, responses=ERRORS)
def get_export(
    rooms: RoomsParam,
    job: JobParam,
    format: Annotated[Format, Query(description="Tables of all events, or a trace to look at.")] = "parquet",  # noqa: A002
    first: From = None,
    last: To = None,
    ranks: Annotated[str | None, Query(max_length=100_000, description="Of a trace: these ranks.", examples=["0,3,8-15"])] = None,
    top: Annotated[
        int | None, Query(ge=1, le=65_536, description="Of a trace: so many ranks, those that tell most; 16 by default.")
    ] = None,
    aligned: Aligned = "repaired",
    attempt: Attempt = None,
) -> Response:
    """All events with raw and aligned times as a table, or chosen ranks as a trace; streamed."""
    view = view_of(rooms, job, attempt)
    if format in _TABLES:
        return _table(view, format, (first, last), aligned, {"ranks": ranks, "top": top})
    if ranks is not None and top is not None:
        raise BadParameter("give ranks or top, not both", field="top")
    asked = Asked(
        ranks=None if ranks is None else rank_ranges(ranks),
        top=top or rooms.limits.export_ranks,
        first=first,
        last=last,
        aligned=aligned,
        spans_most=rooms.limits.export_spans,
    )
    return _trace(view, format, asked)


def _table(view: JobView, format_: str, steps: tuple[int | None, int | None], aligned: How, others: dict[str, Any]) -> Response:
    for name, value in others.items():
        if value is not None:
            raise BadParameter(f"{name} is for the formats perfetto and chrome; {format_} holds all ranks", field=name)
    write, media = _TABLES[format_]
    batches = export.aligned_batches(view, first_step=steps[0], last_step=steps[1], how=aligned)
    headers = {"Content-Disposition": f'attachment; filename="events.{format_}"'}
    return StreamingResponse(write(batches), media_type=media, headers=headers)


def _trace(view: JobView, format_: str, asked: Asked) -> Response:
    write, media, suffix = _TRACES[format_]
    picture = drawing(view, asked)
    headers = {
        "Content-Disposition": f'attachment; filename="trace.{suffix}"',
        "X-Crossrank-Truncated": "true" if picture.truncated else "false",
        "X-Crossrank-Ranks": str(len(picture.processes) - 1),
    }
    return StreamingResponse(write(picture), media_type=media, headers=headers)


def rank_ranges(text: str) -> list[tuple[int, int]]:
    """`0,3,8-15` as ranges [first, last]. Raises BadParameter."""
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or len(ranges) >= _RANGES_MOST:
            raise BadParameter(f"ranks: {part[:40]!r} is neither a rank nor a range such as 8-15", field="ranks")
        first = int(found[1])
        ranges.append((first, first if found[2] is None else int(found[2])))
    return ranges
