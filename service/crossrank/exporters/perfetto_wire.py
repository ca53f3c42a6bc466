"""Writes Perfetto packets of columns straight as protobuf bytes, a million slices a second or so.

Fields by the published schema (perfetto/trace/trace_packet.proto, track_event.proto, debug_annotation.proto); a byte here is the
tag `field << 3 | wire type`. Lengths are written as four bytes whatever they are: protobuf allows a varint longer than need be,
so a message is written in one pass and its length filled in afterwards. Packets that are few (descriptors, names) are written with
the schema's own classes instead, see `perfetto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from crossrank.exporters.picture import COUNTER, INSTANT
from crossrank.model.arrays import BoolArray, Float64Array, Int8Array, Int64Array, UInt8Array

SEQUENCE: Final = 1  # trusted_packet_sequence_id of everything written
NEEDS_NAMES: Final = 2  # SEQ_NEEDS_INCREMENTAL_STATE
_ROW_BYTES: Final = 96  # a packet without annotations: three lengths, time, track, name, category, type, counter
_INT_BYTES: Final = 1 + 4 + 11 + 11
_WORD_BYTES: Final = 1 + 4 + 11 + 12
_TEXT_BYTES: Final = 1 + 4 + 11 + 5
_ARROW_BYTES: Final = 2 + 8


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows ready to be written: codes are interned ids, 0 where absent."""

    time_ns: Int64Array  # [2, n] begin, end
    shape: Int8Array  # [n]
    track: Int64Array  # [n] uuid
    name: Int64Array  # [n]
    category: Int64Array  # [n]
    value: Float64Array  # [n]
    int_names: Int64Array  # [a] interned names of annotations
    ints: Int64Array  # [a, n]
    ints_known: BoolArray  # [a, n]
    word_names: Int64Array  # [b]
    words: Int64Array  # [b, n]
    text_names: Int64Array  # [c]
    text_ptr: Int64Array  # [c, n + 1] into text
    text: UInt8Array
    out_ptr: Int64Array  # [n + 1] arrows that begin at a row
    out_id: Int64Array
    in_ptr: Int64Array  # [n + 1] arrows that end at a row
    in_id: Int64Array


def room(columns: Columns, stamps: Int64Array) -> int:
    """Bytes that `write` may need for these stamps."""
    rows = stamps >> 1
    begins = rows[(stamps & 1) == 0]
    fixed = len(columns.int_names) * _INT_BYTES + len(columns.word_names) * _WORD_BYTES + len(columns.text_names) * _TEXT_BYTES
    texts = int((columns.text_ptr[:, begins + 1] - columns.text_ptr[:, begins]).sum())
    arrows = int((columns.out_ptr[rows + 1] - columns.out_ptr[rows] + columns.in_ptr[rows + 1] - columns.in_ptr[rows]).sum())
    return len(stamps) * _ROW_BYTES + len(begins) * fixed + texts + arrows * _ARROW_BYTES


def write(columns: Columns, stamps: Int64Array) -> bytes:
    """The packets of some stamps in their order."""
    out = np.empty(room(columns, stamps), dtype=np.uint8)
    c = columns
    size = _write(
        out, stamps, c.time_ns, c.shape, c.track, c.name, c.category, c.value, c.int_names, c.ints, c.ints_known, c.word_names,
        c.words, c.text_names, c.text_ptr, c.text, c.out_ptr, c.out_id, c.in_ptr, c.in_id,
    )  # fmt: skip
    return out[:size].tobytes()


@njit(cache=True, nogil=True)
def _write(
    out: UInt8Array, stamps: Int64Array, time_ns: Int64Array, shape: Int8Array, track: Int64Array, name: Int64Array,
    category: Int64Array, value: Float64Array, int_names: Int64Array, ints: Int64Array, ints_known: BoolArray,
    word_names: Int64Array, words: Int64Array, text_names: Int64Array, text_ptr: Int64Array, text: UInt8Array,
    out_ptr: Int64Array, out_id: Int64Array, in_ptr: Int64Array, in_id: Int64Array,
) -> int:  # fmt: skip
    bits = value.view(np.int64)
    at = 0
    for stamp in stamps:
        row, is_end = stamp >> 1, stamp & 1
        out[at] = 0x0A  # Trace.packet
        packet = at + 5
        at = _varint(out, _tag(out, packet, 0x40), time_ns[is_end, row])  # timestamp
        at = _varint(out, _tag(out, at, 0x50), SEQUENCE)
        at = _varint(out, _tag(out, at, 0x68), NEEDS_NAMES)
        out[at] = 0x5A  # track_event
        event = at + 5
        kind = 2 if is_end else 1
        if shape[row] == INSTANT:
            kind = 3
        elif shape[row] == COUNTER:
            kind = 4
        at = _varint(out, _tag(out, event, 0x48), kind)  # type
        at = _varint(out, _tag(out, at, 0x58), track[row])  # track_uuid
        if kind == 4:
            at = _fixed(out, _tag(out, _tag(out, at, 0xE1), 0x02), bits[row])  # double_counter_value
        elif kind != 2:
            at = _varint(out, _tag(out, at, 0x50), name[row])  # name_iid
            at = _varint(out, _tag(out, at, 0x18), category[row])  # category_iids
            for i in range(out_ptr[row], out_ptr[row + 1]):
                at = _fixed(out, _tag(out, _tag(out, at, 0xF9), 0x02), out_id[i])  # flow_ids
            for k in range(len(int_names)):
                if ints_known[k, row]:
                    note = _note(out, at, int_names[k])
                    at = _length(out, at, _varint(out, _tag(out, note, 0x20), ints[k, row]))  # int_value
            for k in range(len(word_names)):
                if words[k, row] != 0:
                    note = _note(out, at, word_names[k])
                    note = _tag(out, _tag(out, note, 0x88), 0x01)  # string_value_iid
                    at = _length(out, at, _varint(out, note, words[k, row]))
            for k in range(len(text_names)):
                begin, end = text_ptr[k, row], text_ptr[k, row + 1]
                if end > begin:
                    note = _tag(out, _note(out, at, text_names[k]), 0x4A)  # legacy_json_value
                    note = _varint(out, note, end - begin)
                    out[note : note + end - begin] = text[begin:end]
                    at = _length(out, at, note + end - begin)
        if shape[row] == INSTANT or is_end:
            for i in range(in_ptr[row], in_ptr[row + 1]):
                at = _fixed(out, _tag(out, _tag(out, at, 0x81), 0x03), in_id[i])  # terminating_flow_ids
        _length(out, event - 5, at)
        _length(out, packet - 5, at)
    return at


@njit(cache=True, nogil=True, inline="always")
def _tag(out: UInt8Array, at: int, tag: int) -> int:
    out[at] = tag
    return at + 1


@njit(cache=True, nogil=True)
def _note(out: UInt8Array, at: int, name: int) -> int:
    """Opens a debug annotation with its interned name; its length is filled in later."""
    out[at] = 0x22
    out[at + 5] = 0x08
    return _varint(out, at + 6, name)


@njit(cache=True, nogil=True)
def _length(out: UInt8Array, tag: int, end: int) -> int:
    """Fills in the length of the message whose tag is at `tag` and which ends before `end`."""
    size = end - tag - 5
    for i in range(4):
        out[tag + 1 + i] = (size >> (7 * i)) & 0x7F | (0x80 if i < 3 else 0)
    return end


@njit(cache=True, nogil=True)
def _varint(out: UInt8Array, at: int, value: int) -> int:
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@njit(cache=True, nogil=True)
def _fixed(out: UInt8Array, at: int, bits: int) -> int:
    rest = np.uint64(bits)
    for i in range(8):
        out[at + i] = np.uint8((rest >> np.uint64(8 * i)) & np.uint64(0xFF))
    return at + 8
