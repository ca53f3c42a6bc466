"""OTLP/HTTP protobuf bodies to columns by compiled code; the same columns as `otlp_protobuf.decode`, many times faster.

    index   where spans, resources and scopes lie                      (compiled; refuses what protobuf refuses)
    arounds resources and scopes, read by protobuf: there are few
    walk    fields and attributes of the spans into flat arrays        (compiled)
    place   attributes into columns and the rest                       (compiled)
    columns words, numbers and JSON texts as Arrow arrays

Spans that the walk or the placing found unusual are read one by one by the plain decoder and put back in their places.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from crossrank.errors import UndecodableBody
from crossrank.ingest import attr_texts
from crossrank.ingest.attr_texts import TEXT, Texts
from crossrank.ingest.body_words import BodyWords
from crossrank.ingest.byte_kernels import Table
from crossrank.ingest.known_names import FIT
from crossrank.ingest.otlp_columns import ColumnMaker
from crossrank.ingest.otlp_common import Around, SpanRows
from crossrank.ingest.otlp_index import RESOURCE, RESOURCE_SCHEMA, SCOPE, SCOPE_SCHEMA, Index, index_body
from crossrank.ingest.otlp_place import Keys, Placed, place, plan_keys
from crossrank.ingest.otlp_protobuf import add_span, parsed, plain_value, read_around, read_resource, read_scope
from crossrank.ingest.otlp_walk import ARRAY, Spans, Walked, walk
from crossrank.ingest.slow_rows import merge
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import RAW_SCHEMA, Decoded
from crossrank.model.flags import EventFlag

_VALUE = (1, 2, 2, 9, 2)  # field numbers from the request down to the value of a span's attribute
_SHORTEST_LIMIT: Final = 64  # below it even a number's text may have to be cut


def decode(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """An ExportTraceServiceRequest. `job`: the request's job, when its header names one. Raises UndecodableBody, BodyTooLarge."""
    rows = SpanRows(job, limits)
    if not body:
        return rows.decoded()
    buf = np.frombuffer(body, np.uint8)
    index, resources = index_body(buf, limits)
    arounds = _arounds(body, index, resources, rows, limits)
    if limits.value_bytes < _SHORTEST_LIMIT:
        slow, fast = np.ones(index.begin.size, np.bool_), None
    else:
        slow, fast = _fast_rows(body, buf, index, arounds, rows, job, limits)
    for s in np.flatnonzero(slow).tolist():
        begin, end = int(index.begin[s]), int(index.end[s])
        message = body[begin:end] if end - begin <= limits.event_bytes else None
        add_span(message, end - begin, s, arounds[index.scope[s]], rows)
    decoded = rows.decoded()
    if fast is not None:
        merge(decoded, fast, np.flatnonzero(~slow))
    return decoded


def _arounds(body: bytes, index: Index, resources: int, rows: SpanRows, limits: Limits) -> list[Around]:
    """What surrounds the spans of each scope; equal resources and scopes are read once."""
    scopes = index.scope_resource.size
    pieces: dict[int, list[list[bytes]]] = {
        kind: [[] for _ in range(scopes if kind > RESOURCE_SCHEMA else resources)]
        for kind in (RESOURCE, RESOURCE_SCHEMA, SCOPE, SCOPE_SCHEMA)
    }
    for kind, owner, begin, end in zip(*(a.tolist() for a in index[3:7]), strict=True):
        pieces[kind][owner].append(body[begin:end])
    read: dict[Any, Any] = {}

    def once(reader: Any, key: tuple[Any, ...], *arguments: Any) -> Any:
        if key not in read:
            read[key] = reader(*arguments)
        return read[key]

    resource_keys = [(RESOURCE, *map(tuple, pair)) for pair in zip(pieces[RESOURCE], pieces[RESOURCE_SCHEMA], strict=True)]
    for r, key in enumerate(resource_keys):
        once(read_resource, key, pieces[RESOURCE][r], pieces[RESOURCE_SCHEMA][r], limits)
    out = []
    for s, r in enumerate(index.scope_resource.tolist()):
        key = (SCOPE, tuple(pieces[SCOPE][s]), tuple(pieces[SCOPE_SCHEMA][s]))
        scope = once(read_scope, key, pieces[SCOPE][s], pieces[SCOPE_SCHEMA][s], limits)
        out.append(once(read_around, (resource_keys[r], key), rows, read[resource_keys[r]], scope))
    return out


def _fast_rows(
    body: bytes, buf: np.ndarray, index: Index, arounds: list[Around], rows: SpanRows, job: str | None, limits: Limits
) -> tuple[BoolArray, pa.Table]:
    """Which spans have to be read slowly, and the rows of all others."""
    walked = walk(buf, index, limits)
    spans, attrs, values = walked.spans, walked.attrs, walked.values
    keys = _texts(body, walked.keys)
    plan, used = plan_keys(keys, limits)
    fits, ranks_of = _fitting(body, walked, plan, used)
    placed = place(buf, spans, attrs, values, plan, len(used), fits, limits.value_bytes)
    key_texts = attr_texts.quoted(buf, *_stretches(walked.keys))
    value_texts, unusual = _value_texts(body, buf, values, limits)
    _mark_slow(walked, unusual)
    texts = attr_texts.objects(spans.first, attrs.key, attrs.kind, attrs.value, key_texts, value_texts)
    words = BodyWords(body, *_stretches(values))
    scope = index.scope.astype(np.int64)
    ranked, bad_rank = ColumnMaker(words, spans, placed, used, scope, arounds, job).known_rank()
    slow = spans.slow | ~ranked & bad_rank
    if slow.any():
        kept = np.flatnonzero(~slow)
        spans = Spans._make([*(a[kept] for a in spans[:-1]), spans.first])
        placed = Placed(*(np.ascontiguousarray(a[:, kept]) for a in placed))
        scope, ranked, texts = scope[kept], ranked[kept], texts.take(pa.array(kept))
    maker = ColumnMaker(words, spans, placed, used, scope, arounds, job)
    rows.count_rankless(int(np.count_nonzero(~ranked)))
    columns = maker.columns(ranked, ranks_of)
    columns["attrs"] = texts
    columns["otel"], cut = maker.otel(limits, lambda size: rows.count_bytes(size + texts.nbytes))
    columns["flags"] = pa.array(np.where(cut, np.int32(EventFlag.TRUNCATED), np.int32(0)))
    return slow, pa.table({f.name: columns[f.name] for f in RAW_SCHEMA})


def _stretches(table: Table) -> tuple[Int64Array, Int64Array]:
    n = int(table.found[0])
    return table.start[:n], table.size[:n]


def _texts(body: bytes, table: Table) -> list[str]:
    """The texts of a table; bytes that are none, which no attribute that counts has, as they look."""
    return [
        body[at : at + size].decode(errors="replace") for at, size in zip(*(a.tolist() for a in _stretches(table)), strict=True)
    ]


def _fitting(body: bytes, walked: Walked, plan: Keys, used: list[str]) -> tuple[BoolArray, dict[int, list[int]]]:
    """[value codes] which texts are kinds and which arrays are lists of ranks, and these lists."""
    attrs, values = walked.attrs, walked.values
    fits = np.zeros(max(1, int(values.found[0])), np.bool_)
    ranks_of: dict[int, list[int]] = {}
    for column, kind in (("kind", TEXT), ("group_ranks", ARRAY)):
        if column not in used:
            continue
        keys = plan.column == used.index(column)
        codes = np.unique(attrs.value[keys[attrs.key] & (attrs.kind == kind)])
        for code in codes.tolist():
            value = _plain(body, values, code)
            fitted = None if value is None else FIT[column](value)
            fits[code] = fitted is not None
            if fitted is not None and kind == ARRAY:
                ranks_of[code] = fitted
    return fits, ranks_of


def _plain(body: bytes, values: Table, code: int) -> Any:
    """A text, array, list of pairs or bytes as a plain value; None when protobuf cannot read it."""
    at, size, kind = int(values.start[code]), int(values.size[code]), int(values.kind[code])
    raw = body[at : at + size]
    if kind == TEXT:
        return raw.decode()
    try:
        request = parsed(raw, *_VALUE, kind)
    except UndecodableBody:
        return None
    return plain_value(request.resource_spans[0].scope_spans[0].spans[0].attributes[0].value)


def _value_texts(body: bytes, buf: np.ndarray, values: Table, limits: Limits) -> tuple[Texts, Int64Array]:
    """JSON texts of the values that attributes use, and the codes of those that need the plain decoder."""
    n = int(values.found[0])
    used, kind = values.mark[:n] != 0, values.kind[:n]
    texts = np.flatnonzero(used & (kind == TEXT))
    nested = np.flatnonzero(used & (kind > TEXT))
    encoded = [_nested_text(body, values, code, limits) for code in nested.tolist()]
    parts = attr_texts.joined(
        attr_texts.quoted(buf, values.start[texts], values.size[texts]), attr_texts.texts_of([text or b"" for text in encoded])
    )
    start, size = np.zeros(n, np.int64), np.zeros(n, np.int64)
    codes = np.concatenate([texts, nested])
    start[codes], size[codes] = parts.start, parts.size
    return Texts(start, size, parts.bytes), nested[[text is None for text in encoded]]


def _nested_text(body: bytes, values: Table, code: int, limits: Limits) -> bytes | None:
    value = _plain(body, values, code)
    if value is None:
        return None
    try:
        text, cut = attrs_text({"": value}, limits)
    except TooDeep:
        return None
    return None if cut or text is None else text[len('{"":') : -1].encode()


def _mark_slow(walked: Walked, unusual: Int64Array) -> None:
    """Marks the spans slow that have one of the unusual values left as an attribute."""
    if not unusual.size:
        return
    spans, attrs = walked.spans, walked.attrs
    packed = int(spans.first[-1])
    hit = np.isin(attrs.value[:packed], unusual) & (attrs.kind[:packed] > attr_texts.DOUBLE)
    spans.slow[np.searchsorted(spans.first, np.flatnonzero(hit), side="right") - 1] = True
