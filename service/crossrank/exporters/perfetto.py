"""A picture as a native Perfetto trace (protobuf), for ui.perfetto.dev and trace_processor.

    header     one packet a process and a track: who it is, on which host, how sure its clock is
    names      every name, category and word once, by number (interned data), before it is first used
    rows       begin and end of each slice, instants, samples (`perfetto_wire`)
    notes      one instant on the track `crossrank` that says what was chosen, left out and how well the clocks agree

Packets of a track are in the order of time with ends before begins, which is what keeps nesting right where times are equal. An arrow
leaves with the begin of its cause and arrives with the *end* of its effect: the effect began earlier, it was waiting, and
trace_processor drops an arrow that arrives before it has left.
Source: Perfetto's published schema, package `perfetto`; https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

from crossrank.exporters.perfetto_wire import NEEDS_NAMES, SEQUENCE, Columns, write
from crossrank.exporters.picture import SLICE, Arrows, Picture, Process, Sheet, Words
from crossrank.exporters.tracks import Layout, lay_out
from crossrank.model.arrays import Int64Array

MEDIA_TYPE: Final = "application/vnd.perfetto-trace"
_NAMES_CLEARED: Final = 1  # SEQ_INCREMENTAL_STATE_CLEARED
_STAMPS_AT_ONCE: Final = 1 << 15
_NOTES_TRACK: Final = 1
_PROCESS_TRACKS: Final = 1 << 32  # uuid of process 0; those of rows lie below
_INT64_MAX: Final = 2**63 - 1


def perfetto_stream(picture: Picture) -> Iterator[bytes]:
    """The trace in pieces; memory for one sheet at a time."""
    first = schema.TracePacket(
        trusted_packet_sequence_id=SEQUENCE, sequence_flags=_NAMES_CLEARED, first_packet_on_sequence=True
    )  # fmt: skip
    first.trace_packet_defaults.track_event_defaults.track_uuid = _NOTES_TRACK
    yield _bytes(first) + _notes_track()
    yield b"".join(_process(number, process) for number, process in enumerate(picture.processes))
    names = _Names()
    next_track, left_out = _NOTES_TRACK + 1, 0
    for sheet in picture.sheets:
        layout = lay_out(sheet, next_track)
        yield b"".join(_track(next_track + i, *track) for i, track in enumerate(_tracks(layout)))
        next_track += len(layout.names)
        left_out += layout.left_out
        columns = _columns(sheet, layout, names)
        yield names.take()
        for at in range(0, len(layout.stamps), _STAMPS_AT_ONCE):
            yield write(columns, layout.stamps[at : at + _STAMPS_AT_ONCE])
    yield _notes(picture, left_out)


class _Names:
    """Interned names by kind: number of each, and those not yet written."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {"event_names": {}, "event_categories": {}, "debug_annotation_names": {}}
        self._known["debug_annotation_string_values"] = {}
        self._packet = schema.TracePacket(trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_NAMES)

    def number(self, kind: str, name: str) -> int:
        """The number of a name, from 1 on."""
        known = self._known[kind]
        number = known.get(name)
        if number is None:
            number = known[name] = len(known) + 1
            if kind == "debug_annotation_string_values":
                self._packet.interned_data.debug_annotation_string_values.add(iid=number, str=name.encode())
            else:
                getattr(self._packet.interned_data, kind).add(iid=number, name=name)
        return number

    def numbers(self, kind: str, words: Words) -> Int64Array:
        """[n] numbers of a column, 0 where absent."""
        used = np.unique(words.code[words.code >= 0]).tolist()
        of_word = np.zeros(len(words.words) + 1, dtype=np.int64)
        of_word[used] = [self.number(kind, words.words[code]) for code in used]
        return of_word[words.code]  # the code -1 takes the last, which is 0

    def take(self) -> bytes:
        """The packet that tells the new ones."""
        packet, self._packet = self._packet, schema.TracePacket(trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_NAMES)
        return _bytes(packet)


def _columns(sheet: Sheet, layout: Layout, names: _Names) -> Columns:
    n = len(sheet)
    kind = "debug_annotation_names"
    text, text_ptr = _texts(list(sheet.texts.values()), n)
    ints, words = list(sheet.ints.values()), list(sheet.words.values())
    is_slice = sheet.shape == SLICE
    return Columns(
        time_ns=np.stack((sheet.start_ns, np.where(is_slice, sheet.end_ns, sheet.start_ns))),
        shape=sheet.shape,
        track=layout.track,
        name=names.numbers("event_names", sheet.name),
        category=names.numbers("event_categories", sheet.kind),
        value=sheet.value,
        int_names=np.array([names.number(kind, name) for name in sheet.ints], dtype=np.int64),
        ints=np.stack([column.value for column in ints]) if ints else np.empty((0, n), np.int64),
        ints_known=np.stack([column.known for column in ints]) if ints else np.empty((0, n), np.bool_),
        word_names=np.array([names.number(kind, name) for name in sheet.words], dtype=np.int64),
        words=np.stack([names.numbers("debug_annotation_string_values", w) for w in words])
        if words
        else np.empty((0, n), np.int64),
        text_names=np.array([names.number(kind, name) for name in sheet.texts], dtype=np.int64),
        text_ptr=text_ptr,
        text=text,
        **_arrow_columns("out", sheet.begins, n),
        **_arrow_columns("in", sheet.ends, n),
    )


def _arrow_columns(side: str, arrows: Arrows, n: int) -> dict[str, Int64Array]:
    return {f"{side}_ptr": np.searchsorted(arrows.row, np.arange(n + 1)).astype(np.int64), f"{side}_id": arrows.id}


def _texts(columns: list[pa.Array], n: int) -> tuple[Any, Int64Array]:
    """All text columns in one buffer, and where each row of each column lies in it."""
    data, ptr, base = [], np.zeros((len(columns), n + 1), dtype=np.int64), 0
    for i, column in enumerate(columns):
        lengths = pa.compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        ptr[i, 1:] = np.cumsum(lengths)
        ptr[i] += base
        data.append(np.frombuffer("".join(column.drop_null().to_pylist()).encode(), dtype=np.uint8))
        base += len(data[-1])
    return (np.concatenate(data) if data else np.empty(0, np.uint8)), ptr


def _tracks(layout: Layout) -> Iterator[tuple[int, str, bool]]:
    return zip(layout.owner.tolist(), layout.names, layout.is_counter.tolist(), strict=True)


def _process(number: int, process: Process) -> bytes:
    packet = schema.TracePacket(trusted_packet_sequence_id=SEQUENCE)
    track = packet.track_descriptor
    track.uuid = _PROCESS_TRACKS + number
    track.description = process.description
    track.process.pid = pid_of(number)
    track.process.process_name = process.name
    track.process.process_labels.extend(process.labels)
    return _bytes(packet)


def pid_of(process: int) -> int:
    """Process id of a process, from 1 on: viewers take 0 for the idle task."""
    return process + 1


def _track(uuid: int, process: int, name: str, is_counter: bool) -> bytes:
    packet = schema.TracePacket(trusted_packet_sequence_id=SEQUENCE)
    track = packet.track_descriptor
    track.uuid = uuid
    track.parent_uuid = _PROCESS_TRACKS + process
    if is_counter:
        track.name = name
        track.counter.SetInParent()
    else:
        track.thread.pid, track.thread.tid, track.thread.thread_name = pid_of(process), uuid, name
    return _bytes(packet)


def _notes_track() -> bytes:
    packet = schema.TracePacket(trusted_packet_sequence_id=SEQUENCE)
    packet.track_descriptor.uuid = _NOTES_TRACK
    packet.track_descriptor.name = "crossrank"
    return _bytes(packet)


def _notes(picture: Picture, left_out: int) -> bytes:
    packet = schema.TracePacket(trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_NAMES, timestamp=picture.base_ns)
    event = packet.track_event
    event.type, event.track_uuid, event.name = schema.TrackEvent.TYPE_INSTANT, _NOTES_TRACK, picture.title
    for name, value in {**picture.notes(), "left_out_overlapping": left_out}.items():
        note = event.debug_annotations.add(name=name)
        if isinstance(value, str):
            note.string_value = value
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _INT64_MAX:
            note.int_value = value
        else:
            note.legacy_json_value = msgspec.json.encode(value).decode()
    return _bytes(packet)


def _bytes(packet: Any) -> bytes:
    """A packet as a field of the trace."""
    trace: bytes = schema.Trace(packet=[packet]).SerializeToString()
    return trace
