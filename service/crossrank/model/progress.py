"""How far each rank says it has got in each process group, as a dump of its communication library counted it.

A flight recorder keeps, beside its ring buffer of operations, counters a group: the last operation the host enqueued and the
last one that completed. They outlive the buffer: a rank that hangs with nothing outstanding dumps no operation at all, and only
its counters say that it is behind. Importers keep them as `mark` events named `pg_status` on the group, with the counters in
attrs; a counter that was not kept is -1 or absent. Counters are per group and count collectives; in a group that also carries
messages they may count those too, and then compare with nobody.

An operation may also be known to be over without anybody knowing when (`retired` in attrs, end_ns null): gloo's recorder never
fills in times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import Int64Array
from crossrank.model.kinds import MARK
from crossrank.model.trace import JobTrace

STATUS_NAME: Final = "pg_status"
RECORDER_LANE: Final = "flight_recorder"
_ENQUEUED, _COMPLETED = "last_enqueued_collective", "last_completed_collective"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One rank's counters of one group (index into `trace.groups`); None where not kept."""

    rank: int
    group: int
    enqueued: int | None
    completed: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What dumps say beside their operations.

    status: ascending by (group, rank). over: spans without an end that are known to have ended. dumped: ranks with a dump.
    """

    status: tuple[GroupStatus, ...]
    over: Int64Array
    dumped: tuple[int, ...]


def reported_progress(events: pa.Table, trace: JobTrace) -> Progress:
    """Reads the progress out of events (EVENT_SCHEMA) whose trace this is. Costs nothing where no dump was imported."""
    if RECORDER_LANE not in trace.lanes:
        return Progress((), np.empty(0, dtype=np.int64), ())
    rows = events.filter(pc.equal(pc.cast(events["lane"], pa.string()), RECORDER_LANE))
    rows = rows.select(["rank", "span_id", "end_ns", "attrs"]).to_pylist()
    lane = np.isin(trace.lane, [i for i, name in enumerate(trace.lanes) if name == RECORDER_LANE])
    spans = np.flatnonzero(lane)
    identity = zip(trace.rank[spans].tolist(), trace.span_id[spans].tolist(), strict=True)
    place = dict(zip(identity, spans.tolist(), strict=True))
    found: dict[tuple[int, int], tuple[int | None, int | None]] = {}
    over: list[int] = []
    for row in rows:
        span = place.get((row["rank"], int.from_bytes(row["span_id"], "big", signed=True)))
        if span is None:
            continue
        said = _object(row["attrs"])
        if trace.kind[span] == MARK and trace.group[span] >= 0 and trace.names[trace.name[span]] == STATUS_NAME:
            key = int(trace.group[span]), int(row["rank"])
            before = found.get(key, (None, None))
            found[key] = _later(before[0], _counter(said.get(_ENQUEUED))), _later(before[1], _counter(said.get(_COMPLETED)))
        elif row["end_ns"] is None and (said.get("retired") is True or said.get("state") == "completed"):
            over.append(span)
    return Progress(
        status=tuple(GroupStatus(rank, group, *counters) for (group, rank), counters in sorted(found.items())),
        over=np.array(sorted(over), dtype=np.int64),
        dumped=tuple(np.unique(trace.rank[spans]).tolist()),
    )


def _object(text: str | None) -> dict[str, Any]:
    try:
        said = json.loads(text or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _counter(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
