"""Which ranks do not call what the rest of their group calls: one finding a cause."""

from __future__ import annotations

from typing import Any

from crossrank.model.verdicts import Mismatch
from crossrank.query.answers.hangs import hang_of
from crossrank.query.jobview import JobView, carried


def mismatches(view: JobView, *, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/mismatches. An operation left out shows as soon as the others hang in it."""
    hang = hang_of(view)
    found = (*view.derived.mismatches, *(hang.standstill.skipped if hang.hung else ()))
    return {"mismatches": [_mismatch(m) for m in found[:limit]], **carried(view, truncated=len(found) > limit)}


def _mismatch(m: Mismatch) -> dict[str, Any]:
    return {
        "class": m.class_,
        "group": m.group,
        "members": list(m.members),
        "seq": m.seq,
        "step": m.step,
        "odd_ranks": list(m.odd_ranks),
        "candidates": list(m.candidates),
        "majority": m.majority,
        "odd": [{"rank": rank, "called": call} for rank, call in sorted(m.odd.items())],
        "count": m.count,
        "followers": m.followers,
        "window": {"from_seq": m.window[0], "to_seq": m.window[1]} if m.window is not None else None,
        "unseen": list(m.unseen),
        "confidence": m.confidence,
        "sentence": m.sentence,
    }
