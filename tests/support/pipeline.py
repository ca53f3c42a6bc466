"""From events to a Timeline, the way the service derives it, for tests of the analyses."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.align.fit import fit_clocks
from crossrank.align.repair import repair
from crossrank.model.clockmap import ClockMap, PairBounds, identity_map
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology
from crossrank.model.trace import trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.reconstruct.recordings import join_recordings
from crossrank.reconstruct.steps import assign_steps
from crossrank.reconstruct.topology import infer_topology
from crossrank.simulate.job import Simulated

Clocks = Literal["fit", "true"]


def events_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Events in the native JSON form (ids in hex) as a table of the event schema. Only for tests: nothing is validated."""
    columns: dict[str, list[Any]] = {name: [] for name in EVENT_SCHEMA.names}
    for number, row in enumerate(rows):
        full = {
            "job": "job", "attempt": 0, "clock": row.get("host") or f"rank:{row['rank']}", "lane": "main", "is_async": False,
            "span_id": f"{number + 1:016x}", "flags": 0, "received_ns": 0, **row,
        }  # fmt: skip
        full["attrs"] = json.dumps(row["attrs"]) if row.get("attrs") else None
        for name, column in columns.items():
            value = full.get(name)
            column.append(bytes.fromhex(value) if isinstance(value, str) and name.endswith("_id") else value)
    return pa.table(
        [
            pa.array(columns[f.name], f.type.value_type).dictionary_encode()
            if pa.types.is_dictionary(f.type)
            else pa.array(columns[f.name], f.type)
            for f in EVENT_SCHEMA
        ],
        schema=EVENT_SCHEMA,
    )


def recorded_events(scenario: Path) -> pa.Table:
    """All events of one recorded scenario folder (`events/rankN.ndjson.gz`)."""
    rows: list[Any] = []
    for file in sorted((scenario / "events").glob("*.ndjson.gz")):
        with gzip.open(file, "rt") as lines:
            rows += [json.loads(line) for line in lines if line.strip()]
    return events_of(rows)


def timeline_of(events: pa.Table, job: str | None = None, attempt: int = 0, clocks: Clocks = "fit") -> Timeline:
    """Derives a timeline. `clocks="true"` takes the stamps as they are (one true clock), `"fit"` corrects them first."""
    name = job if job is not None else str(events.column("job")[0].as_py())
    trace = join_recordings(trace_from_arrow(events, job=name, attempt=attempt)).trace
    matches = match(trace)
    order = replay(trace, matches)
    clock_map = fit_clocks(trace, matches) if clocks == "fit" else _one_clock(len(trace.domains))
    start = clock_map.to_reference(trace.domain, trace.start_ns)
    end = np.where(trace.is_open, start, clock_map.to_reference(trace.domain, trace.end_ns))
    start, end = repair(trace, matches, order, start, end)
    return Timeline(trace, matches, order, clock_map, start, end, assign_steps(trace))


def topology_of(timeline: Timeline, posted: dict[str, Any] | None = None) -> Topology:
    """The topology as the service infers it."""
    return infer_topology(timeline.trace, timeline.matches, posted)


def with_true_stamps(simulated: Simulated) -> pa.Table:
    """A simulated job's events as a perfect clock would have stamped them."""
    events, is_open = simulated.events, pc.is_null(simulated.events.column("end_ns"))
    for name, values in (
        ("start_ns", pa.array(simulated.true_start_ns)),
        ("end_ns", pc.if_else(is_open, None, pa.array(simulated.true_end_ns))),
    ):
        events = events.set_column(events.schema.get_field_index(name), EVENT_SCHEMA.field(name), values)
    return events


def _one_clock(domains: int) -> ClockMap:
    """All domains known to be right."""
    alone = identity_map(domains)
    component = np.zeros(domains, dtype=np.int32)
    return replace(
        alone,
        component=component,
        reference=component[:1],
        pairs=PairBounds(np.zeros(domains, dtype=np.int64), np.zeros((domains, domains), dtype=np.int64)),
    )
