"""Closed spans to NDJSON, in the background thread.

Constant parts (job, rank, host) and names, which repeat, are encoded once and kept; a line without extra fields is then one format
of five integers. Scalars of numpy and PyTorch are numbers; whatever else cannot be JSON is sent as its `repr`, since an attribute must not cost a span.
"""

from __future__ import annotations

import itertools
import json
import math
import secrets
from collections.abc import Iterable
from typing import Any

from crossrank_client.span import Span

COLUMNS = frozenset(
    {
        "group",
        "seq",
        "op",
        "peer",
        "bytes",
        "dtype",
        "is_async",
        "group_ranks",
        "links",
        "value",
        "trace_id",
        "parent_span_id",
        "attrs",
    }
)
NAMES_KEPT = 4096
BATCH_BYTES = 4 << 20
LINE_BYTES = 256 << 10  # of what is longer the service would keep only the beginning


class Encoder:
    """Encodes spans of one rank. constant: fields every event has (job, attempt, rank, host, clock)."""

    def __init__(self, constant: dict[str, Any], offset_ns: int) -> None:
        self._head = json_text(constant)[:-1]
        self._offset_ns = offset_ns
        self._names: dict[tuple[str, str | None, str], str] = {}
        # A random beginning of 62 bits: processes of a rank do not meet in their few million ids.
        self._ids = itertools.count(secrets.randbits(62) + 1)
        self.unencodable = self.too_large = 0

    def id_of(self, span: Span) -> int:
        """The id of a span, given when it is first asked for. Only for one thread."""
        if span.id is None:
            span.id = next(self._ids)
        return span.id

    def lines(self, spans: Iterable[Span]) -> list[bytes]:
        """One line a span, each with its newline. A span that cannot be encoded or is too large is left out and counted."""
        found = []
        for span in spans:
            try:
                line = self._line(span)
            except Exception:  # noqa: BLE001 -- a user's `__repr__` may raise anything
                self.unencodable += 1
                continue
            if len(line) <= LINE_BYTES:
                found.append(line)
            else:
                self.too_large += 1
        return found

    def _line(self, span: Span) -> bytes:
        key = (span.name, span.kind, span.lane.name)
        named = self._names.get(key)
        if named is None:
            named = self._named(*key)
            if len(self._names) < NAMES_KEPT:
                self._names[key] = named
        offset = self._offset_ns
        parts = [f'{named},"span_id":"{self.id_of(span):016x}","start_ns":{span.start_ns + offset}']
        if span.end_ns is not None:
            parts.append(f'"end_ns":{span.end_ns + offset}')
        if span.step is not None:
            parts.append(f'"step":{int(span.step)}')
        if span.parent is not None:
            parts.append(f'"parent_span_id":"{self.id_of(span.parent):016x}"')
        if span.fields:
            parts.append(json_text(_placed(dict(span.fields)))[1:-1])
        return (",".join(parts) + "}\n").encode("utf-8", "replace")

    def _named(self, name: str, kind: str | None, lane: str) -> str:
        return (
            f"{self._head}," + json_text({"lane": lane, "name": str(name), **({} if kind is None else {"kind": str(kind)})})[1:-1]
        )


def _placed(fields: dict[str, Any]) -> dict[str, Any]:
    """Columns in their places, everything else under `attrs`; what is None is absent."""
    attrs = fields.pop("attrs", None)
    placed = {key: value for key, value in fields.items() if key in COLUMNS and value is not None}
    others = {key: value for key, value in fields.items() if key not in COLUMNS}
    if attrs or others:
        placed["attrs"] = {**others, **(attrs or {})}
    return placed or {"attrs": {}}


def json_text(value: Any) -> str:
    """JSON of anything; see above."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)
    except ValueError:  # NaN or infinity, which JSON does not know
        return json.dumps(_finite(value), separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """A number for scalars of numpy and PyTorch, a text for anything else."""
    item = getattr(value, "item", None)
    if item is not None:
        try:
            found = item()
        except Exception:  # noqa: BLE001 -- an array of several numbers, or something else altogether
            return repr(value)
        if isinstance(found, (int, float, str)):
            return _finite(found)
    return repr(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
