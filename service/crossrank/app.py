"""Builds the service and runs it: the only place that reads settings and makes objects."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
import uvicorn
from fastapi import FastAPI

from crossrank import __version__, timesource
from crossrank.api import errors, health_routes, ingest_routes, job_routes
from crossrank.api.inflight import Inflight
from crossrank.api.request_counter import RequestCounter
from crossrank.api.rooms import Rooms
from crossrank.counters import Counters
from crossrank.errors import BadParameter, CrossrankError, NotFound, StoreUnavailable
from crossrank.ingest.accept import accept
from crossrank.limits import Limits
from crossrank.query.deriver import Deriver
from crossrank.settings import Settings
from crossrank.store.store import Store

log = logging.getLogger(__name__)
KEEP_ALIVE_S = 75  # longer than the idle time after which exporters and proxies drop a connection themselves
DRAIN_S = 20
LISTEN_BACKLOG = 2048


def open_rooms(settings: Settings, limits: Limits) -> Rooms:
    """Opens the data folder and builds the parts of the service. Raises StoreUnavailable."""
    counters = Counters()
    store = Store.open(
        settings.data, decode=partial(accept, limits=limits), limits=limits, counters=counters, now_ns=timesource.wall_ns
    )
    return Rooms(
        store=store,
        deriver=Deriver(store, limits, counters, timesource.monotonic_ns),
        limits=limits,
        counters=counters,
        wall_ns=timesource.wall_ns,
        decoders=ThreadPoolExecutor(settings.decode_threads, thread_name_prefix="decode"),
        inflight=Inflight(limits.inflight_bytes),
        topology_lock=threading.Lock(),
    )


def close_rooms(rooms: Rooms) -> None:
    """Finishes what is in hand, seals and closes."""
    rooms.deriver.stop()
    rooms.decoders.shutdown()
    rooms.store.close()


def build_api(rooms: Rooms) -> FastAPI:
    """The HTTP application over the given parts."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        rooms.deriver.start()
        yield
        await asyncio.to_thread(close_rooms, rooms)

    api = FastAPI(
        title="crossrank",
        version=__version__,
        summary="Which rank, in which phase, delayed which step, by how much, and how sure are we?",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    api.state.rooms = rooms
    errors.install(api)
    for router in (ingest_routes.router, health_routes.router, job_routes.router):
        api.include_router(router)

    api.add_middleware(RequestCounter, counters=rooms.counters)
    return api


def serve(settings: Settings) -> None:
    """Serves until told to stop (SIGTERM, SIGINT). Raises StoreUnavailable or BadParameter before listening."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not _is_loopback(settings.host) and not settings.insecure:
        raise BadParameter(
            f"there is no authentication yet, so listening on {settings.host} would let anyone who reaches the port read and write; "
            "listen on 127.0.0.1, or say --insecure if the network is trusted",
            field="host",
        )
    listener = _listen(settings.host, settings.port)
    rooms = open_rooms(settings, Limits())
    config = uvicorn.Config(
        build_api(rooms), timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=DRAIN_S, access_log=False, log_config=None
    )
    host, port = listener.getsockname()[:2]
    log.info("serving on http://%s:%d with data folder %s", host, port, settings.data)
    uvicorn.Server(config).run(sockets=[listener])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)  # clients wait in the queue while the service starts
    except OSError as error:
        listener.close()
        raise BadParameter(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port", field="port") from error
    return listener


class Embedded:
    """A data folder opened in this process, answering exactly what a running service would."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise NotFound(f"no data folder {folder}; `crossrank serve --data` makes one", field="data")
        self._rooms = open_rooms(Settings(data=folder), Limits())
        self._api = build_api(self._rooms)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON answer of GET `path`. Raises CrossrankError as the service would answer it."""
        answer = asyncio.run(self._request(path, params))
        body: dict[str, Any] = msgspec.json.decode(answer.content)
        if answer.is_error:
            fault = body["error"]
            raise _FAULTS.get(answer.status_code, CrossrankError)(fault["message"], **fault["detail"])
        return body

    def download(self, path: str, params: Mapping[str, Any] | None = None) -> bytes:
        """The body of GET `path`."""
        answer = asyncio.run(self._request(path, params))
        if answer.is_error:
            fault = msgspec.json.decode(answer.content)["error"]
            raise _FAULTS.get(answer.status_code, CrossrankError)(fault["message"], **fault["detail"])
        return answer.content

    async def _request(self, path: str, params: Mapping[str, Any] | None) -> httpx.Response:
        transport = httpx.ASGITransport(self._api)
        async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as client:
            return await client.get(path, params=dict(params or {}))

    def close(self) -> None:
        """Closes the folder."""
        close_rooms(self._rooms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_FAULTS: dict[int, type[CrossrankError]] = {400: BadParameter, 404: NotFound, 503: StoreUnavailable}


def open_embedded(folder: Path) -> Embedded:
    """Opens a data folder without a running service. Raises NotFound or StoreUnavailable (held by a running one)."""
    return Embedded(folder)
