"""The timeline of a window, reduced to what a screen of so many pixels and rows can show.

Bars, arrows from last arrivers to those who waited, the critical path, steps and the clocks' bounds; never all spans. Times are
integer offsets from `base_ns`, a decimal string, because epoch nanoseconds do not fit JavaScript's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from crossrank.analysis.critical_path import critical_path
from crossrank.errors import BadParameter
from crossrank.model.arrays import BoolArray, Int64Array
from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.model.kinds import KIND_CODE, KINDS
from crossrank.model.timeline import NO_STEP
from crossrank.query.aligned import How
from crossrank.query.answers.timeline_arrows import arrows_of
from crossrank.query.decimate import Bars, bars_of
from crossrank.query.jobview import JobView, carried
from crossrank.query.rank_sets import in_rank_set
from crossrank.query.timeline_index import TimelineIndex, matching, timeline_index

MOST_BARS: Final = 18_000
MOST_ROWS: Final = 4096
MOST_PATHS: Final = 40  # steps whose critical path is drawn at once
MOST_STEPS: Final = 2000
MOST_FOUND: Final = 1000
_KEPT_PATHS: Final = 512


@dataclass(frozen=True, slots=True)
class Window:
    """What is looked at. from_, to: offsets from the job's base, None for its whole length. ranks: as `0-31,40`, "" for all.

    row_from: the first of the chosen rows that is answered. locate: a rank whose row is asked for.
    """

    from_: int | None
    to: int | None
    width: int
    ranks: str
    rows: int
    how: How
    kinds: str
    text: str
    row_from: int = 0
    locate: int | None = None


def timeline(view: JobView, window: Window) -> dict[str, Any]:
    """GET /v1/jobs/{job}/timeline. Raises BadParameter."""
    derived = view.derived
    index = timeline_index(derived, window.how)
    lo, hi = _span_of(index, window)
    chosen = _lanes(view, window)
    lanes = chosen[window.row_from : window.row_from + min(window.rows, MOST_ROWS)]
    hit = matching(derived, window.text)[index.span] if window.text else np.empty(0, dtype=bool)
    bars = bars_of(
        lanes, index.lane_ptr, index.start, index.stop, index.reach, index.depth, index.kind, _kinds(window.kinds), hit,
        lo=lo, hi=hi, pixel_ns=-(-(hi - lo) // window.width), most=MOST_BARS,
    )  # fmt: skip
    trace = derived.timeline.trace
    spans, names = _columns(view, index, bars)
    if window.text:
        spans["hit"] = bars.hits.tolist()
    row_of_lane = np.full(len(trace.lanes) + 1, -1, dtype=np.int64)
    row_of_lane[lanes] = np.arange(len(lanes))
    return {
        "base_ns": str(index.base_ns),
        "from_ns": lo,
        "to_ns": hi,
        "end_ns": index.end,
        "aligned": window.how,
        "pixel_ns": bars.pixel_ns,
        "ranks": np.unique(trace.lane_rank[lanes]).tolist(),
        "rows": [
            {"rank": int(trace.lane_rank[lane]), "lane": trace.lanes[lane], "depth": int(index.levels[lane])}
            for lane in lanes.tolist()
        ],
        "row_from": window.row_from,
        "total_rows": len(chosen),
        "located_row": _row_of_rank(view, chosen, window.locate),
        "kinds": list(KINDS),
        "names": names,
        "spans": spans,
        "arrows": arrows_of(view, index, row_of_lane, lo, hi),
        "path": _path(view, index, row_of_lane, lo, hi),
        "steps": _steps(view, index, lo, hi),
        "bounds": _bounds(view, lanes),
        **({"hits": _hits(view, index, hit, chosen, lo, hi)} if window.text else {}),
        **carried(view, truncated=len(lanes) < len(chosen)),
    }


def search(view: JobView, text: str, how: How, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/timeline/search: spans by time."""
    trace = view.derived.timeline.trace
    index = timeline_index(view.derived, how)
    found = np.flatnonzero(matching(view.derived, text))
    first = found[np.argsort(index.span_start[found], kind="stable")[: min(limit, MOST_FOUND)]]
    step = view.derived.timeline.step_of[first]
    rows = [
        {
            "rank": int(trace.rank[i]),
            "lane": trace.lanes[trace.lane[i]],
            "name": trace.names[trace.name[i]],
            "kind": KINDS[trace.kind[i]],
            "step": None if s == NO_STEP else s,
            "start": int(index.span_start[i]),
            "end": int(index.span_stop[i]),
            "id": f"{int(trace.span_id[i]) & (2**64 - 1):016x}",
        }
        for i, s in zip(first.tolist(), step.tolist(), strict=True)
    ]
    cut = len(found) > len(rows)
    return {"base_ns": str(index.base_ns), "found": rows, "total": len(found), **carried(view, truncated=cut)}


def _span_of(index: TimelineIndex, window: Window) -> tuple[int, int]:
    lo = 0 if window.from_ is None else window.from_
    hi = max(index.end + 1, lo + 1) if window.to is None else window.to
    if hi <= lo:
        raise BadParameter("the window ends before it begins: `to` must be later than `from`", field="to_ns")
    return lo, hi


def _lanes(view: JobView, window: Window) -> Int64Array:
    """The lanes asked for. Lanes are numbered rank after rank."""
    lane_rank = view.derived.timeline.trace.lane_rank
    chosen = np.flatnonzero(in_rank_set(lane_rank, window.ranks)) if window.ranks else np.arange(len(lane_rank))
    return chosen.astype(np.int64)


def _row_of_rank(view: JobView, chosen: Int64Array, rank: int | None) -> int | None:
    """Place of the rank's first lane among all rows asked for."""
    if rank is None:
        return None
    rows = np.flatnonzero(view.derived.timeline.trace.lane_rank[chosen] == rank)
    return int(rows[0]) if len(rows) else None


def _hits(view: JobView, index: TimelineIndex, hit: BoolArray, chosen: Int64Array, lo: int, hi: int) -> dict[str, Any]:
    """How many spans on the rows asked for were searched for, and the nearest ones outside the window."""
    trace = view.derived.timeline.trace
    shown = np.zeros(len(trace.lanes), dtype=bool)
    shown[chosen] = True
    places = np.flatnonzero(hit)
    places = places[shown[trace.lane[index.span[places]]]]
    start = index.start[places]

    def tell(which: Int64Array, *, latest: bool) -> dict[str, Any] | None:
        if len(which) == 0:
            return None
        i = int(which[np.argmax(start[which]) if latest else np.argmin(start[which])])
        span = index.span[places[i]]
        return {"rank": int(trace.rank[span]), "lane": trace.lanes[trace.lane[span]], "start": int(start[i])}

    return {
        "total": len(places),
        "first": tell(np.arange(len(places)), latest=False),
        "next": tell(np.flatnonzero(start >= hi), latest=False),
        "previous": tell(np.flatnonzero(start < lo), latest=True),
    }


def _kinds(text: str) -> BoolArray:
    if not text:
        return np.ones(len(KINDS), dtype=bool)
    wanted = np.zeros(len(KINDS), dtype=bool)
    for kind in text.split(","):
        if kind.strip() not in KIND_CODE:
            raise BadParameter(f"there is no kind {kind[:40]!r}; kinds are {', '.join(KINDS)}", field="kinds")
        wanted[KIND_CODE[kind.strip()]] = True
    return wanted


def _columns(view: JobView, index: TimelineIndex, bars: Bars) -> tuple[dict[str, Any], list[str]]:
    trace = view.derived.timeline.trace
    span = index.span[bars.span]
    used, name = np.unique(trace.name[span], return_inverse=True)
    step = view.derived.timeline.step_of[span].tolist()
    ids = trace.span_id[span].astype(">i8").tobytes().hex()
    single = (bars.count == 1).tolist()
    columns: dict[str, Any] = {
        "row": bars.row.tolist(),
        "depth": bars.depth.tolist(),
        "start": bars.start.tolist(),
        "end": bars.end.tolist(),
        "kind": bars.kind.tolist(),
        "name": name.tolist(),
        "count": bars.count.tolist(),
        "step": [None if s == NO_STEP else s for s in step],
        "id": [ids[16 * i : 16 * i + 16] if one else None for i, one in enumerate(single)],
        "open": trace.is_open[span].astype(np.int8).tolist(),
    }
    return columns, [trace.names[i] if i >= 0 else "" for i in used.tolist()]


def _steps_between(view: JobView, index: TimelineIndex, lo: int, hi: int) -> Int64Array:
    """Rows of the step table that overlap the window."""
    table = view.derived.steps
    return np.flatnonzero((table.start_ns - index.base_ns < hi) & (table.end_ns - index.base_ns > lo))


def _steps(view: JobView, index: TimelineIndex, lo: int, hi: int) -> list[dict[str, int]]:
    table = view.derived.steps
    rows = _steps_between(view, index, lo, hi)[:MOST_STEPS].tolist()
    return [
        {
            "step": int(table.step[i]),
            "start": int(table.start_ns[i]) - index.base_ns,
            "end": int(table.end_ns[i]) - index.base_ns,
        }
        for i in rows
    ]


def _path(view: JobView, index: TimelineIndex, row_of_lane: Int64Array, lo: int, hi: int) -> list[dict[str, Any]]:
    """Segments of the critical paths of the steps in the window; none when it holds too many steps to see them."""
    table = view.derived.steps
    rows = _steps_between(view, index, lo, hi)
    if len(rows) > MOST_PATHS:
        return []
    lane_of = {place: lane for lane, place in enumerate(zip(*_places(view), strict=True))}
    segments = []
    for step in table.step[rows].tolist():
        for s in _path_of(view, index, step):
            if s["end"] > lo and s["start"] < hi:
                row = int(row_of_lane[lane_of[s["rank"], s["lane"]]])
                segments.append({**s, "row": None if row < 0 else row})
    return segments


def _places(view: JobView) -> tuple[list[int], tuple[str, ...]]:
    trace = view.derived.timeline.trace
    return trace.lane_rank.tolist(), trace.lanes


def _path_of(view: JobView, index: TimelineIndex, step: int) -> list[dict[str, Any]]:
    """The path of one step; its times are moved with its spans when they are shown by another alignment."""
    known = index.paths.get(step)
    if known is not None:
        return list(known)
    derived = view.derived
    trace = derived.timeline.trace
    found = []
    for s in critical_path(derived.timeline, derived.steps, step, derived.paths).segments:
        moved = 0 if s.span is None else int(index.span_start[s.span]) - int(derived.timeline.start_ns[s.span] - index.base_ns)
        found.append(
            {
                "step": step,
                "rank": s.rank,
                "lane": s.lane,
                "kind": s.kind,
                "name": s.name,
                "start": s.start_ns - index.base_ns + moved,
                "end": s.end_ns - index.base_ns + moved,
                "id": None if s.span is None else f"{int(trace.span_id[s.span]) & (2**64 - 1):016x}",
            }
        )
    if len(index.paths) >= _KEPT_PATHS:
        index.paths.clear()
    index.paths[step] = found
    return list(found)


def _bounds(view: JobView, lanes: Int64Array) -> list[dict[str, int | None]]:
    """How wrong the clock behind each row may be against the reference, ns."""
    trace, clocks = view.derived.timeline.trace, view.derived.timeline.clocks
    first = np.searchsorted(trace.lane, lanes)
    domain = trace.domain[np.minimum(first, max(len(trace) - 1, 0))]
    lo, hi = clocks.bound_lo_ns[domain].tolist(), clocks.bound_hi_ns[domain].tolist()
    return [
        {"row": row, "lo": a if abs(a) < UNALIGNED_NS else None, "hi": b if abs(b) < UNALIGNED_NS else None}
        for row, (a, b) in enumerate(zip(lo, hi, strict=True))
    ]
