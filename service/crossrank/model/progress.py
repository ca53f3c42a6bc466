"""How far each rank says it has got in each process group, as a dump of its communication library counted it.

A flight recorder keeps, beside its ring buffer of operations, three counters a group: the last operation the host enqueued, the
last one the device started, the last one that completed. They outlive the buffer: a rank that hangs with nothing outstanding
dumps no operation at all, and only its counters say that it is behind. So every dump yields one `mark` event for each group it
knows, even when it holds no operation:

    kind `mark`, name `group_status`, group, group_ranks, attrs {"last_enqueued": n, "last_started": n, "last_completed": n}

A counter that was not kept is -1 or absent. Counters are per group and count collectives; in a group that also carries
messages they count those too and compare with nobody.

A recorder names groups by a number of its own process (`pg_id`); an operation says which name it stands for. Where no operation
does, both lists in ascending order of their numbers correspond, because groups are numbered and named as they are made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.kinds import MARK
from crossrank.model.trace import JobTrace

GROUP_STATUS: Final = "group_status"
LAST_ENQUEUED: Final = "last_enqueued"
LAST_STARTED: Final = "last_started"
LAST_COMPLETED: Final = "last_completed"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One rank's counters of one group (index into `trace.groups`); None where not kept."""

    rank: int
    group: int
    enqueued: int | None
    completed: int | None


def reported_progress(events: pa.Table, trace: JobTrace) -> tuple[GroupStatus, ...]:
    """What the `group_status` events say, ascending by (group, rank); of several about one pair the furthest counts."""
    if GROUP_STATUS not in trace.names:
        return ()
    spans = np.flatnonzero((trace.kind == MARK) & (trace.name == trace.names.index(GROUP_STATUS)) & (trace.group >= 0))
    group_of = {
        (rank, span_id): group
        for rank, span_id, group in zip(
            trace.rank[spans].tolist(), trace.span_id[spans].tolist(), trace.group[spans].tolist(), strict=True
        )
    }
    is_status = pc.equal(pc.cast(events["name"], pa.string()), GROUP_STATUS)
    found: dict[tuple[int, int], tuple[int | None, int | None]] = {}
    for row in events.filter(is_status).select(["rank", "span_id", "attrs"]).to_pylist():
        group = group_of.get((row["rank"], int.from_bytes(row["span_id"], "big", signed=True)))
        if group is None:
            continue
        said = _object(row["attrs"])
        told = _counter(said.get(LAST_ENQUEUED)), _counter(said.get(LAST_COMPLETED))
        before = found.get((group, row["rank"]), (None, None))
        found[group, row["rank"]] = _later(before[0], told[0]), _later(before[1], told[1])
    return tuple(GroupStatus(rank, group, *counters) for (group, rank), counters in sorted(found.items()))


def _object(text: str | None) -> dict[str, object]:
    try:
        said = json.loads(text or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _counter(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
