"""How right the aligned times are, against the truth: median, p99 and maximum error over ALL stamps, and what it costs.

Simulated jobs with known clocks, and real recordings with wrong clocks injected into them. Beside the fit stand the other ways to
align stamps (see _rivals). The error is relative: what all hosts share at a time is the reference clock's own and is taken off.
Seeds here are not the ones that anything was tuned on.

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

from _rivals import rival_times  # noqa: E402  (the truth lives beside the tests, outside the package)

from crossrank.align.constraints import extract  # noqa: E402
from crossrank.align.fit import fit_clocks  # noqa: E402
from crossrank.align.repair import repair  # noqa: E402
from crossrank.align.violations import count_violations  # noqa: E402
from crossrank.model.arrays import Int64Array  # noqa: E402
from crossrank.model.clockmap import ClockMap  # noqa: E402
from crossrank.reconstruct.order import replay  # noqa: E402
from crossrank.simulate.config import ClockConfig, JobConfig  # noqa: E402
from tests.support.clock_truth import (  # noqa: E402
    KnownTrace,
    RecordedClock,
    error_ns,
    mapped,
    recorded,
    recorded_skewed,
    share_of_bound,
    simulated,
    with_samples,
    without_common,
)

CLOCKS = ClockConfig(drift_ppm=50.0)
BASE = JobConfig(dp=4, tp=8, pp=2, steps=100, clocks=CLOCKS)
STEPPED = replace(BASE, clocks=replace(CLOCKS, step_fraction=0.25, step_ns=(300_000, 30_000_000)))
SLEWED = replace(BASE, clocks=replace(CLOCKS, offset_ns=5_000_000_000, slew_fraction=0.13))
TAILS = replace(BASE, jitter_median_ns=50_000, jitter_sigma=1.0, tail_probability=0.1, tail_ns=2_000_000)
PIPELINE = JobConfig(dp=1, tp=8, pp=8, steps=100, clocks=CLOCKS)
LARGE = JobConfig(dp=16, tp=8, pp=8, steps=20, microbatches=8, clocks=CLOCKS)
INJECTED = {
    "host1": RecordedClock(-84_307_712, 26.2),
    "host2": RecordedClock(101_104_875, -28.3),
    "host3": RecordedClock(169_426_176, 13.7, 35_000_000, 3_500_000_000),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of trace, drawn several times; demands in microseconds (median, p99, max), None where none is made."""

    name: str
    known: tuple[KnownTrace, ...]
    demand: tuple[float | None, float | None, float | None]
    step_error_us: float | None = 10.0
    real: bool = False


@dataclass
class Found:
    """What one trace came to."""

    errors_us: dict[str, tuple[float, float, float]]  # method -> median, p99, max
    raw: int
    fitted: int
    repaired: int
    share_of_bound: float
    covered: float  # share of domains whose mean error is within 2 sigma + bias floor
    cpu_s: float
    steps: int
    steps_found: int
    steps_false: int
    step_error_us: float
    wrong_epoch: float  # share of all stamps
    jitter_us: float  # robust sigma of the true ends of collectives around their medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed a case, no large job")
    parser.add_argument("--recordings", type=Path, default=ROOT / "tests" / "recordings" / "gloo")
    arguments = parser.parse_args()
    results = Results("accuracy")
    for case in cases(arguments.recordings, quick=arguments.quick):
        report(case, [measure(known) for known in case.known], results)
    results.finish()


def cases(recordings: Path, *, quick: bool) -> Iterator[Case]:
    seeds = range(901, 902 if quick else 904)

    def draw(config: JobConfig) -> tuple[KnownTrace, ...]:
        return tuple(simulated(config, seed) for seed in seeds)

    yield Case("base", draw(BASE), (0.3, 1.2, 3.0))
    yield Case("heavy tails", draw(TAILS), (0.6, 3.0, 6.0))
    yield Case("pipeline by messages", draw(PIPELINE), (0.3, 1.2, 3.0))
    yield Case("500 ppm slew, 5 s apart", draw(SLEWED), (None, 3.0, 40.0))
    yield Case("25 % of hosts step", draw(STEPPED), (0.3, 1.2, None))
    yield Case("pipeline, one way 20 us slower", tuple(slower_one_way(k, 20_000) for k in draw(PIPELINE)), (None, None, None))
    nothing = (None, None, None)
    steady = {host: replace(clock, step_ns=0, step_at_ns=0) for host, clock in INJECTED.items()}
    for name in ("healthy_3d_w8", "slow_rank_3d_w8", "healthy_ddp_w4", "healthy_zero_w4", "slow_rank_ddp_w4", "slow_loader_ddp_w4"):
        if (recordings / name).exists():
            yield Case(f"recorded {name}", (recorded(recordings / name, steady),), nothing, None, real=True)
    for scenario in sorted(recordings.glob("*3d_w8")):
        yield Case(f"recorded {scenario.name}, step", (recorded(scenario, INJECTED),), nothing, None, real=True)
    for scenario in sorted(recordings.glob("*__skew*")):
        known = recorded_skewed(scenario)
        yield Case(f"recorded {scenario.name}", (known,), nothing, None, real=True)
        for every_s in (1, 10):
            sampled = with_samples(known, every_ns=every_s * 1_000_000_000, seed=905)
            yield Case(f"recorded {scenario.name}, a sample each {every_s} s", (sampled,), (None, 5.0, None), None, real=True)
    if not quick:
        yield Case("1,024 ranks", (simulated(LARGE, 904),), (0.3, 1.2, 3.0))


def measure(known: KnownTrace) -> Found:
    trace, matches = known.trace, known.matches
    fit_clocks(trace, matches)  # compiled
    begin = time.process_time()
    clocks = fit_clocks(trace, matches)
    cpu_s = time.process_time() - begin
    reference = int(clocks.reference[0])
    start, end = mapped(known, clocks)
    times = {**rival_times(known, reference), "fit": (start, end)}
    errors = {name: relative_us(known, *pair, reference) for name, pair in times.items()}
    repaired = repair(trace, matches, replay(trace, matches), start, end)
    hit, false, size_us, wrong = steps_found(known, clocks)
    return Found(
        errors_us={name: (float(np.median(e)), float(np.quantile(e, 0.99)), float(e.max())) for name, e in errors.items()},
        raw=count_violations(matches, trace.start_ns, trace.end_ns, trace.is_open),
        fitted=count_violations(matches, start, end, trace.is_open),
        repaired=count_violations(matches, *repaired, trace.is_open),
        share_of_bound=share_of_bound(known, clocks),
        covered=covered(known, clocks),
        cpu_s=cpu_s,
        steps=len(known.steps),
        steps_found=hit,
        steps_false=false,
        step_error_us=size_us,
        wrong_epoch=wrong,
        jitter_us=jitter_us(known),
    )


def report(case: Case, found: list[Found], results: Results) -> None:
    """The worst of all traces of a case."""
    for method in found[0].errors_us:
        for i, statistic in enumerate(("median", "p99", "max")):
            worst = max(f.errors_us[method][i] for f in found)
            results.add(f"{case.name}: {method}, {statistic}", worst, "us", at_most=case.demand[i] if method == "fit" else None)
    rivals = [m for m in found[0].errors_us if m != "fit"]
    best = max(f.errors_us["fit"][1] / min(f.errors_us[m][1] for m in rivals) for f in found)
    results.add(f"{case.name}: p99 over that of the best other method", best, "", at_most=1.0)
    if case.real:
        share = max(f.errors_us["fit"][1] / f.jitter_us for f in found)
        results.add(f"{case.name}: p99 over the jitter sigma", share, "", at_most=0.12)
    raw = sum(f.raw for f in found)
    results.add(f"{case.name}: violations raw", raw, "stamps")
    results.add(f"{case.name}: violations after the fit", sum(f.fitted for f in found), "stamps", at_most=1e-4 * raw)
    results.add(f"{case.name}: violations after the repair", sum(f.repaired for f in found), "stamps", at_most=0)
    results.add(f"{case.name}: worst error over its guaranteed bound", max(f.share_of_bound for f in found), "", at_most=1.0)
    results.add(
        f"{case.name}: hosts within 2 sigma + bias floor", float(np.mean([f.covered for f in found])), "share", at_least=0.95
    )
    spans = sum(len(k.trace) for k in case.known) // len(case.known)
    results.add(f"{case.name}: fit of {spans:,} spans", max(f.cpu_s for f in found), "CPU s", at_most=5.0)
    if any(f.steps for f in found):
        results.add(f"{case.name}: clock steps found of {sum(f.steps for f in found)}", sum(f.steps_found for f in found), "steps",
                    at_least=sum(f.steps for f in found))  # fmt: skip
        results.add(f"{case.name}: clock steps that are none", sum(f.steps_false for f in found), "steps", at_most=0)
        results.add(f"{case.name}: size of a step wrong by", max(f.step_error_us for f in found), "us", at_most=case.step_error_us)
        results.add(f"{case.name}: stamps in the wrong epoch", max(f.wrong_epoch for f in found), "share", at_most=1e-4)


def relative_us(known: KnownTrace, start: Int64Array, end: Int64Array, reference: int) -> np.ndarray:
    return np.abs(without_common(known, *error_ns(known, start, end, reference))) / 1e3


def slower_one_way(known: KnownTrace, by_ns: int) -> KnownTrace:
    """The same where messages to higher domains take longer, which no method can see."""
    trace, messages = known.trace, known.matches.messages
    late = messages.recv[trace.domain[messages.send] < trace.domain[messages.recv]]
    end, true_end = trace.end_ns.copy(), known.true_end_ns.copy()
    end[late] += by_ns
    true_end[late] += by_ns
    return replace(known, trace=replace(trace, end_ns=end), true_end_ns=true_end)


def jitter_us(known: KnownTrace) -> float:
    """Of the collectives that join two clocks: others say nothing about them."""
    facts = extract(known.trace, known.matches)
    end, size = known.true_end_ns[facts.span], np.diff(facts.ptr)
    order = np.lexsort((end, facts.instance))
    middle = end[order[facts.ptr[:-1] + size // 2]]
    return 1.4826 * float(np.median(np.abs(end - np.repeat(middle, size)))) / 1e3 if len(end) else 0.0


def covered(known: KnownTrace, clocks: ClockMap) -> float:
    """Share of domains whose typical error against the reference is within two sigma and the bias floor."""
    start, end = mapped(known, clocks)
    error = np.concatenate(error_ns(known, start, end, int(clocks.reference[0]))).astype(np.float64)
    domain = np.tile(known.trace.domain, 2)
    seen = np.unique(domain)
    middle = np.array([np.median(error[domain == d]) for d in seen])
    off = np.abs(middle - middle[seen == clocks.reference[0]])
    return float((off <= 2.0 * clocks.sigma_ns[seen] + clocks.bias_floor_ns[seen] + 1.0).mean())


def steps_found(known: KnownTrace, clocks: ClockMap) -> tuple[int, int, float, float]:
    """Steps found, steps found that are none, the worst error of a size in us, the share of all stamps in the wrong epoch."""
    found = {d: steps for d, steps in enumerate(clocks.steps) if steps}
    hit = [d for d in known.steps if len(found.get(d, ())) == 1]
    size = max((abs(found[d][0].size_ns - known.steps[d][1]) for d in hit), default=0)
    wrong = 0
    for d in hit:
        for local, true in ((known.trace.start_ns, known.true_start_ns), (known.trace.end_ns, known.true_end_ns)):
            own = known.trace.domain == d
            wrong += int(((local[own] >= found[d][0].t_ns) != (true[own] >= known.steps[d][0])).sum())
    return len(hit), len(set(found) - set(known.steps)), size / 1e3, wrong / (2 * len(known.trace))


if __name__ == "__main__":
    main()
