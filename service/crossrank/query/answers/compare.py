"""What moved between two ranges of steps of a job, or between two jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from crossrank.analysis.compare import Side, compare
from crossrank.errors import BadParameter
from crossrank.query.answers.steps import chosen_steps
from crossrank.query.jobview import JobView, carried

StepRange = tuple[int | None, int | None]


def comparison(base: JobView, view: JobView, base_range: StepRange, asked: StepRange, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/compare: `base` is before, `view` after. Raises BadParameter for a side without finished steps."""
    before, after = _side(base, base_range, "base_from"), _side(view, asked, "from")
    found = compare(before, after)
    step = found.step
    return {
        "steps_before": found.steps_before,
        "steps_after": found.steps_after,
        "step": asdict(step),
        "ratio": step.after_ns / step.before_ns if step.before_ns else None,
        "ratio_band": step.band_ns / step.before_ns if step.before_ns and step.band_ns is not None else None,
        "parts": [asdict(c) for c in found.parts[:limit]],
        "links": [{**asdict(c), "from_ranks": list(c.from_ranks), "sentence": _link(c)} for c in found.links],
        **carried(view, truncated=len(found.parts) > limit),
    }


def _side(view: JobView, asked: StepRange, field: str) -> Side:
    derived = view.derived
    rows = chosen_steps(view, *asked)
    rows = rows[derived.steps.closed[rows]]
    if len(rows) == 0:
        raise BadParameter(f"job {view.snapshot.job!r} has no finished steps there", field=field)
    return Side(derived.timeline, derived.steps, derived.paths, rows)


def _link(c: Any) -> str:
    sources = " or ".join(str(r) for r in c.from_ranks)
    return (
        f"In group {c.group} every {c.op} takes {c.transfer_after_ns / 1e6:.1f} instead of {c.transfer_before_ns / 1e6:.1f} ms and"
        f" rank {c.to_rank} ends last by {c.behind_ns / 1e6:.1f} ± {c.band_ns / 1e6:.1f} ms more than before:"
        f" the link into rank {c.to_rank} from its neighbour in the ring, rank {sources}, is slow."
    )
