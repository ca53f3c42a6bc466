"""A rank of a small training job with the client, as a process of its own: prints one JSON line about how it went.

The job is CROSSRANK_JOB. Arguments: url, spool folder, seconds, then words: `full` (the disk takes no byte), `little` (little memory for what waits), `none`
(no client at all), `away` (nothing is waited for at the end), `told` (trains on until a line comes on stdin).
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from typing import Any

import crossrank_client as cr


def train(seconds: float, told: threading.Event) -> list[float]:
    """Steps of about 10 ms; their durations in milliseconds."""
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or not told.is_set():
        began = time.perf_counter()
        with cr.step(len(took)):
            for name in ("data", "forward", "backward"):
                with cr.span(name, payload=f"{len(took):x}" * 8):
                    time.sleep(0.002)
            with cr.span("all_reduce", "collective", group="world", seq=len(took), bytes=1 << 20):
                time.sleep(0.002)
            with cr.span("optimizer"):
                time.sleep(0.001)
        took.append(1e3 * (time.perf_counter() - began))
    return took


def wait_for_a_line(told: threading.Event) -> None:
    """Sets `told` once a line comes on stdin, or its end."""
    sys.stdin.readline()
    told.set()


def main() -> None:
    """Trains, waits until everything is posted, says how it went."""
    url, spool, seconds, *words = sys.argv[1:]
    if "full" in words:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    if "none" not in words:
        memory: dict[str, Any] = {"memory_bytes": 2000} if "little" in words else {}
        assert cr.init(url, spool_dir=spool, **memory) is not None
    told = threading.Event()
    if "told" in words:
        listener = threading.Thread(target=wait_for_a_line, args=(told,), daemon=True)
        listener.start()
    else:
        told.set()
    took = train(float(seconds), told)
    flushed = cr.flush(90.0) if "away" not in words else False
    stats = cr.stats()
    began = time.perf_counter()
    cr.shutdown()
    said = {"steps": len(took), "took_ms": took, "flushed": flushed, "stats": stats}
    if "told" in words:
        listener.join()
    said |= {"shutdown_s": time.perf_counter() - began, "threads": threading.active_count()}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
