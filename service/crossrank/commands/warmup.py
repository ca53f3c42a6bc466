"""`crossrank warmup`: compiles every numba kernel by sending a tiny job the whole way, from its bytes to the answers about it.

Kernels are compiled at first use and cached beside their modules. Done once after installing, no request waits seconds for a
compiler that holds the interpreter lock, and no report does.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import pyarrow as pa

from crossrank.app import build_api, close_rooms, open_rooms
from crossrank.commands.reading import waiting
from crossrank.ingest.warm import warm_up
from crossrank.limits import Limits
from crossrank.settings import Settings
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate

JOB: Final = "warmup"
_FORMS: Final[tuple[tuple[str, str, Callable[[pa.Table], bytes]], ...]] = (
    ("/v1/events", encode.NDJSON_TYPE, encode.ndjson),
    ("/v1/events", encode.NDJSON_TYPE, encode.seed_form),
    ("/v1/events", encode.ARROW_TYPE, encode.arrow_stream),
    ("/v1/traces", encode.PROTOBUF_TYPE, encode.otlp_protobuf),
)
_QUESTIONS: Final = (
    "",
    "/clocks",
    "/steps",
    "/steps/1/critical-path",
    "/collectives",
    "/stragglers",
    "/bottlenecks",
    "/events",
    "/timeline",
)


def run_warmup() -> None:
    """Compiles what is not compiled yet; a second run takes seconds. Raises CrossrankError when a stage fails."""
    with waiting("compiling the decoders") as say, tempfile.TemporaryDirectory(prefix="crossrank-warmup-") as folder:
        warm_up()
        say("compiling the analyses")
        rooms = open_rooms(Settings(data=Path(folder)), Limits())
        try:
            asyncio.run(_ask(httpx.ASGITransport(build_api(rooms))))
            rooms.store.seal()
        finally:
            close_rooms(rooms)


async def _ask(transport: httpx.ASGITransport) -> None:
    events = simulate(JobConfig(job=JOB, dp=2, tp=2, pp=2, steps=3, microbatches=2, ranks_per_host=2), seed=0).events
    async with httpx.AsyncClient(transport=transport, base_url="http://warmup") as client:
        for path, content_type, encoded in _FORMS:
            (await client.post(path, content=encoded(events), headers={"content-type": content_type})).raise_for_status()
        (await client.post(f"/v1/jobs/{JOB}/derive", params={"wait": True})).raise_for_status()
        for question in _QUESTIONS:
            (await client.get(f"/v1/jobs/{JOB}{question}")).raise_for_status()
