"""OpenTelemetry spans to columns, whichever encoding they came in.

Both OTLP decoders turn what they read into the plain values below (Resource, Scope, Span) and add them here, so that a span gives
the same row from protobuf and from JSON. What has no column of its own (resource, scope, span events, links with their
attributes, status, trace_state, flags, span kind, dropped counts) is kept as one JSON object in `otel`; zero and empty parts are
left out, as the protocol does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa

from crossrank.errors import BodyTooLarge
from crossrank.ingest import reasons
from crossrank.ingest.ids import SPAN_ID_BYTES, TRACE_ID_BYTES
from crossrank.ingest.otlp_names import find_columns, resource_columns, service_job, thread_lane
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep, attrs_text, cut_text, limited
from crossrank.model.decoded import CHUNK_ROWS, RAW_SCHEMA, Decoded, places, raw_batch, raw_table
from crossrank.model.flags import EventFlag
from crossrank.model.post import Rejection

_SCOPES_MAX: Final = 65_536  # each costs as much as several spans
_TEXTS_PER_BODY: Final = 4  # a resource is sent once and kept with each span: bounds the multiplication
_INT64_MAX: Final = 2**63 - 1
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A moment within a span."""

    time_ns: int
    name: str
    attrs: dict[str, Any]
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A cause edge to another span, of this trace or another."""

    trace_id: bytes
    span_id: bytes
    trace_state: str
    attrs: dict[str, Any]
    flags: int = 0
    dropped_attributes: int = 0


@dataclass(slots=True)
class Span:
    """One span as sent; ids of any length, times unsigned. `attrs`: plain JSON values."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attrs: dict[str, Any]
    kind: int = 0
    trace_state: str = ""
    flags: int = 0
    events: list[SpanEvent] = field(default_factory=list)
    links: list[SpanLink] = field(default_factory=list)
    status_code: int = 0
    status_message: str = ""
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0
    parent_invalid: bool = False  # JSON: the text was not hex at all


@dataclass(frozen=True, slots=True)
class Around:
    """What surrounds a run of spans: columns and texts shared by them, worked out once."""

    columns: dict[str, Any]
    service_job: str | None
    bad_rank: bool  # the resource names a rank that is none
    instance: str
    resource: msgspec.Raw | None
    scope: msgspec.Raw | None
    columns_bytes: int  # what the shared columns cost each span


def _raw(part: dict[str, Any], limits: Limits) -> msgspec.Raw | None:
    attrs_text(part.get("attributes", {}), limits)  # for its depth check
    bounded = {k: limited(v, limits)[0] if k == "attributes" else v for k, v in part.items() if v}
    bounded = {k: cut_text(v, limits.value_bytes) if isinstance(v, str) else v for k, v in bounded.items()}
    return msgspec.Raw(_ENCODER.encode(bounded)) if bounded else None


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else 8 * len(value) if isinstance(value, list) else 0


class SpanRows:
    """Collects spans into columns. The job of a span: `crossrank.job`, else the request's, else its `service.name`."""

    def __init__(self, job: str | None, limits: Limits) -> None:
        self._job = job
        self._limits = limits
        self._columns: dict[str, list[Any]] = {f.name: [] for f in RAW_SCHEMA}
        self._batches: list[pa.RecordBatch] = []
        self._index: list[int] = []
        self._rejections: list[Rejection] = []
        self._unfit: Counter[str] = Counter()
        self._rankless = 0
        self._seen = 0
        self._scopes = 0
        self._kept_bytes = 0

    def around(self, resource: dict[str, Any], scope: dict[str, Any]) -> Around:
        """What the spans of one scope share. `resource` and `scope`: JSON objects with an `attributes` map.

        Raises TooDeep, BodyTooLarge.
        """
        self._scopes += 1
        if self._scopes > _SCOPES_MAX:
            raise BodyTooLarge(f"The body has more than {_SCOPES_MAX} scopes")
        attrs: dict[str, Any] = resource.get("attributes", {})
        found = resource_columns(attrs)
        who = attrs.get("service.instance.id") or attrs.get("process.pid")
        return Around(
            columns=found.columns,
            bad_rank=found.bad_rank,
            service_job=service_job(attrs),
            instance=str(who)[:64] if isinstance(who, (str, int)) else "",
            resource=_raw(resource, self._limits),
            scope=_raw(scope, self._limits),
            columns_bytes=sum(map(_size, found.columns.values())),
        )

    def next_index(self, spans: int = 1) -> int:
        """The place of the next span in the request; told of every span, readable or not, or of several. Raises BodyTooLarge."""
        self._seen += spans
        if self._seen > self._limits.events_per_body:
            raise BodyTooLarge(f"The body holds more than {self._limits.events_per_body} spans")
        return self._seen - spans

    def refuse(self, index: int, reason: str, detail: str = "", about: Around | None = None) -> None:
        """Records that a span was not admitted."""
        columns = about.columns if about else {}
        job = columns.get("job") or self._job or (about.service_job if about else None)
        self._rejections.append(Rejection(index, reason, job, columns.get("rank"), detail[:200]))

    def add(self, index: int, span: Span, about: Around) -> None:
        """Adds a span, or refuses it with a reason."""
        fault = _fault(span)
        if fault is not None:
            self.refuse(index, fault[0], fault[1], about)
            return
        found = find_columns(span.attrs)
        self._unfit.update(found.unfit)
        columns = about.columns | found.columns
        if found.bad_rank or ("rank" not in columns and about.bad_rank):
            self.refuse(index, reasons.BAD_TYPE, "rank must be an integer from 0 to 2147483647", about)
            return
        if "job" not in columns:
            columns["job"] = self._job or about.service_job
        self._place(columns, span, about)
        try:
            attrs, cut = attrs_text(found.rest, self._limits)
            otel, otel_cut = otel_text(span, about, self._limits)
        except TooDeep:
            self.refuse(index, reasons.TOO_DEEP, "", about)
            return
        columns |= _sent_fields(span, self._limits)
        columns |= {"attrs": attrs, "otel": otel, "flags": _flags(span, cut=cut or otel_cut)}
        columns.setdefault("name", span.name or None)
        self._append(index, columns, about.columns_bytes)

    def count_bytes(self, size_bytes: int) -> None:
        """Counts what a span keeps; raises BodyTooLarge when all of them keep far more than was sent."""
        self._kept_bytes += size_bytes
        if self._kept_bytes > _TEXTS_PER_BODY * self._limits.body_bytes:
            raise BodyTooLarge("The resource and scope attributes are too large to be kept with each of their spans")

    def count_rankless(self, spans: int) -> None:
        """Counts spans that name no rank, for the warning."""
        self._rankless += spans

    def _append(self, index: int, columns: dict[str, Any], around_bytes: int) -> None:
        self.count_bytes(len(columns["attrs"] or "") + len(columns["otel"] or "") + around_bytes)
        for name, values in self._columns.items():
            values.append(columns.get(name))
        self._index.append(index)
        if len(self._columns["flags"]) >= CHUNK_ROWS:
            self._flush()

    def _place(self, columns: dict[str, Any], span: Span, about: Around) -> None:
        """Rank and lane of a span whose sender gave none."""
        lane = columns.get("lane") or thread_lane(span.attrs)
        if "rank" not in columns:
            # Kept under rank 0 so that any exporter can be tried out; a lane of its own keeps several such processes from
            # being read as one program order.
            columns["rank"] = 0
            self.count_rankless(1)
            lane = f"{about.instance}/{lane or 'main'}" if about.instance else lane
        columns["lane"] = lane

    def _flush(self) -> None:
        self._batches.append(raw_batch(self._columns))
        for values in self._columns.values():
            values.clear()

    def decoded(self) -> Decoded:
        """Everything added so far."""
        if self._index:
            self._flush()
        warnings = [
            f"{n} values of {key} do not fit their column and were kept as attributes" for key, n in sorted(self._unfit.items())
        ]
        if self._rankless:
            warnings.append(
                f"{self._rankless} spans name no rank and were taken as rank 0; set the resource attribute crossrank.rank"
            )
        return Decoded(raw_table(self._batches), places(self._index), self._rejections, warnings)


def _fault(span: Span) -> tuple[str, str] | None:
    if len(span.trace_id) != TRACE_ID_BYTES or not any(span.trace_id):
        return reasons.INVALID_TRACE_ID, f"{len(span.trace_id)} bytes"
    if len(span.span_id) != SPAN_ID_BYTES or not any(span.span_id):
        return reasons.INVALID_SPAN_ID, f"{len(span.span_id)} bytes"
    if span.start_ns == 0:
        return reasons.START_ZERO, ""
    if not (0 <= span.start_ns <= _INT64_MAX and 0 <= span.end_ns <= _INT64_MAX):
        return reasons.TIME_RANGE, ""
    return None


def _is_span_id(raw: bytes) -> bool:
    return len(raw) == SPAN_ID_BYTES and any(raw)


def _sent_fields(span: Span, limits: Limits) -> dict[str, Any]:
    """The columns that are fields of a span, not attributes."""
    links = [link.span_id for link in span.links if _is_span_id(link.span_id)][: limits.links_per_event]
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id if _is_span_id(span.parent_span_id) else None,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns or None,
        "links": links or None,
    }


def _flags(span: Span, *, cut: bool) -> int:
    parent_invalid = span.parent_invalid or len(span.parent_span_id) not in (0, SPAN_ID_BYTES)
    return (int(EventFlag.TRUNCATED) if cut else 0) | (int(EventFlag.INVALID_PARENT) if parent_invalid else 0)


def otel_text(span: Span, about: Around, limits: Limits) -> tuple[str | None, bool]:
    """The `otel` text of a span, and whether something was cut. Raises TooDeep."""
    events = [e for e in span.events if 0 < e.time_ns <= _INT64_MAX]
    links = [ln for ln in span.links if len(ln.span_id) == SPAN_ID_BYTES and len(ln.trace_id) == TRACE_ID_BYTES and any(ln.span_id)]
    cut = len(events) > limits.attrs_per_event or len(links) > limits.links_per_event
    status = {"code": span.status_code, "message": cut_text(span.status_message, limits.value_bytes)}
    parts: dict[str, Any] = {
        "resource": about.resource,
        "scope": about.scope,
        "kind": span.kind,
        "trace_state": cut_text(span.trace_state, limits.value_bytes),
        "flags": span.flags,
        "status": {k: v for k, v in status.items() if v},
        "dropped_attributes_count": span.dropped_attributes,
        "dropped_events_count": span.dropped_events + len(span.events) - len(events),
        "dropped_links_count": span.dropped_links + len(span.links) - len(links),
    }
    if events:
        parts["events"], c = _all_bounded([_event(e) for e in events[: limits.attrs_per_event]], limits)
        cut = cut or c
    if links:
        parts["links"], c = _all_bounded([_link(ln) for ln in links[: limits.links_per_event]], limits)
        cut = cut or c
    parts = {k: v for k, v in parts.items() if v}
    return (_ENCODER.encode(parts).decode() if parts else None), cut


def _event(event: SpanEvent) -> dict[str, Any]:
    return {
        "time_ns": event.time_ns,
        "name": event.name,
        "attributes": event.attrs,
        "dropped_attributes_count": event.dropped_attributes,
    }


def _link(link: SpanLink) -> dict[str, Any]:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": link.trace_state,
        "flags": link.flags,
        "attributes": link.attrs,
        "dropped_attributes_count": link.dropped_attributes,
    }


def _all_bounded(items: list[dict[str, Any]], limits: Limits) -> tuple[list[dict[str, Any]], bool]:
    cut = False
    for item in items:
        attrs_text(item["attributes"], limits)  # for its depth check
        item["attributes"], c = limited(item["attributes"], limits)
        cut = cut or c
        for key in ("name", "trace_state"):
            if key in item:
                item[key] = cut_text(item[key], limits.name_bytes)
    return [{k: v for k, v in item.items() if v} for item in items], cut
