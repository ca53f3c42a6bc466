"""Reads exported traces back into plain slices, arrows and samples, by the rules of their formats and nothing of ours.

Perfetto: by the published schema, a stack of open slices a track. Chrome: JSON with numbers kept as decimals.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

Track = tuple[str, str]  # process, thread


@dataclass
class Slice:
    """One drawn slice or instant. end_ns: None while open. depth: slices around it on its track."""

    track: Track
    name: str
    category: str
    start_ns: int
    end_ns: int | None
    depth: int
    args: dict[str, Any]
    leaves: list[int] = field(default_factory=list)
    arrives: list[int] = field(default_factory=list)


@dataclass
class TraceFile:
    """Everything in a trace. labels: of processes. notes: what the export says about itself."""

    slices: list[Slice]
    samples: list[tuple[Track, int, float]]
    labels: dict[str, str]
    notes: dict[str, Any]

    def of_ranks(self) -> list[Slice]:
        """Slices of ranks, without the critical path."""
        return [s for s in self.slices if s.track[0].startswith("rank ")]

    def on(self, process: str, thread: str) -> list[Slice]:
        """Slices of one track in the order of time."""
        return sorted((s for s in self.slices if s.track == (process, thread)), key=lambda s: s.start_ns)

    def arrows(self) -> set[tuple[tuple[str, str], tuple[str, str]]]:
        """((process, span id) of the cause, of the effect); an arrow without both ends is a fault."""
        causes = {i: s for s in self.slices for i in s.leaves}
        effects = {i: s for s in self.slices for i in s.arrives}
        assert causes.keys() == effects.keys()
        return {
            ((causes[i].track[0], causes[i].args["span_id"]), (effects[i].track[0], effects[i].args["span_id"])) for i in causes
        }


def read_perfetto(data: bytes) -> TraceFile:
    """A native trace. Fails on an end without a begin, an unknown name or track, a slice that leaves the one around it."""
    trace = schema.Trace.FromString(data)
    names: dict[str, dict[int, str]] = defaultdict(dict)
    tracks: dict[int, Any] = {}
    out = TraceFile([], [], {}, {})
    stacks: dict[int, list[Slice]] = defaultdict(list)
    times: dict[int, int] = defaultdict(int)
    for packet in trace.packet:
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            names[kind].update({e.iid: e.name for e in getattr(packet.interned_data, kind)})
        names["words"].update({e.iid: e.str.decode() for e in packet.interned_data.debug_annotation_string_values})
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.track_descriptor.HasField("process"):
                process = packet.track_descriptor.process
                out.labels[process.process_name] = ", ".join((*process.process_labels, packet.track_descriptor.description))
        if not packet.HasField("track_event"):
            continue
        event, track = packet.track_event, tracks[packet.track_event.track_uuid]
        if event.HasField("name"):
            out.notes = {"base_ns": packet.timestamp, **_annotations(event, names)}
            continue
        assert packet.timestamp >= times[track.uuid]
        times[track.uuid] = packet.timestamp
        process_name = tracks[track.parent_uuid].process.process_name
        if event.type == schema.TrackEvent.TYPE_COUNTER:
            out.samples.append(((process_name, track.name), packet.timestamp, event.double_counter_value))
            continue
        stack = stacks[track.uuid]
        if event.type == schema.TrackEvent.TYPE_SLICE_END:
            ended = stack.pop()
            ended.end_ns = packet.timestamp
            ended.arrives += event.terminating_flow_ids
            continue
        where = (process_name, track.thread.thread_name)
        name, category = names["event_names"][event.name_iid], names["event_categories"][event.category_iids[0]]
        drawn = Slice(where, name, category, packet.timestamp, None, len(stack), _annotations(event, names), list(event.flow_ids))
        out.slices.append(drawn)
        if event.type == schema.TrackEvent.TYPE_INSTANT:
            drawn.end_ns = packet.timestamp
            drawn.arrives += event.terminating_flow_ids
        else:
            stack.append(drawn)
    return out


def _annotations(event: Any, names: dict[str, dict[int, str]]) -> dict[str, Any]:
    found = {}
    for note in event.debug_annotations:
        name = note.name if note.HasField("name") else names["debug_annotation_names"][note.name_iid]
        which = note.WhichOneof("value")
        value = getattr(note, which)
        found[name] = names["words"][value] if which == "string_value_iid" else json.loads(value) if "json" in which else value
    return found


def read_chrome(data: bytes) -> TraceFile:
    """A Chrome trace; slices of a thread must nest."""
    document = json.loads(data, parse_float=Decimal)
    base = int(document["otherData"]["base_ns"])
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    out = TraceFile([], [], {}, document["otherData"])
    stacks: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    ends: list[dict[str, Any]] = []
    for event in document["traceEvents"]:
        at, key = base + _ns(event["ts"]), (event["pid"], event["tid"])
        match event["ph"]:
            case "M":
                if event["name"] == "process_name":
                    processes[event["pid"]] = event["args"]["name"]
                elif event["name"] == "process_labels":
                    out.labels[processes[event["pid"]]] = event["args"]["labels"]
                elif event["name"] == "thread_name":
                    threads[key] = event["args"]["name"]
            case "C":
                out.samples.append(((processes[event["pid"]], event["name"]), at, float(event["args"]["value"])))
            case "X" | "B" | "i":
                stack = stacks[key]
                while stack and stack[-1].end_ns is not None and stack[-1].end_ns <= at:
                    stack.pop()
                end = at + _ns(event["dur"]) if event["ph"] == "X" else at if event["ph"] == "i" else None
                assert not stack or stack[-1].end_ns is None or (end is not None and end <= stack[-1].end_ns)
                drawn = Slice((processes[key[0]], threads[key]), event["name"], event["cat"], at, end, len(stack), event["args"])
                out.slices.append(drawn)
                if event["ph"] != "i":
                    stack.append(drawn)
            case _:
                ends.append(event)
    _bind(out, ends, {key: (processes[key[0]], name) for key, name in threads.items()}, base)
    return out


def _bind(out: TraceFile, ends: list[dict[str, Any]], tracks: dict[tuple[int, int], Track], base: int) -> None:
    """Arrows bind to the innermost slice around them on their thread."""
    by_track = defaultdict(list)
    for drawn in out.slices:
        by_track[drawn.track].append(drawn)
    for event in ends:
        at = base + _ns(event["ts"])
        around = [
            s for s in by_track[tracks[event["pid"], event["tid"]]] if s.start_ns <= at and (s.end_ns is None or at <= s.end_ns)
        ]
        exact = [s for s in around if s.start_ns == at] if event["ph"] == "s" else []
        bound = max(exact or around, key=lambda s: s.depth)
        (bound.leaves if event["ph"] == "s" else bound.arrives).append(event["id"])


def _ns(microseconds: Any) -> int:
    ns = Decimal(microseconds) * 1000
    assert ns == int(ns)
    return int(ns)
