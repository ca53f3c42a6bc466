"""What each source of events costs a PyTorch job. Needs `make test-torch` once, for its environment. Writes results/client_torch.json.

- An all-reduce of 1 KiB between two gloo ranks on two cores, instrumented and not, in interleaved blocks of 200 calls: the
  difference is the cost of recording a call with its completion. Synchronous, and asynchronous with `wait()`.
- A step of DDP, four ranks that share one core, the service on another, as in benchmarks/client.py.
- One look at a full ring of the flight recorder, processor time of the client's thread.

    benchmarks/client_torch.py [--pairs 12]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from _interval import interval
from _results import Results
from _service import service

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Runs everything; 0 when all demands hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=12)
    pairs = parser.parse_args().pairs
    python = os.environ.get("CROSSRANK_TORCH_PYTHON", str(ROOT / ".venv-torch" / "bin" / "python"))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "client"), "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
    cores = sorted(os.sched_getaffinity(0))
    with service() as running:
        for task in Path(f"/proc/{running.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores[1:] or cores)
        command = [python, str(ROOT / "benchmarks" / "_torch_ranks.py"), running.url, str(pairs)]
        said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=env, check=True, timeout=600).stdout.splitlines()[-1])
    results = Results("client_torch")
    for name, blocks in said["calls"].items():
        results.add(f"all_reduce of 1 KiB, {name}, without", median(off for _, off in blocks), "us")
        differences = [on - off for on, off in blocks]
        results.add(f"... more with calls recorded, median of {len(blocks)} pairs", median(differences), "us")
        low, high = interval(differences)
        results.add("... 95 % interval of that median, from", low, "us")
        results.add("... to", high, "us")
    entries, took_ms = said["ring"]
    results.add(f"one look at a ring of {entries} entries", took_ms, "ms of processor time")
    ratios = [on / off for on, off in said["steps"]]
    results.add(f"DDP step with / without, 4 ranks on one core, median of {len(ratios)} pairs", median(ratios), "", at_most=1.01)
    low, high = interval(ratios)
    results.add("... 95 % interval of that median, from", low, "")
    results.add("... to", high, "")
    results.add("DDP step without", 1e3 * median(off for _, off in said["steps"]) / 12, "ms")
    return 0 if results.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
