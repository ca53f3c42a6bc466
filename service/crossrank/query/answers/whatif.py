"""What would the job take if some operations took less: a replay with changed durations, its own error beside the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crossrank.analysis.whatif import Change, predict
from crossrank.query.graphs import graph_of
from crossrank.query.jobview import JobView, carried


def whatif(view: JobView, changes: Sequence[Change]) -> dict[str, Any]:
    """POST /v1/jobs/{job}/whatif. Raises BadParameter for a change that cannot be used."""
    derived = view.derived
    found = predict(graph_of(derived.timeline), derived.topology, changes)
    return {
        "baseline_ns": found.baseline_ns,
        "replay_ns": found.replay_ns,
        "replay_error": found.replay_error,
        "predicted_ns": found.predicted_ns,
        "saving_ns": found.saving_ns,
        "steps": [{"step": s.step, "recorded_ns": s.recorded_ns, "predicted_ns": s.predicted_ns} for s in found.steps],
        **carried(view),
    }
