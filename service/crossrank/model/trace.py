"""One attempt of a job as parallel arrays: what alignment, reconstruction and analysis read.

Spans are numbered 0..n-1 in the order (rank, lane, start, longer first, span id), which depends only on the events themselves
and never on how they were delivered. A *stamp* is one end of a span: stamp 2*i is the start of span i, stamp 2*i+1 its end.
On a lane all stamps are ordered (a span may hold others, and asynchronous operations overlap), so `lane_stamps` is the
program order that causality builds on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.limits import Limits
from crossrank.model.arrays import BoolArray, Float64Array, Int8Array, Int32Array, Int64Array, distinct_pairs
from crossrank.model.clock_samples import ClockSamples, no_samples, samples_of
from crossrank.model.flags import EventFlag
from crossrank.model.graph_nodes import NodeLinks, place_links, without_nodes
from crossrank.model.groups import identify_groups
from crossrank.model.kinds import KIND_CODE, OTHER
from crossrank.model.links import resolve_links
from crossrank.model.tags import message_tags
from crossrank.model.words import NO_CODE, folded_codes, word_codes


def _no_links() -> Int64Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class JobTrace:
    """All usable spans of one job attempt; every array has n entries unless said otherwise. Times are raw (sender's clock).

    A coded array holds indices into the tuple of strings of the same name in plural; NO_CODE where the value is absent.
    """

    job: str
    attempt: int
    rank: Int32Array
    lane: Int32Array  # into lanes; a lane belongs to exactly one rank
    domain: Int32Array  # into domains (clock domains)
    kind: Int8Array  # into KINDS
    name: Int32Array
    op: Int32Array
    group: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array  # equals start_ns where is_open
    is_open: BoolArray  # no end yet
    step: Int64Array  # 0 where not has_step
    has_step: BoolArray
    seq: Int64Array  # 0 where not has_seq
    has_seq: BoolArray
    peer: Int32Array  # NO_CODE where absent
    tag: Int64Array  # of messages; 0 where not has_tag
    has_tag: BoolArray
    size_bytes: Int64Array  # 0 where unknown
    dtype: Int32Array
    is_async: BoolArray
    value: Float64Array  # NaN where absent
    span_id: Int64Array  # the 8 bytes read as a big-endian signed integer
    parent_id: Int64Array  # 0 where absent (an all-zero id is not a valid id)
    lanes: tuple[str, ...]
    lane_rank: Int32Array  # [lanes]
    domains: tuple[str, ...]
    domain_host: tuple[str, ...]  # [domains], "" where unknown
    names: tuple[str, ...]
    ops: tuple[str, ...]
    groups: tuple[str, ...]  # names; a name occurs once for each distinct membership
    dtypes: tuple[str, ...]
    group_ranks: tuple[tuple[int, ...], ...]  # [groups] members as sent, ascending; () where never sent
    lane_stamps: Int64Array  # [2n - open] stamps in lane order, lane after lane
    lane_stamp_ptr: Int64Array  # [lanes + 1]
    excluded: dict[str, int]  # events left out, by reason
    hosts: dict[int, str]  # rank -> host, where sent
    names_folded: int  # events whose name is one of too many, see `words`
    samples: ClockSamples = field(default_factory=no_samples)  # of clocks against the service's
    link_cause: Int64Array = field(default_factory=_no_links)  # [e] span that a link names
    link_effect: Int64Array = field(default_factory=_no_links)  # [e] span that says it follows from it; ascending
    nodes: dict[str, int] = field(default_factory=dict)  # of execution graphs, with a span and without, see graph_nodes

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def ranks(self) -> Int32Array:
        """Distinct ranks that have at least one usable span, ascending."""
        return np.unique(self.rank)

    def rows_of(self, rank: int) -> tuple[int, int]:
        """First span of a rank and the one after its last: spans are numbered rank after rank."""
        wanted = np.int32(rank)  # of the array's own type, else the whole of it is converted
        return int(np.searchsorted(self.rank, wanted, side="left")), int(np.searchsorted(self.rank, wanted, side="right"))


def trace_from_arrow(events: pa.Table, *, job: str, attempt: int, names_max: int = Limits().names_per_job) -> JobTrace:
    """Turns identity-merged events (EVENT_SCHEMA, one job attempt) into a JobTrace, whatever their row order.

    Events that cannot stand on a timeline (end before start, start not yet known) are left out and counted in `excluded`.
    names_max: distinct names kept apart.
    """
    events, nodes = without_nodes(events)
    events, excluded = _usable(events)
    events = _in_canonical_order(events)
    rank = _ints(events, "rank", np.int32)
    lane, lane_keys, lane_words = _lanes(events, rank)
    host, clock = _codes(events, "host"), _codes(events, "clock")
    samples, domains, unusable = samples_of(events, *clock)
    excluded |= {"clock_sample_unusable": unusable} if unusable else {}
    name, names, names_folded = folded_codes(_column(events, "name"), names_max)
    op, ops = _codes(events, "op")
    groups = identify_groups(*_codes(events, "group"), _column(events, "group_ranks"), rank)
    dtype, dtypes = _codes(events, "dtype")
    start, is_open = _ints(events, "start_ns", np.int64), _mask(events, "end_ns")
    end = np.where(is_open, start, _ints(events, "end_ns", np.int64))
    stamps, stamp_ptr = _lane_stamps(lane, len(lane_keys), start, end, is_open)
    span_id = _id_as_int(events, "span_id")
    kind = _kinds(events)
    tag, has_tag = message_tags(events, kind)
    cause, effect = _links(events, nodes, rank, span_id)
    return JobTrace(
        job=job,
        attempt=attempt,
        rank=rank,
        lane=lane,
        domain=clock[0],
        kind=kind,
        name=name,
        op=op,
        group=groups.code,
        start_ns=start,
        end_ns=end,
        is_open=is_open,
        step=_ints(events, "step", np.int64),
        has_step=~_mask(events, "step"),
        seq=_ints(events, "seq", np.int64),
        has_seq=~_mask(events, "seq"),
        peer=_ints(events, "peer", np.int32, NO_CODE),
        tag=tag,
        has_tag=has_tag,
        size_bytes=_ints(events, "bytes", np.int64),
        dtype=dtype,
        is_async=_column(events, "is_async").fill_null(False).to_numpy(zero_copy_only=False),
        value=_column(events, "value").fill_null(float("nan")).to_numpy(zero_copy_only=False),
        span_id=span_id,
        parent_id=_id_as_int(events, "parent_span_id"),
        lanes=tuple(lane_words[k % (len(lane_words) + 1)] for k in lane_keys.tolist()),
        lane_rank=(lane_keys // (len(lane_words) + 1)).astype(np.int32),
        domains=domains,
        domain_host=_domain_hosts((clock[0], domains), host),
        names=names,
        ops=ops,
        groups=groups.names,
        dtypes=dtypes,
        group_ranks=groups.members,
        lane_stamps=stamps,
        lane_stamp_ptr=stamp_ptr,
        excluded=excluded,
        hosts=_hosts(rank, *host),
        names_folded=names_folded,
        samples=samples,
        link_cause=cause,
        link_effect=effect,
        nodes=nodes.counts,
    )


def _lanes(events: pa.Table, rank: Int32Array) -> tuple[Int32Array, Int64Array, tuple[str, ...]]:
    """Lane of each event, the distinct lanes as rank x (words + 1) + word, and the words: a lane belongs to one rank."""
    code, words = _codes(events, "lane")
    keys, lane = np.unique(rank.astype(np.int64) * (len(words) + 1) + code, return_inverse=True)
    return lane.astype(np.int32), keys, words


def _kinds(events: pa.Table) -> Int8Array:
    code, words = _codes(events, "kind")
    return np.array([KIND_CODE.get(k, OTHER) for k in words] or [OTHER], dtype=np.int8)[code]


def _links(events: pa.Table, nodes: NodeLinks, rank: Int32Array, span_id: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(cause, effect) of all links, those that spans name and those of nodes, by effect."""
    cause, effect = resolve_links(_column(events, "links"), rank, span_id)
    if not len(nodes.rank):
        return cause, effect
    more = place_links(nodes, rank, span_id)
    pairs = np.unique(np.stack((np.concatenate((effect, more[1])), np.concatenate((cause, more[0])))), axis=1)
    return pairs[1], pairs[0]


def _in_canonical_order(events: pa.Table) -> pa.Table:
    """Sorted by (rank, lane, start, longer first, span id); an open span may hold all that follows, so it counts as longest."""
    start, is_open = _ints(events, "start_ns", np.int64), _mask(events, "end_ns")
    length = np.where(is_open, np.iinfo(np.int64).max, _ints(events, "end_ns", np.int64) - start)
    keys = (_id_as_int(events, "span_id"), -length, start, _codes(events, "lane")[0], _ints(events, "rank", np.int32))
    return events.take(pa.array(np.lexsort(keys)))


def _usable(events: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    flags = _ints(events, "flags", np.int32)
    reversed_ = (flags & int(EventFlag.END_BEFORE_START)) != 0
    startless = _mask(events, "start_ns")
    excluded = {
        reason: int(mask.sum()) for reason, mask in (("end_before_start", reversed_), ("start_missing", startless)) if mask.any()
    }
    return (events.filter(pa.array(~(reversed_ | startless))) if excluded else events), excluded


def _column(events: pa.Table, name: str) -> pa.Array:
    column = events.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mask(events: pa.Table, name: str) -> BoolArray:
    """True where the column is null."""
    mask: BoolArray = pc.is_null(_column(events, name)).to_numpy(zero_copy_only=False)
    return mask


def _ints(events: pa.Table, name: str, dtype: type[np.signedinteger], missing: int = 0) -> np.ndarray:
    return _column(events, name).fill_null(missing).to_numpy(zero_copy_only=False).astype(dtype, copy=False)


def _codes(events: pa.Table, name: str) -> tuple[Int32Array, tuple[str, ...]]:
    return word_codes(_column(events, name))


def _id_as_int(events: pa.Table, name: str) -> Int64Array:
    column = _column(events, name)
    filled = column.fill_null(b"\0" * 8)
    buffer = np.frombuffer(b"".join(filled.to_pylist()) if filled.offset else filled.buffers()[1], dtype=">i8")
    return buffer[: len(filled)].astype(np.int64)


def _lane_stamps(
    lane: Int32Array, lanes: int, start: Int64Array, end: Int64Array, is_open: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """Stamps of every lane in program order.

    At equal times: first the ends of spans that began earlier (innermost first), then starts (outermost first), then the ends
    of spans of no length. Spans are already sorted outermost first, so the span number breaks ties.
    """
    n = len(lane)
    index = np.arange(n, dtype=np.int64)
    closed = ~is_open
    stamp = np.concatenate((2 * index, 2 * index[closed] + 1))
    time = np.concatenate((start, end[closed]))
    zero_length = end[closed] == start[closed]
    phase = np.concatenate((np.ones(n, np.int8), np.where(zero_length, 2, 0).astype(np.int8)))
    tie = np.concatenate((index, np.where(zero_length, index[closed], -index[closed])))
    of_lane = np.concatenate((lane, lane[closed]))
    order = np.lexsort((tie, phase, time, of_lane))
    ptr = np.searchsorted(of_lane[order], np.arange(lanes + 1)).astype(np.int64)
    return stamp[order], ptr


def _hosts(rank: Int32Array, host: Int32Array, hosts: tuple[str, ...]) -> dict[int, str]:
    known = host >= 0
    ranks, places = distinct_pairs(rank[known], host[known])
    return {r: hosts[h] for r, h in zip(ranks.tolist(), places.tolist(), strict=True)}


def _domain_hosts(clock: tuple[Int32Array, tuple[str, ...]], host: tuple[Int32Array, tuple[str, ...]]) -> tuple[str, ...]:
    known = (host[0] >= 0) & (clock[0] >= 0)
    domains, places = distinct_pairs(clock[0][known], host[0][known])
    found = {d: host[1][h] for d, h in zip(domains.tolist(), places.tolist(), strict=True)}
    return tuple(found.get(d, "") for d in range(len(clock[1])))
