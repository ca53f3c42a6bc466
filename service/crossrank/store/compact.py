"""Compaction: many small segments of a job become one, so that reads open few files and the catalog stays small.

Only neighbours are put together, in the order in which their rows were received. Then the versions of an identity inside the run
have no others between them, and merging them gives what merging everything would give.

Which ones: segments of about the same size first (powers of eight), as soon as there are `fewest` of them side by side. So each
row is written again once for each power of eight between the size of a seal and `rows_max`, not once for each seal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from crossrank.store.condense import recondense
from crossrank.store.content import identity_keys
from crossrank.store.facts import JobFacts
from crossrank.store.identity_runs import IdentityRuns
from crossrank.store.segment import SEGMENT_SCHEMA, SegmentInfo, write_segment
from crossrank.store.source import SegmentFile

_TIER_BITS: Final = 3


def run_to_compact(segments: Sequence[SegmentFile], *, fewest: int, rows_max: int) -> tuple[SegmentFile, ...]:
    """Neighbouring segments of one job that should become one, smallest first; empty when there are none.

    segments: of one job, in the order of receipt. A damaged one is never moved and keeps its neighbours apart.
    """
    tiers = sorted({_tier(s) for s in segments if s.info.rows <= rows_max // 2})
    for tier in tiers:
        run: list[SegmentFile] = []
        rows = 0
        for segment in segments:
            fits = segment.fault is None and _tier(segment) <= tier and rows + segment.info.rows <= rows_max
            if fits:
                run.append(segment)
                rows += segment.info.rows
                continue
            if len(run) >= fewest:
                return tuple(run)
            again = segment.fault is None and _tier(segment) <= tier
            run, rows = ([segment], segment.info.rows) if again else ([], 0)
        if len(run) >= fewest:
            return tuple(run)
    return ()


def _tier(segment: SegmentFile) -> int:
    return segment.info.rows.bit_length() // _TIER_BITS


def write_compacted(
    lake: Path, run: Sequence[SegmentFile], facts: JobFacts, runs: IdentityRuns, *, merged: bool, number: Callable[[], int]
) -> SegmentInfo:
    """Writes the segment that replaces the run. merged: see `recondense`. Raises DamagedSegment or OSError; nothing is left then."""
    tables = [t for segment in run for t in segment.whole()]
    rows = recondense(pa.concat_tables(t.cast(SEGMENT_SCHEMA) for t in tables).unify_dictionaries().combine_chunks(), merged=merged)
    covers = (min(s.info.covers_from for s in run), max(s.info.covers_to for s in run))
    info = write_segment(lake, number(), rows, facts, covers=covers)
    runs.add(info, identity_keys(rows, runs.salt))
    return info
