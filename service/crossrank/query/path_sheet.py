"""The critical path and the steps as rows of a picture: one process with the tracks `steps` and `critical path`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.critical_path import Segment, critical_path
from crossrank.exporters.picture import SLICE, Ints, Sheet, Words
from crossrank.model.arrays import Int64Array
from crossrank.query.jobview import JobView

SEGMENTS_MOST: Final = 200_000
_LANES: Final = ("critical path", "steps")


@dataclass(frozen=True, slots=True)
class PathSheet:
    """The rows, for how many steps there are, and how many more were asked for."""

    sheet: Sheet
    steps: int
    left_out: int


@dataclass(frozen=True, slots=True)
class _Row:
    lane: int
    name: str
    kind: str
    start_ns: int
    end_ns: int
    step: int
    rank: int | None
    on_lane: str


def path_sheet(view: JobView, steps: Int64Array, before_ns: int | None) -> PathSheet:
    """Paths of rows of the step table that begin before `before_ns`, as many as fit. Process 0."""
    derived = view.derived
    table = derived.steps
    rows: list[_Row] = []
    done = 0
    for place in steps.tolist():
        start, end, step = int(table.start_ns[place]), int(table.end_ns[place]), int(table.step[place])
        if len(rows) > SEGMENTS_MOST or (before_ns is not None and start >= before_ns):
            break
        last = table.last_rank_of(place)
        rows.append(_Row(1, f"step {step}", "step", start, end, step, last, ""))
        rows += [_of_segment(s, step) for s in critical_path(derived.timeline, table, step, derived.paths).segments]
        done += 1
    rows.sort(key=lambda r: (r.lane, r.start_ns, -r.end_ns))
    return PathSheet(_sheet(rows), done, len(steps) - done)


def _of_segment(segment: Segment, step: int) -> _Row:
    name = f"rank {segment.rank}: {segment.name or segment.kind}"
    return _Row(0, name, segment.kind, segment.start_ns, segment.end_ns, step, segment.rank, segment.lane)


def _sheet(rows: list[_Row]) -> Sheet:
    n = len(rows)
    rank = np.array([0 if r.rank is None else r.rank for r in rows], dtype=np.int64)
    return Sheet(
        process=np.zeros(n, dtype=np.int32),
        lane=Words(np.array([r.lane for r in rows], dtype=np.int32), _LANES),
        name=_words([r.name for r in rows]),
        kind=_words([r.kind for r in rows]),
        shape=np.full(n, SLICE, dtype=np.int8),
        start_ns=np.array([r.start_ns for r in rows], dtype=np.int64),
        end_ns=np.array([r.end_ns for r in rows], dtype=np.int64),
        value=np.zeros(n),
        ints={
            "step": Ints(np.array([r.step for r in rows], dtype=np.int64), np.ones(n, dtype=bool)),
            "rank": Ints(rank, np.array([r.rank is not None for r in rows], dtype=bool)),
        },
        words={"lane": _words([r.on_lane for r in rows])},
        texts={},
    )


def _words(words: list[str]) -> Words:
    """Codes of a list of words; "" is absent."""
    known = sorted(set(words) - {""})
    place = {word: i for i, word in enumerate(known)}
    return Words(np.array([place.get(w, -1) for w in words], dtype=np.int32), tuple(known))
