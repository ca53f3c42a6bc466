"""Which events a reader wants: a plain value that can be checked against rows, row groups and whole segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import BoolArray
from crossrank.store.content import one_chunk, raw_values, valid_rows


@dataclass(frozen=True, slots=True)
class EventFilter:
    """All given conditions must hold; None (or an empty filter) means any. Times are raw stamps.

    step_from/step_to and from_ns/to_ns are half-open ranges. A span is in a time range when any part of it is: it starts before
    `to_ns` and does not end before `from_ns` (an open span has no end yet). An end half without its start counts by its end.
    place_from_ns: the stamp that gives the event its place in paging order, its start or else its end, is not earlier.
    """

    attempt: int | None = None
    ranks: Sequence[int] | None = None
    step_from: int | None = None
    step_to: int | None = None
    kinds: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    place_from_ns: int | None = None
    trace_id: bytes | None = None
    span_ids: Sequence[bytes] | None = None

    def columns(self) -> set[str]:
        """The columns that `mask` reads."""
        read = {
            "attempt": self.attempt,
            "rank": self.ranks,
            "step": self.step_from if self.step_from is not None else self.step_to,
            "kind": self.kinds,
            "group": self.groups,
            "start_ns": self.to_ns,
            "end_ns": self.from_ns,
            "trace_id": self.trace_id,
            "span_id": self.span_ids,
        }
        placed = {"start_ns", "end_ns"} if self.place_from_ns is not None else set()
        return placed | {name for name, asked in read.items() if asked is not None}

    def mask(self, events: pa.Table) -> BoolArray | None:
        """[n] True for the rows wanted; None when all are. Needs `columns()`."""
        tests: list[Any] = []
        if self.attempt is not None:
            tests.append(pc.equal(events.column("attempt"), self.attempt))
        if self.ranks is not None:
            tests.append(pc.is_in(events.column("rank"), pa.array(self.ranks, pa.int32())))
        if self.step_from is not None:
            tests.append(pc.greater_equal(events.column("step"), self.step_from))
        if self.step_to is not None:
            tests.append(pc.less(events.column("step"), self.step_to))
        for name, words in (("kind", self.kinds), ("group", self.groups)):
            if words is not None:
                tests.append(_word_in(events.column(name), words))
        if self.to_ns is not None:
            tests.append(pc.fill_null(pc.less(events.column("start_ns"), self.to_ns), fill_value=True))
        if self.from_ns is not None:
            # >= and not >, so that an event without length at from_ns itself is found
            tests.append(pc.fill_null(pc.greater_equal(events.column("end_ns"), self.from_ns), fill_value=True))
        if self.place_from_ns is not None:
            tests.append(pc.greater_equal(pc.coalesce(events.column("start_ns"), events.column("end_ns")), self.place_from_ns))
        for name, width, ids in (("trace_id", 16, self.trace_id and [self.trace_id]), ("span_id", 8, self.span_ids)):
            if ids is not None:
                tests.append(pc.is_in(events.column(name), pa.array(ids, pa.binary(width))))
        if not tests:
            return None
        keep = np.ones(len(events), np.bool_)
        for test in tests:
            known = isinstance(test, np.ndarray)
            keep &= test if known else one_chunk(pc.fill_null(test, fill_value=False)).to_numpy(zero_copy_only=False)
        return keep

    def may_match(self, low: dict[str, Any], high: dict[str, Any]) -> bool:
        """False only when no row can match, given the least and greatest value of some columns.

        Columns missing in `low` or `high`, or None there, say nothing; a time column must be missing where it has nulls.
        """
        ranges = (
            ("attempt", self.attempt, self.attempt),
            ("rank", *_ends(self.ranks)),
            ("step", self.step_from, None if self.step_to is None else self.step_to - 1),
            ("start_ns", self.place_from_ns, None if self.to_ns is None else self.to_ns - 1),
            ("end_ns", self.from_ns, None),
        )
        for name, least, greatest in ranges:
            if greatest is not None and low.get(name) is not None and low[name] > greatest:
                return False
            if least is not None and high.get(name) is not None and high[name] < least:
                return False
        return True


def _ends(values: Sequence[int] | None) -> tuple[int | None, int | None]:
    return (min(values), max(values)) if values else (None, None)


def _word_in(column: pa.ChunkedArray | pa.Array, words: Sequence[str]) -> BoolArray:
    """[n] membership of a dictionary-coded column, decided once per distinct word; looked up by numpy, much faster than `take`."""
    coded = one_chunk(column)
    among = pc.is_in(coded.dictionary, pa.array(words, pa.string())).to_numpy(zero_copy_only=False)
    codes = raw_values(coded.indices)
    if coded.null_count:
        codes = np.where(valid_rows(coded.indices), codes, len(among))
    wanted: BoolArray = np.append(among.astype(np.bool_), False)[codes]
    return wanted
