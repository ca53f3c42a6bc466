"""One span in full: what was sent, when it really was, what had to happen first, and who waited for it.

before   program order: the stamp before its start on its lane; what launched it from another lane
cross-rank: who came last to its collective, the send of its message - what its end waited for
waited   if others waited for it: members of the collective it came last to (only beyond doubt), the receive of its message
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from crossrank.errors import BadParameter, NotFound
from crossrank.model.clockmap import UNALIGNED_NS
from crossrank.model.gates import NO_GATE
from crossrank.model.kinds import KINDS
from crossrank.query.aligned import with_alignment
from crossrank.query.answers.collectives import instance_answer
from crossrank.query.answers.events import event_rows
from crossrank.query.jobview import JobView, carried
from crossrank.query.timeline_index import timeline_index
from crossrank.store.filter import EventFilter

_MOST_WAITERS: Final = 50


def span_answer(view: JobView, rank: int, span_id: str) -> dict[str, Any]:
    """GET /v1/jobs/{job}/spans/{rank}/{span_id}. Raises BadParameter, NotFound.

    Fields of `span` named as in /events hold epoch ns; `start`, `end`, `raw_start`, `raw_end` are offsets from `base_ns`.
    """
    derived = view.derived
    wanted = _id(span_id)
    span, found = derived.index.find(
        np.array([rank], dtype=np.int32), np.array([int.from_bytes(wanted, "big", signed=True)], dtype=np.int64)
    )
    if not len(derived.timeline.trace) or not found[0]:
        raise NotFound(f"rank {rank} has no span {span_id} in the answers of job {view.snapshot.job!r}", field="span_id")
    i = int(span[0])
    index, trace = timeline_index(derived, "repaired"), derived.timeline.trace
    clocks, domain = derived.timeline.clocks, int(trace.domain[i])
    k = _instance_of(view, i)
    waited, waiters = _waited(view, i, k)
    return {
        "base_ns": str(index.base_ns),
        "span": {
            **_event(view, rank, wanted, i),
            "start": int(index.span_start[i]),
            "end": None if trace.is_open[i] else int(index.span_stop[i]),
            "raw_start": int(trace.start_ns[i]) - index.base_ns,
            "raw_end": None if trace.is_open[i] else int(trace.end_ns[i]) - index.base_ns,
            "bound_lo_ns": _bound(int(clocks.bound_lo_ns[domain])),
            "bound_hi_ns": _bound(int(clocks.bound_hi_ns[domain])),
            "lamport_start": int(derived.timeline.order.lamport[2 * i]),
        },
        "before": _before(view, i),
        "waited": waited,
        "waiters": waiters,
        "collective": None if k is None else instance_answer(view, k),
        **carried(view, truncated=waiters > len(waited)),
    }


def _id(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 8:
        raise BadParameter("span_id must be 16 hexadecimal digits", field="span_id")
    return found


def _bound(ns: int) -> int | None:
    return ns if abs(ns) < UNALIGNED_NS else None


def _event(view: JobView, rank: int, span_id: bytes, i: int) -> dict[str, Any]:
    """The event as /events tells it; only the row groups about its time are read."""
    trace = view.derived.timeline.trace
    start, end = int(trace.start_ns[i]), int(trace.end_ns[i])
    where = EventFilter(
        attempt=trace.attempt, ranks=(rank,), span_ids=(span_id,), from_ns=start, to_ns=min(end, 2**63 - 2) + 1
    )  # fmt: skip
    rows: pa.Table = view.snapshot.events(where=where)
    if rows.num_rows == 0:  # amended since: its stamps are others now
        rows = view.snapshot.events(where=EventFilter(attempt=trace.attempt, ranks=(rank,), span_ids=(span_id,)))
    shown = event_rows(with_alignment(rows, view.derived))
    return shown[0] if shown else {}


def _before(view: JobView, i: int) -> list[dict[str, Any]]:
    """Immediate causes of the start and of the end, each with its edge and how long before it was ready."""
    derived = view.derived
    timeline, paths = derived.timeline, derived.paths
    found: list[dict[str, Any]] = []
    stamps = ((int(paths.work.pred[2 * i]), "lane"), (int(paths.releases.launched_by[2 * i]), "launch"))
    for stamp, edge in stamps:
        if stamp >= 0:
            at = timeline.end_ns[stamp // 2] if stamp % 2 else timeline.start_ns[stamp // 2]
            found.append(
                {**_brief(view, stamp // 2), "edge": edge, "at": "end" if stamp % 2 else "start",
                 "slack_ns": int(timeline.start_ns[i] - at), "bound_ns": 0}
            )  # fmt: skip
    for comm in {i, int(paths.releases.waits_for[i])} - {-1}:
        gate = int(paths.gate_of[comm])
        if gate == NO_GATE or paths.opener[gate] in (comm, len(timeline.trace)):
            continue
        cause, (edge, k) = int(paths.opener[gate]), paths.gates.name(gate)
        bound = int(timeline.clocks.pairs.of(timeline.trace.domain[cause], timeline.trace.domain[comm]))
        sure = edge == "message" or bool(derived.collectives.decided[k])
        found.append(
            {**_brief(view, cause), "edge": edge, "at": "start", "slack_ns": None, "bound_ns": _bound(bound), "certain": sure,
             "wait_ns": max(0, int(min(paths.opened_ns[gate], timeline.end_ns[comm]) - timeline.start_ns[comm]))}
        )  # fmt: skip
    return found


def _instance_of(view: JobView, i: int) -> int | None:
    found = view.derived.timeline.matches.collectives
    place = np.flatnonzero(found.member == i)
    return int(np.searchsorted(found.ptr, place[0], side="right")) - 1 if len(place) else None


def _waited(view: JobView, i: int, k: int | None) -> tuple[list[dict[str, Any]], int]:
    """Spans of other ranks that waited for this one, longest first, and how many there are."""
    derived = view.derived
    timeline = derived.timeline
    trace, found, messages = timeline.trace, timeline.matches.collectives, timeline.matches.messages
    spans, waits = [], []
    if k is not None and derived.collectives.decided[k] and derived.collectives.last_arriver[k] == trace.rank[i]:
        members, waited = (
            found.member[found.ptr[k] : found.ptr[k + 1]],
            derived.collectives.wait_ns[found.ptr[k] : found.ptr[k + 1]],
        )
        other = (members != i) & (waited > 0)
        spans, waits = members[other].tolist(), waited[other].tolist()
    at = np.flatnonzero(messages.send == i)
    if len(at):
        received = int(messages.recv[at[0]])
        wait = min(int(timeline.start_ns[i]), int(timeline.end_ns[received])) - int(timeline.start_ns[received])
        if wait > 0:
            spans, waits = [received], [wait]
    longest = sorted(zip(waits, spans, strict=True), key=lambda pair: (-pair[0], pair[1]))
    shown = [
        {
            **_brief(view, span),
            "wait_ns": wait,
            "bound_ns": _bound(int(timeline.clocks.pairs.of(trace.domain[i], trace.domain[span]))),
        }
        for wait, span in longest[:_MOST_WAITERS]
    ]
    return shown, len(longest)


def _brief(view: JobView, span: int) -> dict[str, Any]:
    timeline = view.derived.timeline
    trace, base = timeline.trace, timeline_index(view.derived, "repaired").base_ns
    is_open = bool(trace.is_open[span])
    return {
        "rank": int(trace.rank[span]),
        "span_id": f"{int(trace.span_id[span]) & (2**64 - 1):016x}",
        "lane": trace.lanes[trace.lane[span]],
        "name": trace.names[trace.name[span]],
        "kind": KINDS[trace.kind[span]],
        "start": int(timeline.start_ns[span]) - base,
        "end": None if is_open else int(timeline.end_ns[span]) - base,
        "start_ns": int(timeline.start_ns[span]),
        "end_ns": None if is_open else int(timeline.end_ns[span]),
    }
