"""`crossrank-agent`: posts readings of this machine once a second until it is stopped.

Run one on each machine, beside the ranks. Its metrics carry the host, and the number of a rank of that host (`--rank`, by default the lowest
that the launcher names), because an event belongs to a rank; they are on the lane `host`, and never take part in order or alignment.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

from crossrank_client.agent.gpus import Gpus
from crossrank_client.agent.machine import Machine
from crossrank_client.client import Client
from crossrank_client.clock import mono_ns
from crossrank_client.place import job_of, place_of
from crossrank_client.sender import BadUrl

EVERY_S = 1.0
LANE = "host"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM or Ctrl-C; the exit code."""
    said = _parser().parse_args(arguments)
    place = place_of()
    job = said.job or job_of()
    if job is None:
        sys.stderr.write("crossrank-agent: name the job with --job or CROSSRANK_JOB\n")
        return 2
    rank = said.rank if said.rank is not None else max(0, (place.rank or 0) - (place.local_rank or 0))
    try:
        client = Client(said.url, job, rank=rank, host=said.host or place.host, attempt=place.attempt, token=said.token)
    except BadUrl as fault:
        sys.stderr.write(f"crossrank-agent: {fault}\n")
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _watch(client, stop, said.every)
    client.shutdown()
    return 0


def _watch(client: Client, stop: threading.Event, every_s: float) -> None:
    machine, gpus = Machine(), Gpus()
    next_ns = mono_ns()
    while not stop.is_set():
        for name, value, device in (*machine.read(), *gpus.read()):
            client.metric(name, value, lane=LANE, **({} if device is None else {"device": device}))
        for device, code in gpus.xids():
            client.mark("gpu.xid", lane=LANE, device=device, code=code)
        next_ns = max(next_ns + int(every_s * 1e9), mono_ns())
        stop.wait((next_ns - mono_ns()) / 1e9)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "crossrank-agent", description="Posts CPU, memory, network, disk and GPU figures of this machine."
    )
    parser.add_argument("--url", default=os.environ.get("CROSSRANK_URL", "http://127.0.0.1:4318"), help="the service")
    parser.add_argument("--job", help="the job (default: CROSSRANK_JOB, or what the launcher says)")
    parser.add_argument("--rank", type=int, help="a rank of this machine (default: the lowest the launcher says, else 0)")
    parser.add_argument("--host", help="name of this machine")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between readings (default 1)")
    parser.set_defaults(token=os.environ.get("CROSSRANK_TOKEN"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
