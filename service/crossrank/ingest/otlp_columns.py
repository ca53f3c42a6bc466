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

from crossrank.ingest.attr_texts import INT, TEXT
from crossrank.ingest.distinct_rows import distinct_rows
from crossrank.ingest.otlp_common import Around, Span, otel_text
from crossrank.ingest.otlp_place import PLACE, Placed
from crossrank.ingest.otlp_walk import DROPPED_ATTRIBUTES, DROPPED_EVENTS, DROPPED_LINKS, FLAGS, KIND, MESSAGE, STATE, STATUS, Spans
from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.decoded import RAW_SCHEMA

_WORDS = ("job", "host", "clock", "kind", "group", "op", "dtype")
_NUMBERS = ("attempt", "step", "seq", "peer", "bytes")


class Body:
    """Texts of the body by value code, and words added beside them."""

    def __init__(self, body: bytes, start: Int64Array, size: Int64Array) -> None:
        self._body, self._start, self._size = body, start, size
        self._added: list[str] = []
        self._code: dict[str, int] = {}

    def add(self, word: str) -> int:
        """A code for a word that need not stand in the body."""
        code = self._code.get(word)
        if code is None:
            code = self._code[word] = self._start.size + len(self._added)
            self._added.append(word)
        return code

    def text(self, code: int) -> str:
        """The text of a code."""
        texts = self._start.size
        if code >= texts:
            return self._added[code - texts]
        at = int(self._start[code])
        return self._body[at : at + int(self._size[code])].decode()

    def column(self, codes: Int64Array) -> pa.DictionaryArray:
        """Words of many rows, null where the code is negative."""
        distinct, place = dense(codes, self._start.size + len(self._added))
        words = pa.array([self.text(code) for code in distinct.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(place, mask=place < 0), words)


def dense(codes: Int64Array, most: int) -> tuple[Int64Array, np.ndarray]:
    """The codes that occur (0..most-1), ascending, and each row's place among them as int32, -1 where its code is negative."""
    used = np.zeros(most + 1, np.bool_)
    used[codes] = True
    used[most] = False
    distinct = np.flatnonzero(used)
    place = np.full(most + 1, -1, np.int32)
    place[distinct] = np.arange(distinct.size, dtype=np.int32)
    return distinct, place[codes]


def _nullable(values: np.ndarray, absent: BoolArray) -> pa.Array:
    return pa.array(values, mask=absent) if absent.any() else pa.array(values)


class ColumnMaker:
    """Columns of the spans `rows` of a walked body."""

    def __init__(
        self, body: Body, spans: Spans, placed: Placed, scope: Int64Array, arounds: Sequence[Around], job: str | None
    ) -> None:
        self._body, self._spans, self._placed, self._scope, self._arounds = body, spans, placed, scope, arounds
        self._job = job

    def known_rank(self) -> tuple[BoolArray, BoolArray]:
        """(rank is known, resource names a rank that is none) of each span."""
        given = self._placed.given[PLACE["rank"]] > 0
        around = np.array([("rank" in a.columns, a.bad_rank) for a in self._arounds], np.bool_).reshape(-1, 2)[self._scope]
        return given | around[:, 0], around[:, 1]

    def columns(self, ranked: BoolArray, ranks_of: dict[int, list[int]]) -> dict[str, pa.Array]:
        """Every column but attrs, otel and flags. `ranked`: see known_rank; `ranks_of`: rank lists by value code."""
        out = {name: self._body.column(self._codes(name)) for name in _WORDS}
        if self._job is not None or any(a.service_job for a in self._arounds):
            out["job"] = self._body.column(self._jobs())
        out["name"] = self._body.column(np.where(self._given("name"), self._number("name"), self._spans.name))
        out["lane"] = self._body.column(self._lanes(ranked))
        for name in _NUMBERS:
            out[name] = _nullable(*self._completed(name))
        rank, absent = self._completed("rank")
        out["rank"] = pa.array(np.where(absent, 0, rank))
        is_async, absent = self._completed("is_async")
        out["is_async"] = _nullable(is_async != 0, absent)
        out["value"] = _nullable(*self._completed("value", np.float64))
        out["group_ranks"] = self._rank_lists(ranks_of)
        spans = self._spans
        n = len(self._scope)
        out["trace_id"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(spans.trace_id)])
        out["span_id"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), n, [None, pa.py_buffer(spans.span_id)])
        has = pa.py_buffer(np.packbits(spans.has_parent, bitorder="little"))
        out["parent_span_id"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), n, [has, pa.py_buffer(spans.parent_id)])
        out["start_ns"] = pa.array(spans.start_ns)
        out["end_ns"] = pa.array(spans.end_ns, mask=spans.end_ns == 0)
        out["links"] = pa.nulls(n, RAW_SCHEMA.field("links").type)
        return out

    def _given(self, name: str) -> BoolArray:
        return self._placed.given[PLACE[name]] > 0

    def _number(self, name: str) -> Int64Array:
        return self._placed.number[PLACE[name]]

    def _of_arounds(self, name: str) -> list[Any]:
        return [a.columns.get(name) for a in self._arounds]

    def _codes(self, name: str) -> Int64Array:
        """Word codes of a column, -1 where neither span nor resource has one."""
        codes = np.where(self._given(name), self._number(name), -1)
        around = self._of_arounds(name)
        if any(word is not None for word in around):
            shared = np.array([-1 if word is None else self._body.add(word) for word in around], np.int64)
            codes = np.where(codes < 0, shared[self._scope], codes)
        return codes

    def _jobs(self) -> Int64Array:
        last = [self._job or a.service_job for a in self._arounds]
        shared = np.array([-1 if word is None else self._body.add(word) for word in last], np.int64)
        codes = self._codes("job")
        return np.where(codes < 0, shared[self._scope], codes)

    def _completed(self, name: str, kind: Any = np.int64) -> tuple[np.ndarray, BoolArray]:
        """Numbers of a column, and where there is none."""
        given = self._given(name)
        numbers: np.ndarray = self._number(name).view(kind)
        around = self._of_arounds(name)
        if all(number is None for number in around):
            return numbers, ~given
        shared: np.ndarray = np.array([0 if number is None else number for number in around], kind)[self._scope]
        missing = np.array([number is None for number in around], np.bool_)[self._scope]
        return np.where(given, numbers, shared), ~given & missing

    def _lanes(self, ranked: BoolArray) -> Int64Array:
        """Lane codes: as named, else by thread; spans without a rank keep the processes they come from apart."""
        codes = self._codes("lane")
        for name in ("thread.id", "thread.name"):
            kinds, numbers = self._placed.given[PLACE[name]], self._number(name)
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
            return pa.nulls(len(self._scope), kind)
        own = np.full(max(ranks_of, default=0) + 1, -1, np.int64)
        own[list(ranks_of)] = np.arange(len(ranks_of))
        given = self._given("group_ranks")
        codes = np.where(given, own[np.where(given, self._number("group_ranks"), 0)], -1)
        place = np.cumsum([ranks is not None for ranks in around]) - 1 + len(ranks_of)
        shared = np.where([ranks is not None for ranks in around], place, -1)
        codes = np.where(codes < 0, shared[self._scope], codes)
        return pa.array(lists, kind).take(pa.array(codes, mask=codes < 0))

    def otel(self, limits: Limits, count_bytes: Callable[[int], None]) -> tuple[pa.Array, BoolArray]:
        """The `otel` texts, and which of them were cut. One text is made for each combination of what they are made of.

        `count_bytes` is told how many bytes they and the columns of the resources take, before they do.
        """
        codes, firsts = distinct_rows(np.concatenate([self._spans.head, self._scope[:, None]], axis=1))
        texts, cut = [], []
        for row in firsts.tolist():
            text, was_cut = otel_text(self._head_of(row), self._arounds[self._scope[row]], limits)
            texts.append(text)
            cut.append(was_cut)
        sizes = np.array([len(text or "") for text in texts], np.int64)[codes]
        shared = np.array([a.columns_bytes for a in self._arounds], np.int64)[self._scope]
        count_bytes(int(sizes.sum() + shared.sum()))
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
