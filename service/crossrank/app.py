"""Builds the service and runs it: the only place that reads settings and makes objects."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import msgspec
import uvicorn
from fastapi import FastAPI

from crossrank import __version__, timesource
from crossrank.api import (
    analysis_routes,
    errors,
    export_routes,
    health_routes,
    import_routes,
    ingest_routes,
    jaeger_routes,
    job_routes,
    live_routes,
    profile_routes,
    scaling_routes,
    verdict_routes,
    view_routes,
    whatif_routes,
)
from crossrank.api.connection import GuardedConnection, Waiting
from crossrank.api.decode_queue import DecodeQueue
from crossrank.api.gate import Gate
from crossrank.api.heartbeat import beat
from crossrank.api.inflight import Inflight
from crossrank.api.live_streams import LiveStreams
from crossrank.api.profile_desk import ProfileDesk
from crossrank.api.readiness import Readiness
from crossrank.api.rooms import Rooms
from crossrank.api.taking import admit_post
from crossrank.auth.guard import Guard
from crossrank.auth.rates import Rates
from crossrank.auth.tokens import read_tokens
from crossrank.counters import Counters
from crossrank.errors import BadParameter, CrossrankError, NotFound, StoreUnavailable
from crossrank.ingest.warm import warm_up
from crossrank.limits import Limits
from crossrank.query.catch_up import CatchUp
from crossrank.query.deriver import Deriver
from crossrank.serving import (
    DRAIN_S,
    KEEP_ALIVE_S,
    DrainingServer,
    check_certificate,
    check_door,
    is_loopback,
    listen,
    most_connections,
)
from crossrank.settings import Settings
from crossrank.store.store import Store
from crossrank.web import routes as page_routes

if TYPE_CHECKING:
    from crossrank.api.grpc_door import GrpcDoor

log = logging.getLogger(__name__)
HTTP_PORT, GRPC_PORT = 4318, 4317  # as OpenTelemetry has them
DERIVER_STOP_S = 5.0
SWITCH_S = (
    0.001  # how long a thread may keep the interpreter from the event loop; Python's default of 5 ms adds up over the threads
)
DAY_NS = 86_400_000_000_000
ROUTERS = (
    ingest_routes.router,
    import_routes.router,
    health_routes.router,
    live_routes.router,
    view_routes.router,  # `figures/steps` of a job before `steps` of a job that ends in `/figures`
    verdict_routes.router,
    whatif_routes.router,
    analysis_routes.router,
    scaling_routes.router,
    export_routes.router,
    jaeger_routes.router,
    profile_routes.router,
    job_routes.router,
    page_routes.router,
)


def limits_of(settings: Settings) -> Limits:
    """The limits as an operator has set them."""
    return Limits(
        inflight_bytes=settings.inflight_bytes,
        token_bytes_per_s=settings.token_bytes_per_s,
        token_events_per_s=settings.token_events_per_s,
        retain_ns=None if settings.retain_days is None else int(settings.retain_days * DAY_NS),
        retain_job_bytes=settings.retain_job_bytes,
    )


def open_rooms(settings: Settings, limits: Limits) -> Rooms:
    """Opens the data folder and builds the parts of the service. Raises StoreUnavailable."""
    counters = Counters()
    store = Store.open(
        settings.data,
        decode=partial(admit_post, limits=limits, decoder=settings.decoder),
        limits=limits,
        counters=counters,
        now_ns=timesource.wall_ns,
    )
    rates = Rates(limits.token_bytes_per_s, limits.token_events_per_s)
    try:
        open_to_all = is_loopback(settings.host) or settings.insecure
        guard = Guard(settings.data, rates, timesource.monotonic_ns, always=not open_to_all)
    except BaseException:
        store.close()
        raise
    return Rooms(
        store=store,
        deriver=Deriver(store, limits, counters, timesource.monotonic_ns),
        limits=limits,
        decoder=settings.decoder,
        counters=counters,
        wall_ns=timesource.wall_ns,
        listening_since_ns=timesource.wall_ns(),
        decoders=DecodeQueue(settings.decode_threads, limits.decode_wait_ns, timesource.monotonic_ns),
        suspects=ThreadPoolExecutor(1, thread_name_prefix="suspect"),
        inflight=Inflight(limits.inflight_bytes),
        guard=guard,
        readiness=Readiness(store, timesource.monotonic_ns),
        topology_lock=threading.Lock(),
        profiles=ProfileDesk(limits.profile_jobs, limits.profile_wait_ns, timesource.monotonic_ns),
        live=LiveStreams(limits.live_streams),
    )


def close_rooms(rooms: Rooms) -> None:
    """Finishes what is in hand, seals and closes."""
    rooms.deriver.stop(DERIVER_STOP_S)
    rooms.decoders.close()
    rooms.suspects.shutdown()
    rooms.store.close()


def build_api(rooms: Rooms, before_close: Callable[[], object] = lambda: None, *, only_local_names: bool = False) -> FastAPI:
    """The HTTP application over the given parts.

    before_close: what other doors have to finish before the parts are closed. only_local_names: see `Gate`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        rooms.deriver.start()
        catch_up = CatchUp(rooms.store, rooms.deriver, rooms.limits)
        catch_up.start()
        heart = asyncio.create_task(beat(rooms.counters, timesource.monotonic_ns))
        yield
        heart.cancel()
        await asyncio.to_thread(before_close)
        await asyncio.to_thread(catch_up.stop, DERIVER_STOP_S)
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
    routes = list(api.router.routes)
    for router in ROUTERS:
        api.include_router(router)
        routes += router.routes
    api.add_middleware(Gate, rooms=rooms, routes=routes, doors=ingest_routes.DOORS, only_local_names=only_local_names)
    return api


def serve(settings: Settings) -> None:
    """Serves until told to stop (SIGTERM, SIGINT). Raises StoreUnavailable or BadParameter before listening."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    certificate = check_certificate(settings.tls_cert, settings.tls_key)
    check_door(settings.host, tokens=read_tokens(settings.data) is not None, insecure=settings.insecure)
    listener = listen(settings.host, settings.port)
    rooms = open_rooms(settings, limits_of(settings))
    warm_up()  # loads the compiled decoders; the first request must not wait for it
    host, port = listener.getsockname()[:2]
    door = _open_grpc(settings, rooms, port, certificate)
    stopping: list[Callable[[], None]] = []  # waits for what gRPC has in hand
    server = DrainingServer(
        uvicorn.Config(
            build_api(rooms, lambda: [wait() for wait in stopping], only_local_names=is_loopback(settings.host)),
            http=partial(GuardedConnection, waiting=Waiting(most_connections())),  # type: ignore[arg-type]  # anything that makes a protocol
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
            ssl_certfile=certificate[0] if certificate else None,
            ssl_keyfile=certificate[1] if certificate else None,
            access_log=False,
            log_config=None,
            server_header=False,
        ),
        on_stop=partial(_begin_to_stop, rooms, door, stopping),
    )
    scheme = "https" if certificate else "http"
    log.info("serving on %s://%s:%d with data folder %s", scheme, f"[{host}]" if ":" in host else host, port, settings.data)
    if not is_loopback(settings.host) and certificate is None:
        log.warning("there is no TLS: tokens and data pass over the network in clear; give --tls-cert and --tls-key")
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()  # what was loaded stays: walking it in every full collection would hold up the event loop
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when all is done; that is a success
    server.run(sockets=[listener])
    # Python takes its handlers back while it ends; a signal that is ignored stays so, and a late one changes nothing.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _begin_to_stop(rooms: Rooms, door: GrpcDoor | None, stopping: list[Callable[[], None]]) -> None:
    """Ends what would never end by itself, so that the drain only waits for work."""
    rooms.live.close()
    if door is not None:
        stopping.append(door.stop(DRAIN_S))


def _open_grpc(settings: Settings, rooms: Rooms, http_port: int, certificate: tuple[Path, Path] | None) -> GrpcDoor | None:
    """The gRPC door where one is asked for, or where nothing was said and both usual ports are meant."""
    asked = settings.grpc_port
    if asked is None and http_port != HTTP_PORT:
        return None
    try:
        from crossrank.api.grpc_door import GrpcDoor  # noqa: PLC0415  - an extra that need not be installed
    except ImportError:
        if asked is None:
            return None
        raise BadParameter("gRPC needs the package grpcio: pip install 'crossrank[grpc]'", field="grpc_port") from None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        door = GrpcDoor(rooms, f"{host}:{GRPC_PORT if asked is None else asked}", certificate=certificate)
    except BadParameter as fault:
        if asked is not None:
            close_rooms(rooms)
            raise
        log.warning("%s; going on with HTTP only", fault)
        return None
    log.info("serving OTLP/gRPC on %s:%d", host, door.port)
    return door


class Embedded:
    """A data folder opened in this process, answering exactly what a running service would."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise NotFound(f"no data folder {folder}; `crossrank serve --data` makes one", field="data")
        # Nobody posts here: what has not come so far will not come, however short this has been open.
        self._rooms = replace(open_rooms(Settings(data=folder), Limits()), listening_since_ns=0)
        self._api = build_api(self._rooms)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON answer of GET `path`. Raises CrossrankError as the service would answer it."""
        return _body_of(asyncio.run(self._request("GET", path, params)))

    def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON answer of POST `path` with a JSON body. Raises as `get`."""
        return _body_of(asyncio.run(self._request("POST", path, None, msgspec.json.encode(question))))

    def download(self, path: str, params: Mapping[str, Any] | None = None) -> bytes:
        """The body of GET `path`."""
        answer = asyncio.run(self._request("GET", path, params))
        if answer.is_error:
            fault = msgspec.json.decode(answer.content)["error"]
            raise _FAULTS.get(answer.status_code, CrossrankError)(fault["message"], **fault["detail"])
        return answer.content

    async def _request(self, method: str, path: str, params: Mapping[str, Any] | None, body: bytes | None = None) -> httpx.Response:
        transport = httpx.ASGITransport(self._api)
        headers = {} if body is None else {"content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as client:
            return await client.request(method, path, params=dict(params or {}), content=body, headers=headers)

    def close(self) -> None:
        """Closes the folder."""
        close_rooms(self._rooms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _body_of(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(answer.content)
    if answer.is_error:
        fault = body["error"]
        raise _FAULTS.get(answer.status_code, CrossrankError)(fault["message"], **fault["detail"])
    return body


_FAULTS: dict[int, type[CrossrankError]] = {400: BadParameter, 404: NotFound, 503: StoreUnavailable}


def open_embedded(folder: Path) -> Embedded:
    """Opens a data folder without a running service. Raises NotFound or StoreUnavailable (held by a running one)."""
    return Embedded(folder)
