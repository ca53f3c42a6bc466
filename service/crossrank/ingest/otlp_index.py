"""Where the spans, resources and scopes of an OTLP protobuf body lie, found in one compiled pass over its three outer levels.

    ExportTraceServiceRequest.resource_spans -> ResourceSpans {resource, scope_spans, schema_url}
                                                ScopeSpans    {scope, spans, schema_url}

Everything that is not one of these is skipped as protobuf skips unknown fields, and what protobuf refuses is refused. The spans
themselves are not looked into. `wire.Walk` is the same in plain Python.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import length, varint
from crossrank.ingest.wire import DEPTH_MAX
from crossrank.limits import Limits

SCOPES_MAX: Final = 65_536  # each costs as much as several spans; the same bound holds for resources
_FIELDS_PER_SPAN: Final = 4
_END, _BROKEN, _TOO_MANY, _FULL = 0, -1, -2, -3
RESOURCE, RESOURCE_SCHEMA, SCOPE, SCOPE_SCHEMA = 1, 3, 11, 13  # field numbers, those of a scope plus 10
_SPANS, _RESOURCES, _SCOPES, _PARTS = range(4)


class Index(NamedTuple):
    """Stretches of the body. Spans in order; `part_*`: the pieces of resources and scopes, `part_owner` saying whose."""

    begin: np.ndarray  # int64 [spans]
    end: np.ndarray  # int64 [spans]
    scope: np.ndarray  # int32 [spans]
    part_kind: np.ndarray  # int8 [parts]
    part_owner: np.ndarray  # int32 [parts], a resource or a scope
    part_begin: np.ndarray  # int64 [parts]
    part_end: np.ndarray  # int64 [parts]
    scope_resource: np.ndarray  # int32 [scopes]


def index_body(buf: np.ndarray, limits: Limits) -> tuple[Index, int]:
    """The index of a body (uint8), and how many resources it has. Raises UndecodableBody, BodyTooLarge."""
    room = buf.size // 64 + 64
    while True:
        index = Index(
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty(room, np.int32),
            np.empty(room, np.int8),
            np.empty(room, np.int32),
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty(min(room, SCOPES_MAX), np.int32),
        )
        found = np.zeros(4, np.int64)
        left = np.array([_FIELDS_PER_SPAN * limits.events_per_body], np.int64)
        verdict = _index(buf, index, found, np.empty(DEPTH_MAX, np.int64), left, limits.events_per_body)
        if verdict == _BROKEN:
            raise UndecodableBody("The body is not OTLP protobuf: it is cut off or has fields that cannot be")
        if verdict == _TOO_MANY:
            raise BodyTooLarge(f"The body has more than {limits.events_per_body} spans, {SCOPES_MAX} scopes, or too many fields")
        if verdict == _END:
            spans, resources, scopes, parts = found.tolist()
            sizes = (spans, spans, spans, parts, parts, parts, parts, scopes)
            return Index._make(array[:size] for array, size in zip(index, sizes, strict=True)), resources
        room *= 4


@njit(cache=True, nogil=True, forceinline=True)
def _next_field(buf: np.ndarray, at: int, end: int, depth: int, groups: np.ndarray, left: np.ndarray) -> tuple[Any, Any, Any]:
    """(number, begin, end) of the next length-delimited field; other fields are skipped. Number 0 at the end, negative on faults."""
    inside = 0
    while at < end:
        left[0] -= 1
        if left[0] < 0:
            return _TOO_MANY, at, at
        tag, at = varint(buf, at, min(end, at + 5))
        if at < 0 or tag < np.uint64(8) or tag >= np.uint64(1 << 32):
            return _BROKEN, at, at
        number, kind = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        if kind == 2:
            size, at = length(buf, at, end)
            if at < 0:
                return _BROKEN, at, at
            if inside == 0:
                return number, at, at + size
            at += size
        elif kind == 0:
            _, at = varint(buf, at, end)
            if at < 0:
                return _BROKEN, at, at
        elif kind == 1 and end - at >= 8:
            at += 8
        elif kind == 5 and end - at >= 4:
            at += 4
        elif kind == 3 and inside < DEPTH_MAX - depth:
            groups[inside] = number
            inside += 1
        elif kind == 4 and inside > 0 and groups[inside - 1] == number:
            inside -= 1
        else:
            return _BROKEN, at, at
    return (_END if inside == 0 else _BROKEN), at, at


@njit(cache=True, nogil=True)
def _part(index: Index, found: np.ndarray, kind: int, owner: int, begin: int, end: int) -> Any:
    n = found[_PARTS]
    if n >= index.part_kind.size:
        return _FULL
    index.part_kind[n], index.part_owner[n], index.part_begin[n], index.part_end[n] = kind, owner, begin, end
    found[_PARTS] = n + 1
    return _END


@njit(cache=True, nogil=True, forceinline=True)
def _scope(
    buf: np.ndarray, at: int, end: int, index: Index, found: np.ndarray, groups: np.ndarray, left: np.ndarray, most: int
) -> Any:
    scope = found[_SCOPES]
    if scope >= SCOPES_MAX:
        return _TOO_MANY
    if scope >= index.scope_resource.size:
        return _FULL
    index.scope_resource[scope] = found[_RESOURCES]
    found[_SCOPES] = scope + 1
    while True:
        number, begin, at = _next_field(buf, at, end, 2, groups, left)
        if number <= 0:
            return number
        if number == 2:
            n = found[_SPANS]
            if n >= most:
                return _TOO_MANY
            if n >= index.begin.size:
                return _FULL
            index.begin[n], index.end[n], index.scope[n] = begin, at, scope
            found[_SPANS] = n + 1
        elif number in (1, 3):
            verdict = _part(index, found, 10 + number, scope, begin, at)
            if verdict != _END:
                return verdict


@njit(cache=True, nogil=True)
def _index(buf: np.ndarray, index: Index, found: np.ndarray, groups: np.ndarray, left: np.ndarray, most: int) -> Any:
    buf, index, found, groups, left = borrowed(buf), borrowed(index), borrowed(found), borrowed(groups), borrowed(left)
    at = 0
    while True:
        number, begin, at = _next_field(buf, at, buf.size, 0, groups, left)
        if number <= 0:
            return number
        if number != 1:
            continue
        if found[_RESOURCES] >= SCOPES_MAX:
            return _TOO_MANY
        inner = begin
        while True:
            number, begin, inner = _next_field(buf, inner, at, 1, groups, left)
            if number == _END:
                break
            verdict = number if number < 0 else _END
            if number == 2:
                verdict = _scope(buf, begin, inner, index, found, groups, left, most)
            elif number in (1, 3):
                verdict = _part(index, found, number, found[_RESOURCES], begin, inner)
            if verdict != _END:
                return verdict
        found[_RESOURCES] += 1
