"""Walked spans to rows, whichever encoding they were walked in: placing, nested values, texts, columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from crossrank.ingest import attr_texts
from crossrank.ingest.attr_texts import TEXT, Texts
from crossrank.ingest.body_words import BodyWords
from crossrank.ingest.byte_kernels import Table
from crossrank.ingest.known_names import FIT
from crossrank.ingest.otlp_columns import ColumnMaker
from crossrank.ingest.otlp_common import Around, SpanRows
from crossrank.ingest.otlp_place import Keys, Placed, place, plan_keys
from crossrank.ingest.otlp_walk import ARRAY, Spans, Walked
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import RAW_SCHEMA
from crossrank.model.flags import EventFlag

Reader: TypeAlias = Callable[[int, bytes], Any]


def fast_rows(
    body: bytes,
    walked: Walked,
    scope: Int64Array,
    arounds: list[Around],
    rows: SpanRows,
    job: str | None,
    limits: Limits,
    read: Reader,
) -> tuple[BoolArray, pa.Table]:
    """Which spans have to be read slowly, and the rows of all others.

    scope: [spans] into `arounds`. read: what a value of this kind and these bytes is, None when it cannot be read.
    """
    buf = np.frombuffer(body, np.uint8)
    spans, attrs, values = walked.spans, walked.attrs, walked.values
    keys = _texts(body, walked.keys)
    plan, used = plan_keys(keys, limits)
    fits, ranks_of = _fitting(body, walked, plan, used, read)
    placed = place(buf, spans, attrs, values, plan, len(used), fits, limits.value_bytes)
    key_texts = attr_texts.quoted(buf, *_stretches(walked.keys))
    value_texts, unusual = _value_texts(body, buf, values, limits, read)
    _mark_slow(walked, unusual)
    texts = attr_texts.objects(spans.first, attrs.key, attrs.kind, attrs.value, key_texts, value_texts)
    words = BodyWords(body, *_stretches(values))
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


def _fitting(body: bytes, walked: Walked, plan: Keys, used: list[str], read: Reader) -> tuple[BoolArray, dict[int, list[int]]]:
    """[value codes] which texts are kinds and which arrays are lists of ranks, and these lists."""
    attrs, values = walked.attrs, walked.values
    fits = np.zeros(max(1, int(values.found[0])), np.bool_)
    ranks_of: dict[int, list[int]] = {}
    for column, kind in (("kind", TEXT), ("group_ranks", ARRAY)):
        if column not in used:
            continue
        keys = plan.column == used.index(column)
        seen = np.zeros(fits.size, np.bool_)
        seen[attrs.value[keys[attrs.key] & (attrs.kind == kind)]] = True
        for code in np.flatnonzero(seen).tolist():
            value = _plain(body, values, code, read)
            fitted = None if value is None else FIT[column](value)
            fits[code] = fitted is not None
            if fitted is not None and kind == ARRAY:
                ranks_of[code] = fitted
    return fits, ranks_of


def _plain(body: bytes, values: Table, code: int, read: Reader) -> Any:
    at, size = int(values.start[code]), int(values.size[code])
    return read(int(values.kind[code]), body[at : at + size])


def _value_texts(body: bytes, buf: np.ndarray, values: Table, limits: Limits, read: Reader) -> tuple[Texts, Int64Array]:
    """JSON texts of the values that attributes use, and the codes of those that need the plain decoder."""
    n = int(values.found[0])
    used, kind = values.mark[:n] != 0, values.kind[:n]
    texts = np.flatnonzero(used & (kind == TEXT))
    nested = np.flatnonzero(used & (kind > TEXT))
    encoded = [_nested_text(body, values, code, limits, read) for code in nested.tolist()]
    parts = attr_texts.joined(
        attr_texts.quoted(buf, values.start[texts], values.size[texts]), attr_texts.texts_of([text or b"" for text in encoded])
    )
    start, size = np.zeros(n, np.int64), np.zeros(n, np.int64)
    codes = np.concatenate([texts, nested])
    start[codes], size[codes] = parts.start, parts.size
    return Texts(start, size, parts.bytes), nested[[text is None for text in encoded]]


def _nested_text(body: bytes, values: Table, code: int, limits: Limits, read: Reader) -> bytes | None:
    value = _plain(body, values, code, read)
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
