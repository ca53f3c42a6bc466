"""Events one by one to batches of columns, for formats whose files are small or whose records are objects anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.errors import BodyTooLarge
from crossrank.importers.source import Recording
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import CHUNK_ROWS, RAW_SCHEMA, Decoded, places, raw_batch, raw_table
from crossrank.model.flags import EventFlag
from crossrank.model.post import Rejection

_INT64_MAX: Final = 2**63 - 1
_PLAIN: Final = tuple(n for n in RAW_SCHEMA.names if n not in ("attrs", "flags", "links"))


def span_id(*parts: object) -> bytes:
    """8 bytes that name an event of a rank: the same record of the same run gives the same id however often it is read."""
    digest = blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return digest if any(digest) else b"\1" * 8


def int64(value: object) -> int | None:
    """An integer (or the text of one, as some writers have it) in the range of int64, else None."""
    if isinstance(value, str):
        text = value.strip()
        if not text.removeprefix("-").isdecimal() or len(text) > 20:
            return None
        value = int(text)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -_INT64_MAX <= value <= _INT64_MAX else None


class Rows:
    """Collects events of one file; `recording` hands over what was collected since the last call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._columns: dict[str, list[Any]] = {name: [] for name in RAW_SCHEMA.names}
        self._batches: list[pa.RecordBatch] = []
        self._index: list[int] = []
        self.rejections: list[Rejection] = []
        self.warnings: list[str] = []

    def add(self, index: int, *, attrs: Mapping[str, Any] | None = None, links: list[bytes] | None = None, **columns: Any) -> None:
        """One event; columns not named are null. Attributes that are None are left out."""
        text, flags = None, 0
        present = {k: v for k, v in (attrs or {}).items() if v is not None}
        if present:
            try:
                text, cut = attrs_text(present, self._limits)
            except TooDeep:
                self.reject(index, "too_deep", rank=columns.get("rank"))
                return
            flags = int(EventFlag.TRUNCATED) if cut else 0
        for name in _PLAIN:
            self._columns[name].append(columns.get(name))
        self._columns["attrs"].append(text)
        self._columns["flags"].append(flags)
        self._columns["links"].append(links[: self._limits.links_per_event] if links else None)
        self._index.append(index)
        if len(self._index) > self._limits.events_per_body:
            raise BodyTooLarge(
                f"The file holds more than {self._limits.events_per_body} records that can only be taken at once",
                limit_events=self._limits.events_per_body,
            )
        if len(self._columns["rank"]) >= CHUNK_ROWS:
            self._flush()

    def reject(self, index: int, reason: str, detail: str = "", rank: int | None = None) -> None:
        """A record that cannot be an event."""
        self.rejections.append(Rejection(index=index, reason=reason, rank=rank, detail=detail[:200]))

    def _flush(self) -> None:
        self._batches.append(raw_batch(self._columns))
        self._columns = {name: [] for name in RAW_SCHEMA.names}

    def recording(self, rank: int | None, topology: Mapping[str, Any] | None = None) -> Recording:
        """What was collected. rank: whose it all is, None for several."""
        if self._columns["rank"]:
            self._flush()
        rows = raw_table(self._batches)
        first, last = pc.min(rows["start_ns"]).as_py(), pc.max(pc.coalesce(rows["end_ns"], rows["start_ns"])).as_py()
        batches = iter([Decoded(rows, places(self._index), self.rejections, self.warnings)])
        return Recording(rank, first, last, batches, topology)


def concatenated(parts: Iterator[Decoded], limits: Limits) -> Decoded:
    """All batches of a file as one. Raises BodyTooLarge beyond the events of one request."""
    tables, index, rejections, warnings = [raw_table([])], [places([])], [], []
    rows = 0
    for part in parts:
        rows += len(part.rows)
        if rows > limits.events_per_body:
            raise BodyTooLarge(
                f"The file holds more than {limits.events_per_body} events; `crossrank import` sends it in parts",
                limit_events=limits.events_per_body,
            )
        tables.append(part.rows)
        index.append(part.index)
        rejections += part.rejections
        warnings += part.warnings
    return Decoded(pa.concat_tables(tables), np.concatenate(index), rejections, warnings)
