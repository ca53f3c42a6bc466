"""OTLP/HTTP JSON bodies to columns by compiled code; the same columns as `otlp_json.decode`, several times faster.

The outer levels and their resources are read as by the plain decoder, the spans by `otlp_json_walk`; from there on the way is that
of protobuf bodies. Unusual spans are read one by one by the plain decoder and put back in their places.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from crossrank.ingest.attr_texts import DOUBLE, TEXT
from crossrank.ingest.byte_kernels import new_table
from crossrank.ingest.decimal_numbers import float_bits
from crossrank.ingest.event_form import Refused
from crossrank.ingest.json_kernels import Floats
from crossrank.ingest.otlp_common import Around, SpanRows
from crossrank.ingest.otlp_json import READERS, add_span, scopes
from crossrank.ingest.otlp_json_members import new_names
from crossrank.ingest.otlp_json_walk import walk_json
from crossrank.ingest.otlp_rows import fast_rows
from crossrank.ingest.otlp_walk import (
    ARRAY,
    ATTRS_MAX,
    BYTES,
    KVLIST,
    SCOPE,
    TEXTS_MAX,
    Attrs,
    Walked,
    more_attrs,
    new_attrs,
    new_spans,
    with_room,
)
from crossrank.ingest.slow_rows import merge
from crossrank.limits import Limits
from crossrank.model.arrays import Int64Array
from crossrank.model.decoded import Decoded

_SHORTEST_LIMIT: Final = 64  # below it even a number's text may have to be cut
_KINDS: Final = {ARRAY: "arrayValue", KVLIST: "kvlistValue", BYTES: "bytesValue"}


def decode(body: bytes, job: str | None, limits: Limits) -> Decoded:
    """An ExportTraceServiceRequest in JSON. Raises UndecodableBody, BodyTooLarge."""
    rows = SpanRows(job, limits)
    arounds: list[Around] = []
    items: list[msgspec.Raw] = []
    scope_of: list[Int64Array] = []
    for context, spans in scopes(body, rows, limits):
        items.extend(spans)
        scope_of.append(np.full(len(spans), len(arounds), np.int64))
        arounds.append(context)
        rows.next_index(len(spans))
    if not items:
        return rows.decoded()
    scope = np.concatenate(scope_of)
    slow, fast = np.ones(len(items), np.bool_), None
    if limits.value_bytes >= _SHORTEST_LIMIT:
        text = b"\n".join([*items, b""])  # a line end, which the walk does not pass, after every span
        size = np.fromiter((len(memoryview(item)) for item in items), np.int64, len(items))
        slow, fast = fast_rows(text, _walked(text, size, scope, limits), scope, arounds, rows, job, limits, _read)
    for s in np.flatnonzero(slow).tolist():
        add_span(items[s], s, arounds[scope[s]], rows, limits)
    decoded = rows.decoded()
    if fast is not None:
        merge(decoded, fast, np.flatnonzero(~slow))
    return decoded


def _walked(text: bytes, size: Int64Array, scope: Int64Array, limits: Limits) -> Walked:
    """Walks spans that stand one after another, a line end after each."""
    buf = np.frombuffer(text, np.uint8)
    end = np.cumsum(size + 1) - 1
    begin = end - size
    spans, attrs = new_spans(size.size), new_attrs(buf.size // 60 + 2 * ATTRS_MAX)
    spans.head[:, SCOPE] = scope
    floats = _floats(size.size + 2 * ATTRS_MAX)
    keys, values = new_table(2 * ATTRS_MAX), new_table(max(1024, buf.size // 512))
    names, most = new_names(), min(limits.attrs_per_event, ATTRS_MAX)
    done = used = 0
    while True:
        done, used = walk_json(buf, begin, end, done, used, spans, attrs, floats, keys, values, names, most, limits.event_bytes)
        if done == size.size:
            break
        if attrs.key.size - used <= ATTRS_MAX:
            attrs = more_attrs(attrs, used)
        if floats.start.size - floats.found[0] <= ATTRS_MAX:
            floats = _floats(2 * floats.start.size, floats)
        keys, values = with_room(keys, ATTRS_MAX), with_room(values, TEXTS_MAX)
    attrs = Attrs(*(a[:used] for a in attrs))
    bits = float_bits(text, floats)
    decimals = attrs.kind == DOUBLE
    attrs.value[decimals] = bits[attrs.value[decimals]]
    return Walked(spans, attrs, keys, values)


def _floats(room: int, old: Floats | None = None) -> Floats:
    floats = Floats(np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(1, np.int64))
    if old is not None:
        n = int(old.found[0])
        floats.start[:n], floats.size[:n], floats.found[0] = old.start[:n], old.size[:n], n
    return floats


def _read(kind: int, raw: bytes) -> Any:
    """A text, or the JSON of an array, list of pairs or bytes, as a plain value; None when it cannot be read."""
    if kind == TEXT:
        return raw.decode()
    try:
        return READERS[_KINDS[kind]](msgspec.json.decode(raw))
    except (Refused, msgspec.DecodeError, RecursionError, UnicodeError):
        return None
