"""Whether a standstill is a hang, at one moment: open for longer than this job's own rhythm explains.

    now        = latest time known on the common timeline + how long nothing has been received since
    threshold  = the longest of: 3 usual steps, 2 longest steps, 2 usual gaps between deliveries, 2 s

Events that were recorded long ago and came all at once are judged by their own age, not by when they were delivered; so are
dumps, which come when they are fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.analysis.proofs import operation_name
from crossrank.analysis.steps import StepTable
from crossrank.analysis.wording import capital, duration, rank_list
from crossrank.model.findings import Finding
from crossrank.model.timeline import Timeline
from crossrank.model.verdicts import Hang, Pending, Silence, Standstill

_USUAL_STEPS: Final = 3
_LONGEST_STEPS: Final = 2
_GAPS: Final = 2
_LEAST_NS: Final = 2_000_000_000
_UNKNOWN_NS: Final = 10_000_000_000  # threshold of a job without a whole step
_LONG_AGO_NS: Final = 3_600_000_000_000  # older than any clock of a running job is wrong
_FASTER_THAN_LIFE: Final = 3
_TOLD = 3


@dataclass(frozen=True, slots=True)
class Receipts:
    """When a job's events were received, by the service's clock. gap_ns: usual time between two deliveries of finished work."""

    first_ns: int
    last_ns: int
    gap_ns: int


def receipts_of(received_ns: np.ndarray, finished: np.ndarray) -> Receipts | None:
    """Receipts of events by their times of receiving; None without any.

    finished: [n] bool, the event is work that has ended. Only such events have a rhythm: the words of a job that stands still (open
    operations, stacks, dumps) come after a silence, and that silence must not pass for what is usual. Hence also the largest gap
    but one in a hundred, rounded down: of several gaps one alone is never the usual one.
    """
    if len(received_ns) == 0:
        return None
    gaps = np.diff(np.unique(received_ns[finished]))
    usual = int(np.quantile(gaps, 0.99, method="lower")) if len(gaps) else 0
    return Receipts(int(received_ns.min()), int(received_ns.max()), usual)


def silence_at(
    timeline: Timeline, steps: StepTable, receipts: Receipts | None, wall_ns: int, *, listening_since_ns: int = 0, dumped: bool
) -> Silence:
    """Silence and rhythm of a job at a moment of the service's clock.

    listening_since_ns: from when on senders could reach the service; before that, silence says nothing. dumped: what is open comes
    from dumps.
    """
    usual, longest = _rhythm(steps)
    gap = receipts.gap_ns if receipts is not None else 0
    known = max(_USUAL_STEPS * usual, _LONGEST_STEPS * longest) if len(steps) else _UNKNOWN_NS
    threshold = max(known, _GAPS * gap, _LEAST_NS)
    if len(timeline.trace) == 0:
        return Silence(wall_ns, 0, threshold)
    first, latest = int(timeline.start_ns.min()), int(max(timeline.start_ns.max(), timeline.end_ns.max()))
    silent = 0
    if receipts is not None and receipts.last_ns > 0:
        silent = max(0, wall_ns - max(receipts.last_ns, listening_since_ns))
    if dumped:
        silent = max(silent, wall_ns - latest)
    elif receipts is not None and wall_ns - latest > _LONG_AGO_NS:
        came_in = receipts.last_ns - receipts.first_ns
        if latest - first > _FASTER_THAN_LIFE * came_in:
            silent = wall_ns - latest
    return Silence(latest + silent, silent, threshold)


def _rhythm(steps: StepTable) -> tuple[int, int]:
    """Usual and longest duration of a step that every rank seen in it has closed."""
    lasted = (steps.end_ns - steps.start_ns)[steps.closed]
    return (int(np.median(lasted)), int(lasted.max())) if len(lasted) else (0, 0)


def hang_at(timeline: Timeline, standstill: Standstill, silence: Silence) -> Hang:
    """The verdict on a standstill at the moment of `silence`."""
    since = standstill.since_ns
    hung = since is not None and silence.now_ns - since > silence.threshold_ns
    if not hung:
        return Hang(False, None, silence, (), standstill, _calm(since, silence), "")
    return Hang(
        True, since, silence, standstill.culprits, standstill, _sentence(timeline, standstill, silence), _collect(standstill)
    )


def _calm(since: int | None, silence: Silence) -> str:
    if since is None:
        return "No communication is open."
    return f"The oldest open communication began {duration(silence.now_ns - since)} ago; this job takes up to {duration(silence.threshold_ns)}."


def _sentence(timeline: Timeline, found: Standstill, silence: Silence) -> str:
    parts: list[str] = []
    if found.unseen:
        parts.append(f"nothing has come from {rank_list(found.unseen)}.")
    if found.cycle:
        parts.append(f"{rank_list(found.cycle)} wait for each other in a circle: a deadlock.")
    elif found.culprits:
        parts += [c.proof for c in found.culprits[:_TOLD]]
        if len(found.culprits) > _TOLD:
            parts.append(f"{len(found.culprits) - _TOLD} more ranks have stopped likewise.")
    elif found.suspects:
        parts.append(f"one or more of {rank_list(found.suspects)} hold the job up; the events do not say which.")
    elif not found.unseen:
        parts.append(f"all have entered {operation_name(timeline, _first(found))} and nobody has left it; nobody can be named.")
    waiting = sorted({r for p in found.pending + found.inside for r in p.waiting} - {c.rank for c in found.culprits})
    since = found.since_ns
    if waiting and since is not None:
        verb = "waits" if len(waiting) == 1 else "wait"
        parts.append(f"{rank_list(waiting)} {verb}, the first for {_how_long(max(0, silence.now_ns - since))}.")
    return " ".join(capital(p) for p in parts)


def _how_long(ns: int) -> str:
    """A time to wait, which may be days."""
    hours = ns / 3_600_000_000_000
    return f"{hours / 24:.0f} days" if hours > 48 else f"{hours:.1f} h" if hours > 2 else duration(ns)


def _first(found: Standstill) -> Pending:
    return min(found.pending + found.inside, key=lambda p: p.since_ns)


def _collect(found: Standstill) -> str:
    """What to gather where the events cannot decide."""
    if found.culprits:
        return ""
    if found.unseen:
        return f"Events or a flight recorder dump of {rank_list(found.unseen)}."
    if found.suspects:
        return f"Stack traces or flight recorder dumps of {rank_list(found.suspects)}."
    return (
        "Flight recorder dumps of all ranks (they count what each device completed) and their stack traces: a rank may have left"
        " out an operation that looks like the next one, or the network may be down."
    )


def hang_finding(timeline: Timeline, hang: Hang) -> tuple[Finding, ...]:
    """A hang as a finding among the others; () where nothing hangs."""
    if not hang.hung:
        return ()
    found = hang.standstill
    first = _first(found)
    at = hang.culprits[0] if hang.culprits else None
    group = at.group if at is not None else timeline.trace.groups[first.group] if first.group >= 0 else None
    steps = (first.step,) if first.step is not None else ()
    ranks = tuple(c.rank for c in hang.culprits) or found.suspects or found.unseen
    sure = 0.97 if hang.culprits else 0.5
    return (Finding("hang", ranks, group, steps, 0, 0, 0.0, sure, hang.sentence),)
