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

from crossrank.errors import UndecodableBody
from crossrank.ingest.attr_texts import TEXT
from crossrank.ingest.otlp_common import Around, SpanRows
from crossrank.ingest.otlp_index import RESOURCE, RESOURCE_SCHEMA, SCOPE, SCOPE_SCHEMA, Index, index_body
from crossrank.ingest.otlp_protobuf import add_span, parsed, plain_value, read_around, read_resource, read_scope
from crossrank.ingest.otlp_rows import fast_rows
from crossrank.ingest.otlp_walk import walk
from crossrank.ingest.slow_rows import merge
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded

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
        slow, fast = fast_rows(body, walk(buf, index, limits), index.scope.astype(np.int64), arounds, rows, job, limits, _read)
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


def _read(kind: int, raw: bytes) -> Any:
    """A text, array, list of pairs or bytes as a plain value; None when protobuf cannot read it."""
    if kind == TEXT:
        return raw.decode()
    try:
        request = parsed(raw, *_VALUE, kind)
    except UndecodableBody:
        return None
    return plain_value(request.resource_spans[0].scope_spans[0].spans[0].attributes[0].value)
