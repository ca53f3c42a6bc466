"""What an export draws, in the words of every trace viewer: processes with tracks, slices on them, arrows between slices.

A `Picture` is known before the first byte is written; its rows come as `Sheet`s, each holding some processes whole, so that a
writer needs memory for one sheet only. Everything is a column: a writer turns columns into bytes without an object per row.
Times are int64 ns on the timeline that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Float64Array, Int8Array, Int32Array, Int64Array

SLICE: Final = 0
OPEN: Final = 1  # a slice that has not ended
INSTANT: Final = 2
COUNTER: Final = 3  # a sample; `value` says how much


@dataclass(frozen=True, slots=True)
class Process:
    """One rank, or a track of our own. `labels` stand beside the name, `description` is shown when asked for."""

    name: str
    labels: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Words:
    """A column of words: [n] codes into `words`, negative where absent."""

    code: Int32Array
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ints:
    """A column of integers with a mask of those present."""

    value: Int64Array
    known: BoolArray


def _no_ids() -> Int64Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Arrows:
    """Arrows that begin or end at rows of one sheet, in the order of `row`. An arrow has the same id at both of its ends."""

    row: Int64Array = field(default_factory=_no_ids)
    id: Int64Array = field(default_factory=_no_ids)
    at_ns: Int64Array = field(default_factory=_no_ids)  # when: the start of the cause, or the moment the effect was let go


@dataclass(frozen=True, slots=True)
class Sheet:
    """n rows in the order (process, lane, start, longer first); all rows of a process are in one sheet."""

    process: Int32Array  # [n] into Picture.processes
    lane: Words
    name: Words
    kind: Words
    shape: Int8Array  # [n] SLICE, OPEN, INSTANT or COUNTER
    start_ns: Int64Array
    end_ns: Int64Array  # equals start_ns except of a SLICE
    value: Float64Array  # [n] of a COUNTER
    ints: dict[str, Ints]  # attributes, by name
    words: dict[str, Words]
    texts: dict[str, pa.Array]  # [n] JSON text or null
    begins: Arrows = field(default_factory=Arrows)
    ends: Arrows = field(default_factory=Arrows)

    def __len__(self) -> int:
        return len(self.process)


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole export. base_ns: not after any row. notes: what is to be known about it; asked when all sheets are through."""

    title: str
    processes: tuple[Process, ...]
    base_ns: int
    sheets: Iterator[Sheet]
    notes: Callable[[], dict[str, Any]]
    truncated: bool
