"""Checkpoints put into a simulated job, which writes none itself: what they cost is known by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from crossrank.model.columns import EVENT_SCHEMA
from tests.support.pipeline import events_of


def with_checkpoints(events: pa.Table, after: tuple[int, ...], length_ns: int, *, beside: bool = False) -> pa.Table:
    """The same job in which every rank writes a checkpoint after some steps; `beside`: on another lane, while the job goes on."""
    step, rank = events["step"].fill_null(-1).to_numpy(), events["rank"].to_numpy()
    start, end = (events[name].to_numpy().copy() for name in ("start_ns", "end_ns"))
    extra: list[dict[str, Any]] = []
    job, kind = events["job"].cast(pa.string())[0].as_py(), events["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    host, clock = (events[name].cast(pa.string()).to_pylist() for name in ("host", "clock"))
    lane = events["lane"].cast(pa.string())[0].as_py()
    for s in after:
        for r in np.unique(rank).tolist():
            first = int(np.flatnonzero(rank == r)[0])
            of_step = (rank == r) & (step == s)
            at = int(end[of_step & (kind != "step")].max())
            if not beside:
                later = (rank == r) & (start >= at)
                start[later] += length_ns + 2000
                end[later] += length_ns + 2000
                end[of_step & (kind == "step")] += length_ns + 2000
            extra.append(
                {
                    "job": job, "rank": r, "host": host[first], "clock": clock[first], "kind": "checkpoint", "name": "save", "step": s,
                    "lane": "saver" if beside else lane, "start_ns": at + 1000, "end_ns": at + 1000 + length_ns,
                    "span_id": f"{0xC0DE0000 + r:08x}{s:08x}",
                }
            )  # fmt: skip
    for name, values in (("start_ns", start), ("end_ns", end)):
        events = events.set_column(events.schema.get_field_index(name), EVENT_SCHEMA.field(name), pa.array(values))
    return pa.concat_tables([events, events_of(extra)]).unify_dictionaries()
