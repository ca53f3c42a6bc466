"""The shapes of what the page draws. Times are integer ns after `base_ns` unless named otherwise."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from crossrank.api.shapes import Carried, Shape


class Bars(Shape):
    """Columns of equal length, one entry a bar."""

    row: list[int]
    depth: list[int]
    start: list[int]
    end: list[int]
    kind: list[int] = Field(description="Into `kinds`; the one with most time where several spans became one bar.")
    name: list[int] = Field(description="Into `names`; of the longest span of the bar.")
    count: list[int] = Field(description="Spans in the bar.")
    step: list[int | None]
    id: list[str | None] = Field(description="Span id of a bar of one span.")
    open: list[int] = Field(description="1: not ended yet, drawn to the end of the data.")


class TimelineRow(Shape):
    """A lane of a rank."""

    rank: int
    lane: str
    depth: int = Field(description="Levels of nesting on the row.")


class PathBar(Shape):
    """A stretch of a critical path; `row` is null when its lane is not shown."""

    step: int
    row: int | None
    rank: int
    lane: str
    kind: str
    name: str
    start: int
    end: int
    id: str | None


class Timeline(Carried):
    """A window of the timeline as a screen can show it."""

    base_ns: str = Field(description="ns since the epoch, as text: it does not fit JavaScript's numbers.")
    from_ns: int
    to_ns: int
    end_ns: int = Field(description="Last end of the job.")
    aligned: str
    pixel_ns: int = Field(description="Spans shorter than this that begin in the same pixel are one bar.")
    ranks: list[int]
    rows: list[TimelineRow]
    row_from: int
    total_rows: int = Field(description="Rows of all ranks asked for.")
    located_row: int | None = Field(description="Place of the rank of `locate` among them.")
    kinds: list[str]
    names: list[str]
    spans: Bars
    arrows: list[dict[str, Any]]
    path: list[PathBar]
    steps: list[dict[str, int]]
    bounds: list[dict[str, int | None]]


class FoundSpan(Shape):
    """A span that was searched for."""

    rank: int
    lane: str
    name: str
    kind: str
    step: int | None
    start: int
    end: int
    id: str


class Search(Carried):
    """Spans found, by time."""

    base_ns: str
    found: list[FoundSpan]
    total: int


class TypedArray(Shape):
    """Numbers as plotly reads them: base64 of little-endian float32."""

    dtype: str
    bdata: str
    shape: str = Field(description="`rows, columns`.")


class Heatmap(Carried):
    """Rank x step; a row stands for the ranks up to the next row's first, a column likewise."""

    ranks: list[int] = Field(description="First rank of each row.")
    steps: list[int] = Field(description="First step of each column.")
    last_rank: int | None
    last_step: int | None
    unit: str
    z: TypedArray = Field(description="Delay in ns; NaN where nobody was seen.")
    who: list[list[int]] | None = Field(description="The rank each cell's delay is of; null where a row is one rank.")
    max_ns: float | None
    hottest_rank: int | None = Field(description="The rank with most delay over the steps asked about; null without any.")


class Figure(Shape):
    """A figure as plotly describes it."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    config: dict[str, Any]


class SpanNear(Shape):
    """A span that a span depends on, or that waited for it."""

    rank: int
    span_id: str
    lane: str
    name: str
    kind: str
    start: int
    end: int | None


class SpanAnswer(Carried):
    """A span: the event as in /events, with times as offsets from `base_ns` beside."""

    base_ns: str
    span: dict[str, Any]
    before: list[SpanNear] = Field(description="What had to happen before its start, and what its end waited for; `edge` says how.")
    waited: list[SpanNear] = Field(description="Who waited for it, longest first; `wait_ns`.")
    waiters: int
    collective: dict[str, Any] | None


class QualityRow(Shape):
    """Something doubtful; rank null: not of one rank."""

    class_: str = Field(alias="class")
    rank: int | None
    reason: str
    count: int
    sentence: str


class Quality(Carried):
    """What is doubtful about the data."""

    rows: list[QualityRow]
    total: int
    totals: dict[str, int]
    accepted: int
    ranks_seen: int
    ranks_missing: int
    ranks: list[dict[str, int]] = Field(description="Per rank, counts by class and reason.")
