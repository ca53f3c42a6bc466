"""How right the aligned times are, against the truth: median, p99 and maximum error over ALL stamps, and what it costs.

Simulated jobs with known clocks, and real recordings with wrong clocks injected into them. Beside the fit stand no correction at
all and one constant per host from the median of collective ends. The error is relative: what all hosts share at a time is the
reference clock's own and is taken off. Seeds here are not the ones that anything was tuned on.

    python benchmarks/accuracy.py [--quick] [--recordings DIR]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _results import Results

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from crossrank.align.components import connect  # noqa: E402  (the truth lives beside the tests, outside the package)
from crossrank.align.constraints import extract  # noqa: E402
from crossrank.align.fit import fit_clocks  # noqa: E402
from crossrank.align.repair import repair  # noqa: E402
from crossrank.align.violations import count_violations  # noqa: E402
from crossrank.model.clockmap import ClockMap, Epoch, identity_map  # noqa: E402
from crossrank.reconstruct.order import replay  # noqa: E402
from crossrank.simulate.config import ClockConfig, JobConfig  # noqa: E402
from tests.support.clock_truth import (  # noqa: E402
    KnownTrace,
    RecordedClock,
    error_ns,
    mapped,
    recorded,
    share_of_bound,
    simulated,
    without_common,
)

CLOCKS = ClockConfig(drift_ppm=50.0)
BASE = JobConfig(dp=4, tp=8, pp=2, steps=100, clocks=CLOCKS)
STEPPED = replace(BASE, clocks=replace(CLOCKS, step_fraction=0.25, step_ns=(300_000, 30_000_000)))
SLEWED = replace(BASE, clocks=replace(CLOCKS, offset_ns=5_000_000_000, slew_fraction=0.13))
TAILS = replace(BASE, jitter_median_ns=50_000, jitter_sigma=1.0, tail_probability=0.1, tail_ns=2_000_000)
PIPELINE = JobConfig(dp=1, tp=8, pp=8, steps=60, clocks=CLOCKS)
LARGE = JobConfig(dp=16, tp=8, pp=8, steps=16, microbatches=8, clocks=CLOCKS)
INJECTED = {
    "host1": RecordedClock(-84_307_712, 26.2),
    "host2": RecordedClock(101_104_875, -28.3),
    "host3": RecordedClock(169_426_176, 13.7, 35_000_000, 3_500_000_000),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row: demands in microseconds (median, p99, max), None where none is made."""

    name: str
    known: KnownTrace
    demand: tuple[float | None, float | None, float | None]
    loss: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed a case, no large job")
    parser.add_argument("--recordings", type=Path, default=ROOT / "tests" / "recordings" / "gloo")
    arguments = parser.parse_args()
    results = Results("accuracy")
    for case in cases(arguments.recordings, quick=arguments.quick):
        measure(case, results)
    results.finish()


def cases(recordings: Path, *, quick: bool) -> Iterator[Case]:
    seeds = (901,) if quick else (901, 902, 903)
    for seed in seeds:
        yield Case(f"base #{seed}", simulated(BASE, seed), (0.3, 1.2, 3.0))
        yield Case(f"heavy tails #{seed}", simulated(TAILS, seed), (0.6, 3.0, 6.0))
        yield Case(f"pipeline by messages #{seed}", simulated(PIPELINE, seed), (0.3, 1.2, 3.0))
        yield Case(f"slew 500 ppm, 5 s apart #{seed}", simulated(SLEWED, seed), (None, 3.0, 40.0))
        yield Case(f"25 % of hosts step #{seed}", simulated(STEPPED, seed), (0.3, 1.2, None))
    for scenario in sorted(recordings.glob("*3d_w8")):
        yield Case(f"recorded {scenario.name}", recorded(scenario, INJECTED), (None, None, None))
    if not quick:
        yield Case("1,024 ranks", simulated(LARGE, 904), (0.3, 1.2, 3.0))


def measure(case: Case, results: Results) -> None:
    known, trace, matches = case.known, case.known.trace, case.known.matches
    fit_clocks(trace, matches)  # compiled
    begin = time.process_time()
    clocks = fit_clocks(trace, matches)
    cpu_s = time.process_time() - begin
    for name, map_ in (("none", identity_map(len(trace.domains))), ("median of ends", median_of_ends(known))):
        add_errors(f"{case.name}: {name}", error_us(known, map_, int(clocks.reference[0])), (None, None, None), results)
    add_errors(f"{case.name}: fit", error_us(known, clocks, int(clocks.reference[0])), case.demand, results)
    start, end = mapped(known, clocks)
    raw = count_violations(matches, trace.start_ns, trace.end_ns, trace.is_open)
    fitted = count_violations(matches, start, end, trace.is_open)
    start, end = repair(trace, matches, replay(trace, matches), start, end)
    results.add(f"{case.name}: violations raw", raw, "stamps")
    results.add(f"{case.name}: violations after the fit", fitted, "stamps")
    results.add(
        f"{case.name}: violations after the repair", count_violations(matches, start, end, trace.is_open), "stamps", at_most=0
    )
    results.add(f"{case.name}: worst error over its guaranteed bound", share_of_bound(known, clocks), "", at_most=1.0)
    add_steps(case, clocks, results)
    results.add(f"{case.name}: fit of {len(trace):,} spans", cpu_s, "CPU s", at_most=5.0)


def add_errors(what: str, error: np.ndarray, demand: tuple[float | None, float | None, float | None], results: Results) -> None:
    values = (float(np.median(error)), float(np.quantile(error, 0.99)), float(error.max()))
    for name, value, most in zip(("median", "p99", "max"), values, demand, strict=True):
        results.add(f"{what}, {name}", value, "us", at_most=most)


def error_us(known: KnownTrace, clocks: ClockMap, reference: int) -> np.ndarray:
    start, end = mapped(known, clocks)
    return np.abs(without_common(known, *error_ns(known, start, end, reference))) / 1e3


def median_of_ends(known: KnownTrace) -> ClockMap:
    """One constant per domain: the coarse offsets that the fit starts from."""
    components = connect(known.trace, extract(known.trace, known.matches))
    base = components.base_ns
    epochs = tuple(
        (Epoch(0, np.zeros(1, np.int64), base[components.reference[[c]]] - base[[d]]),) for d, c in enumerate(components.component)
    )
    return replace(identity_map(len(base)), epochs=epochs)


def add_steps(case: Case, clocks: ClockMap, results: Results) -> None:
    known = case.known
    if not known.steps:
        return
    found = {d: steps for d, steps in enumerate(clocks.steps) if steps}
    hit = [d for d in known.steps if len(found.get(d, ())) == 1]
    results.add(f"{case.name}: clock steps found", len(hit) / len(known.steps), "share", at_least=1.0)
    results.add(f"{case.name}: clock steps that are none", len(set(found) - set(known.steps)), "steps", at_most=0)
    if hit:
        worst = max(abs(found[d][0].size_ns - known.steps[d][1]) for d in hit)
        results.add(
            f"{case.name}: size of a clock step wrong by", worst / 1e3, "us", at_most=10.0 if "recorded" not in case.name else None
        )
    wrong = 0
    for d in hit:
        for local, true in ((known.trace.start_ns, known.true_start_ns), (known.trace.end_ns, known.true_end_ns)):
            own = known.trace.domain == d
            wrong += int(((local[own] >= found[d][0].t_ns) != (true[own] >= known.steps[d][0])).sum())
    share = 1.0 - wrong / (2 * len(known.trace))
    results.add(f"{case.name}: stamps in the right epoch", share, "share", at_least=0.9999)


if __name__ == "__main__":
    main()
