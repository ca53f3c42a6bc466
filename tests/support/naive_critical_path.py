"""Is this a critical path? Checks a path's claims one by one against the spans, without knowing how it was found."""

from __future__ import annotations

from crossrank.analysis.critical_path import CriticalPath, Hop
from crossrank.model.timeline import Timeline


def check_path(timeline: Timeline, path: CriticalPath) -> None:
    """Tiles the step; every owner was running; every change of rank is a hop; every hop comes from the last one to arrive."""
    now = path.start_ns
    for segment in path.segments:
        assert segment.start_ns == now
        assert segment.end_ns > now
        now = segment.end_ns
        if segment.span is not None:
            assert int(timeline.start_ns[segment.span]) <= segment.start_ns
            assert timeline.trace.is_open[segment.span] or segment.end_ns <= int(timeline.end_ns[segment.span]), segment
            assert int(timeline.trace.rank[segment.span]) == segment.rank
    assert now == path.end_ns or not path.segments
    for before, after in zip(path.segments[:-1], path.segments[1:], strict=True):
        chain = [h for h in path.hops if h.at_ns == after.start_ns]
        assert before.rank == after.rank or _leads(chain, before.rank, after.rank), (before, after, chain)
    for hop in path.hops:
        starts = _arrivals(timeline, hop)
        assert hop.at_ns == max(starts.values())
        assert starts[hop.from_rank] == hop.at_ns


def _leads(hops: list[Hop], start: int, end: int) -> bool:
    """Whether hops at one moment lead from one rank to another."""
    reached = {start}
    for _ in hops:
        reached |= {h.to_rank for h in hops if h.from_rank in reached}
    return end in reached


def _arrivals(timeline: Timeline, hop: Hop) -> dict[int, int]:
    """Start of everybody that the waiter of a hop had to wait for, by rank."""
    trace, matches = timeline.trace, timeline.matches
    found: dict[int, int] = {}
    if hop.edge == "message":
        for sent, received in zip(matches.messages.send.tolist(), matches.messages.recv.tolist(), strict=True):
            ends = (int(trace.rank[sent]), int(trace.rank[received]), int(trace.seq[received]))
            if ends == (hop.from_rank, hop.to_rank, hop.seq):
                found[hop.from_rank] = int(timeline.start_ns[sent])
        return found
    c = matches.collectives
    for k in range(len(c)):
        members = c.member[c.ptr[k] : c.ptr[k + 1]].tolist()
        named = (trace.groups[c.group[k]], int(c.seq[k])) == (hop.group, hop.seq)
        if named and {hop.from_rank, hop.to_rank} <= {int(trace.rank[m]) for m in members}:
            if c.root_sends[k]:
                members = [int(c.root[k])]
            found |= {int(trace.rank[m]): int(timeline.start_ns[m]) for m in members}
    return found
