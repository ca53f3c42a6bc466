"""What an export for a trace viewer costs: a million spans of 64 ranks as Perfetto and as Chrome, streamed.

    python benchmarks/exports.py [--steps 16]

Wall seconds are from the stored events to the last byte, after the job has been derived; the derivation has its own benchmark.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _big_job import JOB, fill, open_big
from _results import Results

from crossrank.counters import Counters
from crossrank.exporters.chrome import chrome_stream
from crossrank.exporters.perfetto import perfetto_stream
from crossrank.exporters.picture import Picture
from crossrank.limits import Limits
from crossrank.query.deriver import Deriver
from crossrank.query.drawing import Asked, drawing
from crossrank.query.jobview import JobView

RANKS, SPANS = 64, 1000


def main() -> int:
    """Measures, prints and writes results/exports.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=16)
    steps = options.parse_args().steps
    results = Results("exports")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = open_big(Path(folder))
        spans = fill(store, ranks=RANKS, steps=steps, spans=SPANS)
        deriver = Deriver(store, Limits(), Counters(), time.monotonic_ns)
        snapshot, derived = deriver.latest(JOB)
        view = JobView(snapshot, derived, (), {}, 0, 0)
        asked = Asked(ranks=[(0, RANKS - 1)], top=RANKS, first=None, last=None, aligned="repaired", spans_most=2 * spans)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, write in (("perfetto", perfetto_stream), ("chrome", chrome_stream)):
            _run(write, drawing(view, Asked(**{**_fields(asked), "last": 0})))  # compiles
            took_s, cpu_s, size = _run(write, drawing(view, asked))
            results.add(f"{name}, {spans:,} spans, wall", took_s, "s")
            results.add(f"{name}, {spans:,} spans, CPU", cpu_s, "s", at_most=20)
            results.add(f"{name}, bytes a span", size / spans, "B")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
        results.add("peak memory beyond that of the derivation", grown / 1024, "MB")
        store.close()
    return 0 if results.finish() else 1


def _fields(asked: Asked) -> dict[str, object]:
    return {name: getattr(asked, name) for name in ("ranks", "top", "first", "last", "aligned", "spans_most")}


def _run(write: Callable[[Picture], Iterator[bytes]], picture: Picture) -> tuple[float, float, int]:
    began, cpu = time.perf_counter(), time.process_time()
    size = sum(len(piece) for piece in write(picture))
    return time.perf_counter() - began, time.process_time() - cpu, size


if __name__ == "__main__":
    raise SystemExit(main())
