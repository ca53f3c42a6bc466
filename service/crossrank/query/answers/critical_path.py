"""What made this step as long as it was: the chain of work and transfers that fills it from start to end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from crossrank.analysis.critical_path import critical_path
from crossrank.analysis.slack import step_slack
from crossrank.errors import NotFound
from crossrank.query.graphs import graph_of
from crossrank.query.jobview import JobView, carried


def path_of_step(view: JobView, step: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/steps/{step}/critical-path. Raises NotFound for a step that was not seen."""
    table = view.derived.steps
    if step not in table.step:
        raise NotFound(f"job {view.snapshot.job!r} has no step {step}", field="step")
    path = critical_path(view.derived.timeline, table, step, view.derived.paths)
    slack = step_slack(graph_of(view.derived.timeline), table, path)
    return {
        "step": step,
        "start_ns": path.start_ns,
        "end_ns": path.end_ns,
        "total_ns": path.end_ns - path.start_ns,
        "segments": [
            {
                "rank": s.rank,
                "lane": s.lane,
                "kind": s.kind,
                "name": s.name,
                "start_ns": s.start_ns,
                "end_ns": s.end_ns,
                "on_path_ns": s.on_path_ns,
                "slack_ns": more.slack_ns,
                "next_limit": asdict(more.next_limit) if more.next_limit else None,
            }
            for s, more in zip(path.segments, slack.segments, strict=True)
        ],
        "hops": [
            {"from_rank": h.from_rank, "to_rank": h.to_rank, "at_ns": h.at_ns, "edge": h.edge, "group": h.group, "seq": h.seq}
            for h in path.hops
        ],
        "near": [asdict(o) for o in slack.near],
        "near_truncated": slack.truncated,
        **carried(view),
    }
