"""What is doubtful about a job's data: by rank and reason, each with what it means in a plain sentence.

    rejected    refused at the door: not stored
    unusable    stored, but cannot stand on a timeline
    duplicate   the same event again: dropped, no harm
    conflict    the same identity with other content: the last one received stands
    missing     ranks that sent nothing; ranks from which operations that others recorded are missing
    unmatched   operations that found no partner, or found it with doubt
    open        spans that have not ended
    damaged     files left out because their checksum failed

Late events need no class: whenever they come, the answers are made again with them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from crossrank.ingest.reasons import REASONS
from crossrank.query.jobview import JobView, carried

_UNUSABLE: Final = {
    "end_before_start": "The span ends before it starts.",
    "start_missing": "Only the end of the span has come so far.",
    "clock_sample_unusable": "A comparison with the service's clock contradicts itself.",
    "name_folded": "The job has more distinct names than are kept apart; the rarest share one.",
}
_UNMATCHED: Final = {
    "alone": "Only one member of the operation was recorded: it tells nothing about other ranks.",
    "async_launch": "An asynchronous launch without the operation it started.",
    "by_content": "The operation has no seq; its members were found by what they are.",
    "by_order": "The operation has no seq; its members were found by their order.",
    "coalesced": "Several operations share one seq; they were told apart by their place.",
    "doubled": "A rank recorded the operation twice; the first one counts.",
    "incomplete": "Some members of the operation are missing.",
    "mismatched": "Members disagree on what the operation is, its size or its type: it binds no times.",
    "mixed_records": "Some members come from a trace and others from a flight recorder, which stamp differently: it binds no times.",
    "no_group": "The operation names no group, so its members cannot be found.",
    "not_a_member": "The rank is not a member of the operation's group.",
    "order_doubtful": "The operation has no seq and its order is in doubt: it binds no times.",
    "unreceived": "A send without its receive.",
    "unsent": "A receive without its send.",
}
_MOST_INSTANCES: Final = 20_000  # incomplete operations looked through for who is missing


def quality(view: JobView, *, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/quality: the most frequent first within each class."""
    derived, trace = view.derived, view.derived.timeline.trace
    rows = [_row("rejected", rank, reason, count, REASONS.get(reason, "")) for rank, reason, count in view.rejects]
    rows += [_row("unusable", None, reason, count, _UNUSABLE.get(reason, "")) for reason, count in trace.excluded.items()]
    if trace.names_folded:
        rows.append(_row("unusable", None, "name_folded", trace.names_folded, _UNUSABLE["name_folded"]))
    again, other = view.tallies.get("duplicate", 0), view.tallies.get("conflict", 0)
    if again:
        rows.append(_row("duplicate", None, "duplicate", again, "The same event came again and was dropped."))
    if other:
        rows.append(
            _row("conflict", None, "conflict", other, "An event came again with other content; the last one received stands.")
        )
    rows += [_row("missing", rank, "no_events", 1, f"Nothing has come from rank {rank}.") for rank in derived.topology.missing]
    rows += _missing_operations(view)
    for reason, count in derived.timeline.matches.unmatched.items():
        rows.append(_row("unmatched", None, reason, count, _UNMATCHED.get(reason, "")))
    ranks, count_open = np.unique(trace.rank[trace.is_open], return_counts=True)
    for rank, count in zip(ranks.tolist(), count_open.tolist(), strict=True):
        rows.append(_row("open", rank, "open", count, "The span has started and not ended."))
    rows += [_row("damaged", None, "checksum", 1, f"A file was left out: {what}") for what in view.snapshot.partial]
    rows += [_row("conflict", None, "topology", 1, text) for text in derived.topology.conflicts]
    rows.sort(key=lambda row: (row["class"], -row["count"], -1 if row["rank"] is None else row["rank"], row["reason"]))
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["class"]] += row["count"]
    return {
        "rows": rows[:limit],
        "total": len(rows),
        "totals": dict(sorted(totals.items())),
        "accepted": view.tallies.get("accepted", 0),
        "ranks_seen": len(derived.topology.seen),
        "ranks_missing": derived.topology.missing_count,
        "ranks": _by_rank(rows)[:limit],
        **carried(view, truncated=len(rows) > limit),
    }


def _row(class_: str, rank: int | None, reason: str, count: int, sentence: str) -> dict[str, Any]:
    return {"class": class_, "rank": rank, "reason": reason, "count": count, "sentence": sentence}


def _by_rank(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts of each rank by reason, the rank with most first."""
    found: dict[int, Counter[str]] = {}
    for row in rows:
        if row["rank"] is not None:
            found.setdefault(row["rank"], Counter())[f"{row['class']}_{row['reason']}"] += row["count"]
    ordered = sorted(found.items(), key=lambda item: (-item[1].total(), item[0]))
    return [{"rank": rank, **counts} for rank, counts in ordered]


def _missing_operations(view: JobView) -> list[dict[str, Any]]:
    """Ranks by the operations that others recorded and they did not."""
    trace, found = view.derived.timeline.trace, view.derived.timeline.matches.collectives
    absent: Counter[int] = Counter()
    for k in np.flatnonzero(~found.complete)[:_MOST_INSTANCES].tolist():
        members = trace.rank[found.member[found.ptr[k] : found.ptr[k + 1]]]
        group = int(found.group[k])
        absent.update(set(trace.group_ranks[group] if group >= 0 else ()) - set(members.tolist()))
    return [
        _row("missing", rank, "operations", count, f"Others recorded {count} operations that rank {rank} did not.")
        for rank, count in sorted(absent.items())
    ]
