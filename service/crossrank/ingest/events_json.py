"""NDJSON, a JSON array, or {"events": [...]} to columns.

Events are parsed one by one from the bytes of their line or element, so that one bad event costs one rejection and the rest is
kept. Columns are built every `CHUNK_ROWS` events, so Python objects for the whole body never exist at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.ingest import reasons
from crossrank.ingest.event_form import COLUMNS, EventForm, Refused, from_mapping, settle
from crossrank.ingest.ids import SPAN_ID_BYTES, TRACE_ID_BYTES, hex_column, hex_id, is_unset
from crossrank.ingest.json_slices import ABSENT, elements, fields, is_object
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import CHUNK_ROWS, RAW_SCHEMA, Decoded, places, raw_table
from crossrank.model.flags import EventFlag
from crossrank.model.post import Rejection

_FORM: Final = msgspec.json.Decoder(EventForm)
_ANY: Final = msgspec.json.Decoder()
_LINE: Final = re.compile(rb"[^\s][^\n]*")
BOM: Final = b"\xef\xbb\xbf"
_GET: Final = {name: attrgetter(name) for name in COLUMNS}
_PLAIN: Final = tuple(name for name in COLUMNS if name not in ("trace_id", "span_id", "parent_span_id", "links", "attrs", "otel"))


def decode_lines(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """NDJSON: one object a line; blank lines are skipped. Raises UndecodableBody when not one line is JSON, BodyTooLarge."""
    return _decode((m.group() for m in _LINE.finditer(body.removeprefix(BOM))), job, limits)


LinesDecoder: TypeAlias = Callable[[bytes, str | None, Limits], Decoded]


def decode_json(body: bytes, job: str | None, limits: Limits, of_lines: LinesDecoder = decode_lines) -> Decoded:
    """Whatever comes as application/json: an array of events, {"events": [...]}, one event, or NDJSON under the wrong name.

    `of_lines` decodes the last. Raises UndecodableBody, BodyTooLarge.
    """
    body = body.removeprefix(BOM).strip()
    if not body:
        return _decode((), job, limits)
    if body.startswith(b"["):
        return _decode(elements(body, "The array of events"), job, limits)
    first_line, _, more = body.partition(b"\n")
    if more and is_object(first_line):
        return of_lines(body, job, limits)
    envelope = fields(body, _Envelope, "The body")
    if not bytes(envelope.events):
        return _decode((body,), job, limits)
    decoded = _decode(elements(envelope.events, "The array of events"), job, limits)
    if other := _field_beside(body):
        decoded.warnings.append(f"fields beside `events` are ignored: {other}")
    return decoded


class _Envelope(msgspec.Struct):
    events: msgspec.Raw = ABSENT


class _EnvelopeAlone(_Envelope, forbid_unknown_fields=True):
    pass


def _field_beside(body: bytes) -> str:
    """The first field of an envelope that is not `events`."""
    try:
        msgspec.json.decode(body, type=_EnvelopeAlone)
    except msgspec.ValidationError as fault:
        return str(fault).partition("`")[2].rpartition("`")[0][:60]
    return ""


def _decode(items: Iterable[bytes | msgspec.Raw], job: str | None, limits: Limits) -> Decoded:
    seen = 0

    def numbered() -> Iterator[tuple[int, bytes | msgspec.Raw]]:
        nonlocal seen
        for item in items:
            seen += 1
            if seen > limits.events_per_body:
                raise BodyTooLarge(f"The body holds more than {limits.events_per_body} events", limit_events=limits.events_per_body)
            yield seen - 1, item

    out = read_items(numbered(), job, limits)
    not_json(out, seen)
    return out


def not_json(decoded: Decoded, items: int) -> None:
    """Raises UndecodableBody when there were items and not one of them is JSON."""
    if items and len(decoded.rejections) == items and all(r.reason == reasons.BAD_JSON for r in decoded.rejections):
        raise UndecodableBody(f"Not one event is valid JSON: {decoded.rejections[0].detail}")


def read_items(numbered: Iterable[tuple[int, bytes | msgspec.Raw]], job: str | None, limits: Limits) -> Decoded:
    """Events one by one: (place in the request, JSON text) each."""
    out = Decoded(rows=raw_table([]), index=places([]))
    batches: list[pa.RecordBatch] = []
    indices: list[np.ndarray] = []
    numbered = iter(numbered)
    while chunk := list(islice(numbered, CHUNK_ROWS)):
        forms, index = _forms(chunk, job, limits, out.rejections)
        batch, kept = _batch(forms, index, limits, out)
        batches.append(batch)
        indices.append(np.array(index, dtype=np.int64)[kept])
    out.rows = raw_table(batches)
    out.index = np.concatenate([places([]), *indices])
    return out


def _forms(
    chunk: list[tuple[int, bytes | msgspec.Raw]], job: str | None, limits: Limits, rejections: list[Rejection]
) -> tuple[list[Any], list[int]]:
    """The events of a chunk that can be read, in the full form, and their places in the request."""
    forms: list[Any] = []
    index: list[int] = []
    read = _FORM.decode
    for at, item in chunk:
        if len(memoryview(item)) > limits.event_bytes:
            rejections.append(_rejection(at, reasons.TOO_LARGE))
            continue
        try:
            form = read(item)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            form = _second_reading(at, item, rejections)
            if form is None:
                continue
        if form.event is not None or form.timestamp_ns is not None:
            try:
                settle(form, job)
            except Refused as refused:
                rejections.append(_rejection(at, refused.reason, refused.detail, {"job": form.job, "rank": form.rank}))
                continue
        forms.append(form)
        index.append(at)
    return forms, index


def _second_reading(at: int, item: bytes | msgspec.Raw, rejections: list[Rejection]) -> Any:
    """An event the quick reading refused: either it has keys that are not columns, or it is bad; then the reason is recorded."""
    try:
        found = _ANY.decode(item)
    except RecursionError:
        rejections.append(_rejection(at, reasons.TOO_DEEP))
        return None
    except msgspec.ValidationError as fault:  # a number beyond what a float64 or 4,300 digits can hold
        rejections.append(_rejection(at, reasons.OUT_OF_RANGE, str(fault)))
        return None
    except (msgspec.DecodeError, UnicodeError) as fault:
        rejections.append(_rejection(at, reasons.BAD_JSON, str(fault)))
        return None
    if not isinstance(found, dict):
        rejections.append(_rejection(at, reasons.NOT_AN_OBJECT))
        return None
    try:
        return from_mapping(found)
    except msgspec.ValidationError as fault:
        text = str(fault)
        ranged = "Expected `int` <=" in text or "Expected `int` >=" in text or "out of range" in text
        rejections.append(_rejection(at, reasons.OUT_OF_RANGE if ranged else reasons.BAD_TYPE, text, found))
        return None


def _rejection(at: int, reason: str, detail: str = "", found: dict[str, Any] | None = None) -> Rejection:
    job, rank = (found or {}).get("job"), (found or {}).get("rank")
    return Rejection(
        index=at,
        reason=reason,
        job=job if isinstance(job, str) else None,
        rank=rank if type(rank) is int else None,
        detail=detail[:200],
    )


def _batch(forms: list[Any], index: list[int], limits: Limits, out: Decoded) -> tuple[pa.RecordBatch, BoolArray]:
    """Columns of a chunk, and which of its events they hold."""
    columns = {name: pa.array(list(map(_GET[name], forms)), type=RAW_SCHEMA.field(name).type) for name in _PLAIN}
    flags = np.zeros(len(forms), dtype=np.int32)
    kept = np.ones(len(forms), dtype=np.bool_)

    def refuse(i: int, reason: str, detail: str = "") -> None:
        if kept[i]:
            kept[i] = False
            out.rejections.append(_rejection(index[i], reason, detail, {"job": forms[i].job, "rank": forms[i].rank}))

    for name, width, reason in (
        ("span_id", SPAN_ID_BYTES, reasons.INVALID_SPAN_ID),
        ("trace_id", TRACE_ID_BYTES, reasons.INVALID_TRACE_ID),
    ):
        columns[name], bad = hex_column(list(map(_GET[name], forms)), width)
        for i in np.flatnonzero(bad).tolist():
            refuse(i, reason, f"{name} {getattr(forms[i], name)[:60]!r}")
    parents = list(map(_GET["parent_span_id"], forms))
    columns["parent_span_id"], bad = hex_column(parents, SPAN_ID_BYTES)
    for i in np.flatnonzero(bad).tolist():
        if not is_unset(parents[i]):
            flags[i] |= int(EventFlag.INVALID_PARENT)
    columns["links"] = pa.array([link_ids(form.links, limits) for form in forms], type=RAW_SCHEMA.field("links").type)
    for name in ("attrs", "otel"):
        columns[name] = _texts(list(map(_GET[name], forms)), limits, flags, refuse)
    columns["flags"] = pa.array(flags)
    batch = pa.record_batch([columns[f.name] for f in RAW_SCHEMA], schema=RAW_SCHEMA)
    return (batch if kept.all() else batch.filter(pa.array(kept))), kept


def link_ids(links: list[str] | None, limits: Limits) -> list[bytes] | None:
    """Valid link ids; a bad one is dropped and the event kept."""
    if not links:
        return None
    found = (hex_id(text, SPAN_ID_BYTES) for text in links[: limits.links_per_event])
    return [raw for raw in found if raw is not None] or None


def _texts(maps: list[dict[str, Any] | None], limits: Limits, flags: np.ndarray, refuse: Any) -> pa.Array:
    texts: list[str | None] = []
    for i, attrs in enumerate(maps):
        text = None
        if attrs:
            try:
                text, cut = attrs_text(attrs, limits)
            except TooDeep:
                refuse(i, reasons.TOO_DEEP)
                cut = False
            if cut:
                flags[i] |= int(EventFlag.TRUNCATED)
        texts.append(text)
    return pa.array(texts, type=pa.string())
