"""Explicit cause edges: from the span ids an event names to the spans they mean.

An id is looked for among the spans of the same rank first, because ids are only unique within a rank; then in the whole job, where
it counts if exactly one rank has it. Links to nothing, to oneself or to more than one rank are dropped.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import Int64Array


def resolve_links(links: pa.Array, rank: np.ndarray, span_id: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(cause, effect) span numbers of e links, by effect. links: list<binary(8)>, row-aligned with the others. O(e log n)."""
    nothing = np.empty(0, dtype=np.int64)
    if links.null_count == len(links):
        return nothing, nothing
    count = np.nan_to_num(links.value_lengths().to_numpy(zero_copy_only=False)).astype(np.int64)
    flat = links.flatten()
    effect = np.repeat(np.arange(len(links), dtype=np.int64), count)
    valid = flat.is_valid().to_numpy(zero_copy_only=False)
    wanted = np.frombuffer(b"".join(flat.fill_null(b"\0" * 8).to_pylist()), dtype=">i8").astype(np.int64)[valid]
    effect = effect[valid]
    cause = _in_rank(wanted, rank[effect].astype(np.int64), rank.astype(np.int64), span_id)
    lost = cause < 0
    cause[lost] = _anywhere(wanted[lost], span_id)
    kept = (cause >= 0) & (cause != effect)
    return cause[kept], effect[kept]


def _in_rank(wanted: Int64Array, of_rank: Int64Array, rank: Int64Array, span_id: Int64Array) -> Int64Array:
    """Span of that rank with that id, -1 where there is none."""
    order = np.lexsort((span_id, rank))
    keys = np.rec.fromarrays((rank[order], span_id[order]))
    place = np.searchsorted(keys, np.rec.fromarrays((of_rank, wanted)))
    held = np.minimum(place, max(len(order) - 1, 0))
    found = (rank[order][held] == of_rank) & (span_id[order][held] == wanted)
    return np.where(found, order[held], -1)


def _anywhere(wanted: Int64Array, span_id: Int64Array) -> Int64Array:
    """The only span with that id in the job, -1 where there is none or more than one."""
    order = np.argsort(span_id, kind="stable")
    low = np.searchsorted(span_id[order], wanted)
    high = np.searchsorted(span_id[order], wanted, side="right")
    return np.where(high - low == 1, order[np.minimum(low, max(len(order) - 1, 0))], -1)
