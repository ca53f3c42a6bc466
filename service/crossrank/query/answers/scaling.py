"""How several runs of a job scale with their number of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from crossrank.analysis.scaling import Amdahl, Mode, Point, measure, scaling
from crossrank.errors import BadParameter
from crossrank.query.answers.breakdown_means import kept_breakdown
from crossrank.query.jobview import JobView, carried


def scaling_of(views: Sequence[JobView], mode: Mode | None) -> dict[str, Any]:
    """GET /v1/scaling: the jobs by size. Raises BadParameter for a job without finished steps, or jobs of one size only."""
    jobs = []
    for view in views:
        derived = view.derived
        found = measure(view.snapshot.job, derived.topology.world_size, derived.steps, kept_breakdown(derived))
        if found is None:
            raise BadParameter(f"job {view.snapshot.job!r} has no finished steps", field="jobs")
        jobs.append(found)
    if len({m.ranks for m in jobs}) < 2:
        raise BadParameter("scaling needs jobs of at least two world sizes; all of these have one", field="jobs")
    result = scaling(jobs, mode)
    return {
        "mode": result.mode,
        "alpha": result.alpha,
        "points": [_point(p) for p in result.points],
        "amdahl": None if result.amdahl is None else _amdahl(result.amdahl),
        "sentence": sentence(result.mode, result.points, result.amdahl),
        "jobs": {view.snapshot.job: carried(view) for view in views},
    }


def _point(p: Point) -> dict[str, Any]:
    m = p.measured
    told = math.isfinite(p.loss_band_ns)
    return {
        "job": m.job,
        "ranks": m.ranks,
        "steps": m.steps,
        "step_ns": round(m.step_ns),
        "ideal_ns": round(p.ideal_ns),
        "speedup": p.speedup,
        "efficiency": p.efficiency,
        "loss_ns": round(p.loss_ns),
        "loss_band_ns": round(p.loss_band_ns) if told else None,
        "loss_shares": p.shares,
    }


def _amdahl(a: Amdahl) -> dict[str, Any]:
    return {
        "serial_fraction": a.serial_fraction,
        "serial_ns": round(a.serial_ns),
        "parallel_ns": round(a.parallel_ns),
        "residual": a.residual,
    }


_IN_WORDS = {
    "work": "own work that did not shrink as it should",
    "imbalance": "ranks with more to do than others",
    "wait": "waits for late ranks and other stages",
    "communication": "communication that no computation hides",
    "rest": "time that is idle or not recorded",
}


def sentence(mode: Mode | None, points: Sequence[Point], amdahl: Amdahl | None) -> str:
    """The answer in plain words."""
    if mode is None:
        return "Cannot tell: the ranks' own work was neither divided nor the same for each; say which was meant (strong or weak)."
    first, last = points[0].measured, points[-1]
    text = f"From {first.ranks} to {last.measured.ranks} ranks ({mode} scaling) efficiency is {100 * last.efficiency:.3g} %"
    if last.shares is None:
        text += "; what is lost is within the noise of the steps"
    else:
        worst = max(last.shares, key=lambda name: last.shares[name] if last.shares else 0.0)
        text += f"; of the {last.loss_ns / 1e6:.3g} ms lost in a step {100 * last.shares[worst]:.2g} % are {_IN_WORDS[worst]}"
    if amdahl is not None:
        text += f"; by Amdahl's law {100 * amdahl.serial_fraction:.2g} % of the work is not divided"
    return text + "."
