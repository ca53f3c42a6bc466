"""How fast a Kineto trace is imported, and in how much memory: text in clear a CPU second, and the peak of a process of its own.

The trace is made here (no recording is needed): operators, launches, kernels with their arguments and collectives in the
proportions of a training job, printed as the profiler prints them. A larger file repeats the same second with later times, so every
event is another one. The memory is that of a child process that reads the file from disk, as `crossrank import` does.

    python benchmarks/importers.py [--rounds N] [--megabytes N]
"""

from __future__ import annotations

import argparse
import io
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _measure import take_turns
from _results import Results

from crossrank.importers.kineto import read
from crossrank.importers.source import Source
from crossrank.limits import Limits

LIMITS = Limits(import_bytes=1 << 50, events_per_body=1 << 40)
HEAD = """{
  "schemaVersion": 1, "baseTimeNanoseconds": 1711964646000000000,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}]},
  "traceEvents": [
"""
OPERATOR = """  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::{name}", "pid": 4037, "tid": 4037,
    "ts": {ts:.3f}, "dur": 41.250,
    "args": {{
      "External id": {id},"Record function id": {id}, "Concrete Inputs": ["", "", "1"], "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], "Input Dims": [[2048, 5120], [5120, 1280], []], "Ev Idx": {id}
    }}
  }},
"""
LAUNCH = """  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4037, "tid": 4037,
    "ts": {ts:.3f}, "dur": 6.125,
    "args": {{
      "External id": {id}, "cbid": 211, "correlation": {id}
    }}
  }},
  {{
    "ph": "s", "id": {id}, "pid": 4037, "tid": 4037, "ts": {ts:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},
"""
KERNEL = """  {{
    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream},
    "ts": {ts:.3f}, "dur": 33.500,
    "args": {{
      "External id": {id},"queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {id}, "registers per thread": 40, "shared memory": 400, "blocks per SM": 4.740741, "warps per SM": 75.851852, "grid": [512, 1, 1], "block": [512, 1, 1], "est. achieved occupancy %": 75{more}
    }}
  }},
"""
NCCL = ', "Collective name": "allreduce", "In msg nelems": 6637568, "Out msg nelems": 6637568, "Group size": 8, "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
ROUND = 50  # operators between two collectives


def trace(size_bytes: int) -> Iterator[bytes]:
    """A trace of about that size, in parts."""
    yield HEAD.encode()
    made, number = 0, 0
    while made < size_bytes:
        parts = []
        for i in range(ROUND):
            number += 1
            at = number * 50.0
            parts.append(OPERATOR.format(name=f"op{i}", ts=at, id=number) + LAUNCH.format(ts=at + 20, id=number))
            parts.append(KERNEL.format(name=f"gemm_{i}<float, float>(int, float const*)", stream=7, ts=at + 30, id=number, more=""))
        number += 1
        parts.append(LAUNCH.format(ts=number * 50.0, id=number))
        parts.append(
            KERNEL.format(name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL()", stream=20, ts=number * 50.0, id=number, more=NCCL)
        )
        part = "".join(parts).encode()
        made += len(part)
        yield part
    yield b'  {"ph": "i", "name": "Record Window End", "ts": 0}\n]}\n'


def count(file: object) -> int:
    """Imports a file and forgets the events."""
    return sum(len(d.rows) for d in read(file, Source("rank0.json", None, 1), LIMITS).batches)  # type: ignore[arg-type]


def child(path: str) -> None:
    """What the measured process does."""
    with Path(path).open("rb") as file:
        events = count(file)
    print(events, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    """Measures and records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=5000, help="size of the large file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    results = Results("importers")
    small = b"".join(trace(60_000_000))
    timing = take_turns({"kineto": lambda: count(io.BytesIO(small))}, rounds=asked.rounds)["kineto"]
    results.add("Kineto: text in clear per core", len(small) / 1e6 / timing.cpu_s, "MB/s", at_least=50)
    results.add("Kineto: events per core", count(io.BytesIO(small)) / timing.cpu_s, "events/s")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        size = 0
        for part in trace(asked.megabytes * 1_000_000):
            size += len(part)
            file.write(part)
        file.flush()
        done = subprocess.run([sys.executable, __file__, "--child", file.name], capture_output=True, text=True, check=True)
    events, peak_kib = map(int, done.stdout.split())
    results.add("Kineto: size of the large file", size / 1e9, "GB")
    results.add("Kineto: its events", events, "events")
    results.add("Kineto: peak memory of the importing process", peak_kib * 1024 / 1e9, "GB", at_most=2.0)
    sys.exit(0 if results.finish() else 1)


if __name__ == "__main__":
    main()
