"""Which posted metrics may stand behind another: statistical, apart from the happened-before facts."""

from __future__ import annotations

from typing import Any

from crossrank.analysis.metric_causes import LEAST_STEPS, cause_graph, causes_of
from crossrank.analysis.series import by_step, metric_series
from crossrank.errors import NotFound
from crossrank.query.jobview import JobView, carried

MOST_SERIES = 32


def causes(view: JobView, of: str) -> dict[str, Any]:
    """GET /v1/jobs/{job}/causes?of=METRIC. Raises NotFound for a metric that was not posted by steps or never changes."""
    series = metric_series(view.derived.timeline)
    names, steps, values = by_step(series, MOST_SERIES)
    if of not in names:
        raise NotFound(f"no metric {of[:100]!r} that changes over steps; there are: {', '.join(names) or 'none'}", field="of")
    graph = cause_graph(names, values)
    return {
        "of": of,
        "kind": "statistical",
        "steps": len(steps),
        "enough_steps": len(steps) >= LEAST_STEPS,
        "causes": [{"metric": c.name, "influence": c.influence, "path": list(c.path)} for c in causes_of(graph, of)],
        "edges": [{"from_metric": a, "to_metric": b, **data} for a, b, data in sorted(graph.edges(data=True), key=lambda e: e[:2])],
        **carried(view),
    }
