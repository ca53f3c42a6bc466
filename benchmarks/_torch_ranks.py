"""The ranks of benchmarks/client_torch.py, run by a Python that has PyTorch: prints one JSON object.

_torch_ranks.py URL PAIRS        the client is found by PYTHONPATH
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as torch_processes
from torch.nn.parallel import DistributedDataParallel

CALLS_A_BLOCK, CALL_PAIRS = 200, 40
RANKS, STEPS_BEFORE, STEPS_A_BLOCK = 4, 4, 12


def joined(rank: int, size: int, store: str) -> None:
    """Becomes a rank of a gloo job."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)


def order_of(pairs: int) -> list[tuple[bool, bool]]:
    """Which block of each pair is instrumented, the same on all ranks."""
    draw = random.Random(11)
    firsts = [draw.random() < 0.5 for _ in range(pairs)]
    return [(first, not first) for first in firsts]


def calls(rank: int, store: str, url: str, out: Any) -> None:
    """Microseconds a call of an all-reduce of 1 KiB takes between two ranks, block by block."""
    import crossrank_client
    import crossrank_client.torch as instruments

    joined(rank, 2, store)
    crossrank_client.init(url, "calls", rank=rank, world_size=2, spool_dir=tempfile.gettempdir())
    message = torch.zeros(256)
    found: dict[str, list[tuple[float, float]]] = {}
    for name, wait in (("synchronous", False), ("asynchronous, awaited", True)):
        for with_first, _ in order_of(CALL_PAIRS):
            took = {}
            for spanned in (with_first, not with_first):
                if spanned:
                    instruments.instrument(last_words=False, profiles=False)
                dist.barrier()
                began = time.perf_counter()
                for _ in range(CALLS_A_BLOCK):
                    work = dist.all_reduce(message, async_op=wait)
                    if work is not None:
                        work.wait()
                took[spanned] = 1e6 * (time.perf_counter() - began) / CALLS_A_BLOCK
                instruments.uninstrument()
            found.setdefault(name, []).append((took[True], took[False]))
    if rank == 0:
        out.put(found)
    crossrank_client.shutdown()
    dist.destroy_process_group()


def steps(rank: int, store: str, url: str, pairs: int, out: Any) -> None:
    """Seconds of blocks of DDP steps of four ranks on one core."""
    import crossrank_client
    import crossrank_client.torch as instruments

    joined(rank, RANKS, store)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batch = torch.ones(96, 512)

    def block(spanned: bool) -> float:
        began = 0.0
        if spanned:
            crossrank_client.init(url, "ddp", rank=rank, world_size=RANKS, spool_dir=tempfile.gettempdir())
            instruments.instrument(model=model, optimizer=optimizer)
        for n in range(STEPS_BEFORE + STEPS_A_BLOCK):
            if n == STEPS_BEFORE:
                dist.barrier()
                began = time.perf_counter()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        took = time.perf_counter() - began
        crossrank_client.shutdown()
        return took

    block(spanned=True)
    found = [(block(first), block(second)) if first else (block(first), block(second))[::-1] for first, second in order_of(pairs)]
    if rank == 0:
        out.put(found)
    dist.destroy_process_group()


def ring(url: str) -> tuple[int, float]:
    """Entries of a full ring, and milliseconds that one look at it takes."""
    import crossrank_client
    from crossrank_client.torch.ring import Ring

    client = crossrank_client.init(url, "ring", rank=0, spool_dir=tempfile.gettempdir())
    assert client is not None
    reader = Ring(client, completions_only=False)
    for _ in range(2100):
        dist.all_reduce(torch.zeros(4))
    took = []
    for _ in range(7):
        for _ in range(100):
            dist.all_reduce(torch.zeros(4))
        began = time.thread_time()
        reader.look(True)
        took.append(1e3 * (time.thread_time() - began))
    crossrank_client.shutdown()
    return 2000, sorted(took)[len(took) // 2]


def alone(_rank: int, store: str, url: str, out: Any) -> None:
    """A job of one rank, for its ring."""
    joined(0, 1, store)
    out.put(ring(url))
    dist.destroy_process_group()


def main() -> None:
    """Runs the three, one after the other."""
    url, pairs = sys.argv[1], int(sys.argv[2])
    fork = torch_processes.get_context("fork")
    cores = sorted(os.sched_getaffinity(0))
    said = {}
    for what, target, size, given in (("calls", calls, 2, ()), ("ring", alone, 1, ()), ("steps", steps, RANKS, (pairs,))):
        os.sched_setaffinity(0, cores[:1] if what == "steps" else cores)
        with tempfile.TemporaryDirectory() as folder:
            out = fork.SimpleQueue()
            places = [(rank, str(Path(folder) / "store"), url, *given, out) for rank in range(size)]
            processes = [fork.Process(target=target, args=place) for place in places]
            for process in processes:
                process.start()
            said[what] = out.get()
            for process in processes:
                process.join()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
