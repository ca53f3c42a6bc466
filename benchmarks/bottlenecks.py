"""How right blame is: random jobs of 8 to 1,024 ranks with faults of 1 % of a step and more, wrong clocks and lost events.

Usage: bottlenecks.py [seeds] [seconds]. Stops at the first of the two; the number of jobs judged is among the figures.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._results import Results
from tests.support.blame_campaign import Trial, run_trial


def judge(trials: list[Trial]) -> Results:
    """All figures of a campaign."""
    results = Results("bottlenecks")
    healthy = [t for t in trials if t.share == 0.0]
    results.add("jobs judged", len(trials), "jobs")
    results.add("largest job", max(t.ranks for t in trials), "ranks")
    results.add("healthy jobs", len(healthy), "jobs")
    results.add("healthy jobs with an accusation", sum(bool(t.wrong) for t in healthy), "jobs", at_most=0)
    for name, low, high, demand in (("2 % of a step and more", 0.02, 9.0, 0.99), ("1 to 2 % of a step", 0.01, 0.02, 0.95)):
        of = [t for t in trials if low <= t.share < high]
        if not of:
            continue
        hits = sum(t.hit for t in of)
        results.add(f"faults costing {name}", len(of), "jobs")
        results.add(f"recall, {name}", hits / len(of), "", at_least=demand)
        results.add(f"with the right steps, {name}", sum(t.hit and t.steps_right for t in of) / len(of), "", at_least=demand)
        results.add(f"precision, {name}", hits / max(hits + sum(len(t.wrong) for t in of), 1), "", at_least=demand)
    hit = [t for t in trials if t.hit and t.share >= 0.01]
    if hit:
        off = np.array([abs(t.cost_ns - t.true_ns) for t in hit])
        true, error = (np.array([getattr(t, a) for t in hit], dtype=np.float64) for a in ("true_ns", "cost_error_ns"))
        results.add("cost, median error", float(np.median(off / true)), "of the true cost", at_most=0.05)
        results.add("cost within two standard errors", float((off <= 2 * error).mean()), "", at_least=0.95)
    told = [(t.confidence, True) for t in trials if t.hit] + [(c, False) for t in trials for c in t.wrong]
    near = [right for confidence, right in told if confidence < 0.95]
    results.add("findings with confidence 0.90-0.95", len(near), "findings")
    if near:
        results.add("of these right", sum(near) / len(near), "", at_least=0.85)
    return results


def main() -> int:
    """Runs the campaign."""
    seeds, seconds = (int(v) for v in (sys.argv[1:] + ["300", "600"][len(sys.argv) - 1 :])[:2])
    began, trials = time.monotonic(), []
    for seed in range(seeds):
        if time.monotonic() - began > seconds:
            break
        trials.append(run_trial(seed))
        t = trials[-1]
        if (t.share >= 0.01 and not t.hit) or t.wrong:
            print(t, flush=True)
    return 0 if judge(trials).finish() else 1


if __name__ == "__main__":
    sys.exit(main())
