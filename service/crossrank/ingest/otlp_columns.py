"""Walked and placed spans as Arrow columns: words, numbers, lanes and lists, completed by what the resource says.

A column's value is the span's own, else that of its resource. Words stay codes until the end; a word is made of bytes once, however
many spans use it. The codes of a column may point at texts of the body (value codes) or at words added here (codes from
`len(values)` on).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.ingest.attr_texts import INT, TEXT
from crossrank.ingest.body_words import BodyWords, nullable
from crossrank.ingest.distinct_rows import distinct_rows
from crossrank.ingest.otlp_common import Around, Span, otel_text
from crossrank.ingest.otlp_place import Placed
from crossrank.ingest.otlp_walk import DROPPED_ATTRIBUTES, DROPPED_EVENTS, DROPPED_LINKS, FLAGS, KIND, MESSAGE, STATE, STATUS, Spans
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.decoded import RAW_SCHEMA

_WORDS = ("job", "host", "clock", "kind", "group", "op", "dtype")
_PAST_INT32 = 2**31
_NUMBERS = ("attempt", "step", "seq", "peer", "bytes")


class ColumnMaker:
    """Columns of walked spans."""

    def __init__(
        self,
        body: BodyWords,
        spans: Spans,
        placed: Placed,
        used: Sequence[str],
        scope: Int64Array,
        arounds: Sequence[Around],
        job: str | None,
    ) -> None:
        self._body, self._spans, self._scope, self._arounds, self._job = body, spans, scope, arounds, job
        self._given = dict(zip(used, placed.given, strict=True))
        self._number = dict(zip(used, placed.number, strict=True))

    def known_rank(self) -> tuple[BoolArray, BoolArray]:
        """(rank is known, resource names a rank that is none) of each span."""
        around = np.array([("rank" in a.columns, a.bad_rank) for a in self._arounds], np.bool_).reshape(-1, 2)
        known, bad = around[:, 0][self._scope], around[:, 1][self._scope]
        return (known | (self._given["rank"] > 0) if "rank" in self._given else known), bad

    def columns(self, ranked: BoolArray, ranks_of: dict[int, list[int]]) -> dict[str, pa.Array]:
        """Every column but attrs, otel and flags. `ranked`: see known_rank; `ranks_of`: rank lists by value code."""
        n, spans = len(self._scope), self._spans
        words = {name: self._codes(name, self._of_arounds(name)) for name in _WORDS}
        words["job"] = self._with(words["job"], [self._job or a.service_job for a in self._arounds])
        words["name"] = spans.name if "name" not in self._given else self._chosen("name", spans.name)
        words["lane"] = self._lanes(ranked)
        out = {name: self._body.column(codes, n) for name, codes in words.items()}
        for name in (*_NUMBERS, "is_async", "value"):
            out[name] = self._numbers(name)
        rank = self._numbers("rank")
        out["rank"] = pc.fill_null(rank, 0) if rank.null_count else rank
        out["group_ranks"] = self._rank_lists(ranks_of)
        out["trace_id"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(spans.trace_id)])
        out["span_id"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), n, [None, pa.py_buffer(spans.span_id)])
        has = pa.py_buffer(np.packbits(spans.has_parent, bitorder="little"))
        out["parent_span_id"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), n, [has, pa.py_buffer(spans.parent_id)])
        out["start_ns"] = pa.array(spans.start_ns)
        out["end_ns"] = nullable(spans.end_ns, spans.end_ns == 0)
        out["links"] = self._nulls(RAW_SCHEMA.field("links").type)
        return out

    def _of_arounds(self, name: str) -> list[Any]:
        return [a.columns.get(name) for a in self._arounds]

    def _nulls(self, kind: pa.DataType) -> pa.Array:
        return pa.nulls(len(self._scope), kind)

    def _chosen(self, name: str, other: np.ndarray) -> np.ndarray:
        """The spans' own numbers of a column, `other` where they have none."""
        return np.where(self._given[name] > 0, self._number[name], other)

    def _codes(self, name: str, around: list[str | None]) -> Int64Array | None:
        """Word codes of a column, -1 where neither span nor resource has one; None when none has."""
        own = self._chosen(name, np.array(-1)) if name in self._given else None
        return self._with(own, around)

    def _with(self, codes: Int64Array | None, around: list[str | None]) -> Int64Array | None:
        """The codes, completed by a word for each scope."""
        if not any(word is not None for word in around):
            return codes
        shared = np.array([-1 if word is None else self._body.add(word) for word in around], np.int64)[self._scope]
        return shared if codes is None else np.where(codes < 0, shared, codes)

    def _numbers(self, name: str) -> pa.Array:
        """A column of numbers or truths, the spans' own or those of their resource."""
        kind = RAW_SCHEMA.field(name).type
        around = self._of_arounds(name)
        shared = None
        if any(v is not None for v in around):
            same = len(set(around)) == 1
            shared = (
                pa.repeat(pa.scalar(around[0], kind), len(self._scope))
                if same
                else pa.array(around, kind).take(pa.array(self._scope))
            )
        if name not in self._given:
            return self._nulls(kind) if shared is None else shared
        given, own = self._given[name] > 0, self._number[name]
        numbers = own != 0 if kind == pa.bool_() else own.view(np.float64) if kind == pa.float64() else own
        column = nullable(numbers, ~given)
        return column if shared is None else pc.coalesce(column, shared)

    def _lanes(self, ranked: BoolArray) -> Int64Array | None:
        """Lane codes: as named, else by thread; spans without a rank keep the processes they come from apart."""
        codes = self._codes("lane", self._of_arounds("lane"))
        threads = [name for name in ("thread.id", "thread.name") if name in self._given]
        nameless = not ranked.all() and any(a.instance for a in self._arounds)
        if not threads and not nameless:
            return codes
        codes = np.full(len(self._scope), -1, np.int64) if codes is None else codes
        for name in threads:
            kinds, numbers = self._given[name], self._number[name]
            for kind in (INT, TEXT):
                of_kind = np.flatnonzero((codes < 0) & (kinds == kind))
                if of_kind.size:
                    codes[of_kind] = self._thread_codes(numbers[of_kind], kind, "tid:" if name == "thread.id" else "")
        alone = np.flatnonzero(~ranked & np.array([bool(a.instance) for a in self._arounds], np.bool_)[self._scope])
        if alone.size:
            pairs, place = np.unique(np.stack([self._scope[alone], codes[alone]]), axis=1, return_inverse=True)
            lanes = [
                f"{self._arounds[scope].instance}/{self._body.text(code) if code >= 0 else 'main'}"
                for scope, code in pairs.T.tolist()
            ]
            codes[alone] = np.array([self._body.add(lane) for lane in lanes], np.int64)[place]
        return codes

    def _thread_codes(self, numbers: Int64Array, kind: int, prefix: str) -> Int64Array:
        distinct, place = np.unique(numbers, return_inverse=True)
        words = [f"{prefix}{self._body.text(number) if kind == TEXT else number}" for number in distinct.tolist()]
        return np.array([self._body.add(word) for word in words], np.int64)[place]

    def _rank_lists(self, ranks_of: dict[int, list[int]]) -> pa.Array:
        kind = RAW_SCHEMA.field("group_ranks").type
        around = self._of_arounds("group_ranks")
        lists = [*ranks_of.values(), *(ranks for ranks in around if ranks is not None)]
        if not lists:
            return self._nulls(kind)
        own = np.full(max(ranks_of, default=0) + 1, -1, np.int64)
        own[list(ranks_of)] = np.arange(len(ranks_of))
        codes = np.full(len(self._scope), -1, np.int64)
        if ranks_of:
            codes = np.where(self._given["group_ranks"] > 0, own[self._chosen("group_ranks", np.array(0))], -1)
        place = np.cumsum([ranks is not None for ranks in around]) - 1 + len(ranks_of)
        shared = np.where([ranks is not None for ranks in around], place, -1)
        codes = np.where(codes < 0, shared[self._scope], codes)
        return pa.array(lists, kind).take(pa.array(codes, mask=codes < 0))

    def otel(self, limits: Limits, count_bytes: Callable[[int], None]) -> tuple[pa.Array, BoolArray]:
        """The `otel` texts, and which of them were cut. One text is made for each combination of what they are made of.

        `count_bytes` is told how many bytes they and the columns of the resources take, before they do.
        """
        codes, firsts = distinct_rows(self._spans.head)
        texts, cut = [], []
        for row in firsts.tolist():
            text, was_cut = otel_text(self._head_of(row), self._arounds[self._scope[row]], limits)
            texts.append(text)
            cut.append(was_cut)
        sizes = np.array([len(text or "") for text in texts], np.int64)[codes]
        shared = np.array([a.columns_bytes for a in self._arounds], np.int64)[self._scope]
        count_bytes(int(sizes.sum() + shared.sum()))
        if len(texts) == 1 and texts[0] is not None:
            return repeated(texts[0], len(codes)), np.full(len(codes), cut[0])
        return pa.array(texts, pa.string()).take(pa.array(codes)), np.array(cut, np.bool_)[codes]

    def _head_of(self, row: int) -> Span:
        head = self._spans.head[row].tolist()
        message, state = (self._body.text(head[column] - 1) if head[column] else "" for column in (MESSAGE, STATE))
        return Span(
            trace_id=b"",
            span_id=b"",
            parent_span_id=b"",
            name="",
            start_ns=0,
            end_ns=0,
            attrs={},
            kind=head[KIND],
            trace_state=state,
            flags=head[FLAGS],
            status_code=head[STATUS],
            status_message=message,
            dropped_attributes=head[DROPPED_ATTRIBUTES],
            dropped_events=head[DROPPED_EVENTS],
            dropped_links=head[DROPPED_LINKS],
        )


def repeated(text: str, times: int) -> pa.Array:
    """A column of one text."""
    raw = text.encode()
    assert len(raw) * times < _PAST_INT32, (len(raw), times)  # both are bounded by the body, see `count_bytes`
    offsets = np.arange(times + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.StringArray.from_buffers(times, pa.py_buffer(offsets), pa.py_buffer(raw * times))
