"""How right blame is: random jobs of 8 to 1,024 ranks with known faults, wrong clocks and lost events (tests/support/blame_campaign).

Usage: blame.py [--recordings FOLDER] [--jobs one=300,several=60,healthy=100,weak=400] [--rows FILE] [--processes N] [--judge FILE ...] [--fit FILE ...]

`one=100:200` are the seeds 100 to 199. Runs the jobs in N processes, writes a row for each to FILE (appending; jobs that FILE has already are not run again, so a long
campaign can be cut and two of them can share the work with files of their own), then the figures to benchmarks/results/blame.json
and to the table in docs/bottlenecks.md. `--judge` only judges the rows of files. `--fit` gives the
constants of analysis.calibration that fit the rows of files best: rows of tuning seeds, `--jobs weak=1000000:1000400`, never of
the seeds that are judged.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._results import Results
from crossrank.analysis.calibration import OF_GROUPS, OF_LINKS, OF_WORK, Calibration
from tests.support.blame_campaign import FAMILIES, Accused, Family, Injected, Told, Trial, run_trial
from tests.support.blame_figures import Figure, figures, fitted

ROOT = Path(__file__).resolve().parents[1]
_PAGE = ROOT / "docs" / "bottlenecks.md"
_BEGIN, _END = "<!-- campaign: written by benchmarks/blame.py -->\n", "<!-- end of campaign -->\n"
_LEAST = {"weak": 0.3}  # calibration is judged below what is told, too


def trial_of(row: dict[str, Any]) -> Trial:
    """A row back as a trial."""
    faults = tuple(Injected(**{**f, "ranks": tuple(f["ranks"])}) for f in row["faults"])
    return Trial(**{**row, "faults": faults, "told": tuple(Told(**t) for t in row["told"])})


def table(found: list[Figure]) -> str:
    """The figures as the page shows them."""
    lines = ["| what | value | demand |", "| --- | --- | --- |"]
    for f in found:
        demand = "" if f.at_least is f.at_most is None else f">= {f.at_least:g}" if f.at_least is not None else f"<= {f.at_most:g}"
        lines.append(f"| {f.what} | {f.value:.4g} {f.unit}".rstrip() + f" | {demand}{'' if f.holds else ' **missed**'} |")
    return "\n".join(lines) + "\n"


def _run(family: Family, seed: int, recordings: Path) -> Trial:
    return run_trial(family, seed, recordings, _LEAST.get(family, 0.9))


def run(wanted: list[tuple[Family, int]], recordings: Path, rows: Path, processes: int) -> list[Trial]:
    """Runs what is wanted and not in `rows` yet."""
    have = {(t.family, t.seed): t for t in read([rows])} if rows.exists() else {}
    with ProcessPoolExecutor(processes) as pool, rows.open("a") as out:
        waiting = [pool.submit(_run, *one, recordings) for one in wanted if one not in have]
        for future in waiting:
            trial = future.result()
            have[trial.family, trial.seed] = trial
            out.write(json.dumps(asdict(trial)) + "\n")
            out.flush()
    return [have[one] for one in wanted]


def read(files: list[Path]) -> list[Trial]:
    """The rows of some files."""
    return [trial_of(json.loads(line)) for file in files for line in file.read_text().splitlines()]


def publish(trials: list[Trial]) -> bool:
    """Writes figures and page; true when every demand is met."""
    found = figures(trials)
    results = Results("blame")
    for f in found:
        results.add(f.what, f.value, f.unit, at_least=f.at_least, at_most=f.at_most)
    page = _PAGE.read_text()
    head, rest = page.split(_BEGIN)
    _PAGE.write_text(head + _BEGIN + "\n" + table(found) + "\n" + _END + rest.split(_END)[1])
    return results.finish()


def seeds(family: Family, jobs: str) -> range:
    """The seeds of a family in a text like `one=300,weak=100:200`."""
    counts = dict(part.split("=") for part in jobs.split(","))
    first, _, end = counts.get(family, "0").rpartition(":")
    return range(int(first or 0), int(end))


def main() -> int:
    """Parses, runs, publishes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--jobs", default="one=300,several=60,healthy=100,weak=400")
    parser.add_argument("--rows", type=Path, default=ROOT / "build" / "blame.jsonl")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--judge", type=Path, nargs="*")
    parser.add_argument("--fit", type=Path, nargs="*")
    options = parser.parse_args()
    if options.fit:
        curves: list[tuple[Accused, Calibration]] = [("work", OF_WORK), ("link", OF_LINKS), ("group", OF_GROUPS)]
        for accused, curve in curves:
            print("{}: Calibration({:.4g}, {:.3g})".format(accused, *fitted(read(options.fit), accused, curve)))
        return 0
    if options.judge:
        return 0 if publish(read(options.judge)) else 1
    recordings = options.recordings if options.recordings.is_dir() else ROOT / "tests" / "recordings"
    wanted: list[tuple[Family, int]] = [(f, seed) for f in FAMILIES for seed in seeds(f, options.jobs)]
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    return 0 if publish(run(wanted, recordings, options.rows, options.processes)) else 1


if __name__ == "__main__":
    sys.exit(main())
