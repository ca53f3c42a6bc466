"""What changed between two sets of steps, of one job or of two: on the critical path, by phase, rank and group.

The critical path of a step fills it without gaps, so what each phase, each rank and each group has on it adds up to the step, and
so do the changes. Steps are compared by their median, parts by their mean (a rank is on the path or not), with a 95 % band of the difference
(spread); a change within its band is noise. More lines than one in twenty leave their bands by chance alone, so the bands of parts are widened
to hold all of them together (Bonferroni, by the normal quantile).

A slow link inside a ring shows in no rank's wait: everybody is slower. But the rank it leads to has its last piece last in every
operation. So for each group the ends of the members are compared too: one that now ends after all others by more than the band,
where it did not before, is fed by a slow link from one of its two neighbours (which of the two depends on which way the ring goes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from crossrank.analysis.critical_path import PathIndex, critical_path
from crossrank.analysis.spread import mean_and_band, median_and_band
from crossrank.analysis.steps import StepTable
from crossrank.model.arrays import Float64Array, Int64Array
from crossrank.model.timeline import Timeline

MOST_STEPS = 64  # of a side; more are thinned out evenly
_LEAST_BYTES = 1_024  # smaller operations are all latency: no link shows in them


@dataclass(frozen=True, slots=True)
class Side:
    """Some steps of a job. rows: of the step table."""

    timeline: Timeline
    steps: StepTable
    paths: PathIndex
    rows: Int64Array


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a step, its usual length before and after. moved: the difference is beyond the band."""

    by: str  # step, phase, rank, group
    what: str
    before_ns: int
    after_ns: int
    change_ns: int
    band_ns: int | None  # None: too few steps to tell
    moved: bool


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A ring of which one member now ends last. from_ranks: its neighbours, one of which the slow link comes from."""

    group: str
    op: str
    to_rank: int
    from_ranks: tuple[int, ...]
    behind_ns: int  # how far it ends behind the mean of the group, more than before
    band_ns: int
    transfer_before_ns: int
    transfer_after_ns: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of the steps: before and after; parts: those that moved first, the largest change first."""

    steps_before: int
    steps_after: int
    step: Change
    parts: tuple[Change, ...]
    links: tuple[LinkChange, ...]


def compare(before: Side, after: Side) -> Comparison:
    """Compares two sides. O(steps x path length)."""
    sides = (_thinned(before), _thinned(after))
    tables = [_on_path(side) for side in sides]
    lengths = [side.steps.end_ns[side.rows] - side.steps.start_ns[side.rows] for side in sides]
    whole = _change("step", "step", *(n.astype(np.float64) for n in lengths), widen=1.0)
    keys = sorted({key for table in tables for key in table})
    widen = float(-ndtri(0.025 / max(len(keys), 1))) / 1.96
    none = [np.zeros(len(side.rows)) for side in sides]
    parts = [_change(*key, tables[0].get(key, none[0]), tables[1].get(key, none[1]), widen=widen) for key in keys]
    parts.sort(key=lambda c: (not c.moved, -abs(c.change_ns), c.by, c.what))
    return Comparison(len(lengths[0]), len(lengths[1]), whole, tuple(parts), _links(*sides))


def _thinned(side: Side) -> Side:
    rows = side.rows
    if len(rows) > MOST_STEPS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_STEPS).round().astype(np.int64)]
    return Side(side.timeline, side.steps, side.paths, rows)


def _on_path(side: Side) -> dict[tuple[str, str], Float64Array]:
    """Time of each part on the path of each step: {(by, what): [steps]}."""
    trace = side.timeline.trace
    found: dict[tuple[str, str], Float64Array] = {}
    for place, row in enumerate(side.rows.tolist()):
        path = critical_path(side.timeline, side.steps, int(side.steps.step[row]), side.paths)
        for s in path.segments:
            keys = [("phase", f"{s.kind} {s.name}".strip()), ("rank", str(s.rank))]
            if s.span is not None and trace.group[s.span] >= 0:
                keys.append(
                    (
                        "group",
                        f"{trace.groups[trace.group[s.span]]} {trace.ops[trace.op[s.span]] if trace.op[s.span] >= 0 else s.kind}",
                    )
                )
            for key in keys:
                found.setdefault(key, np.zeros(len(side.rows)))[place] += s.on_path_ns
    return found


def _change(by: str, what: str, before: Float64Array, after: Float64Array, *, widen: float) -> Change:
    usual = median_and_band if by == "step" else mean_and_band
    (was, was_band), (now, now_band) = usual(before), usual(after)
    band = widen * float(np.hypot(was_band, now_band))
    change = float(now - was)
    told = np.isfinite(band)
    return Change(
        by, what, round(float(was)), round(float(now)), round(change), round(band) if told else None,
        bool(told and abs(change) > band),
    )  # fmt: skip


def _links(before: Side, after: Side) -> tuple[LinkChange, ...]:
    was, now = _ends(before), _ends(after)
    found = []
    for key in sorted(was.keys() & now.keys()):
        (behind_was, transfer_was), (behind, transfer) = was[key], now[key]
        n = behind.shape[1]
        if behind_was.shape[1] != n or n < 3:
            continue
        (old, old_band), (new, new_band) = median_and_band(behind_was), median_and_band(behind)
        band = float(-ndtri(0.025 / n)) / 1.96 * np.hypot(old_band, new_band)
        change = new - old
        last = int(np.argmax(change))
        slower = _change("step", "", transfer_was, transfer, widen=1.0)
        second = np.sort(change)[-2]
        if not (slower.moved and slower.change_ns > 0 and change[last] - second > band[last] and change[last] > 2 * band[last]):
            continue
        group, op, ranks = key
        sources = tuple(sorted({ranks[(last + 1) % n], ranks[last - 1]}))
        found.append(LinkChange(group, op, ranks[last], sources, round(float(change[last])), round(float(band[last])),
            slower.before_ns, slower.after_ns))  # fmt: skip
    return tuple(sorted(found, key=lambda c: -c.behind_ns))


def _ends(side: Side) -> dict[tuple[str, str, tuple[int, ...]], tuple[Float64Array, Float64Array]]:
    """Per (group, op, members): [instances, members] end behind the mean of the members, and [instances] transfer."""
    trace, coll = side.timeline.trace, side.timeline.matches.collectives
    wanted = set(side.steps.step[side.rows].tolist())
    rows: dict[tuple[str, str, tuple[int, ...]], list[tuple[Int64Array, int]]] = {}
    for k in _whole(side, wanted):
        member = coll.member[coll.ptr[k] : coll.ptr[k + 1]]
        ranks = tuple(trace.rank[member].tolist())
        key = (trace.groups[coll.group[k]], trace.ops[coll.op[k]], ranks)
        ends = side.timeline.end_ns[member]
        rows.setdefault(key, []).append((ends - ends.min(), int(np.median(ends) - side.timeline.start_ns[member].max())))
    return {
        key: (np.array([e - e.mean() for e, _ in of], dtype=np.float64), np.array([t for _, t in of], dtype=np.float64))
        for key, of in rows.items()
    }


def _whole(side: Side, steps: set[int]) -> Iterable[int]:
    """Complete collectives of a useful size in the given steps."""
    trace, coll = side.timeline.trace, side.timeline.matches.collectives
    first = coll.member[coll.ptr[:-1]]
    kept = coll.complete & coll.synchronising & (coll.group >= 0) & (coll.op >= 0) & (trace.size_bytes[first] >= _LEAST_BYTES)
    kept &= np.isin(side.timeline.step_of[first], sorted(steps))
    kept &= np.add.reduceat(trace.is_open[coll.member], coll.ptr[:-1]) == 0 if len(coll) else kept
    found: list[int] = np.flatnonzero(kept).tolist()
    return found
