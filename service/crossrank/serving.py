"""Listening and stopping: what a running process needs around the application.

Stopping (SIGTERM or SIGINT, once or more): at once nothing new is accepted, what is in hand is answered, memory is sealed, and the
process ends within 30 s. Should something hang, a watchdog ends it then: every acknowledged event is in the log already, so that a
hard end loses nothing and only makes the next start replay more.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from crossrank.errors import BadParameter

log = logging.getLogger(__name__)
KEEP_ALIVE_S: Final = 75  # longer than the idle time after which exporters and proxies drop a connection themselves
DRAIN_S: Final = 15
END_S: Final = 29.0
LISTEN_BACKLOG: Final = 2048
_SPARE_FILES: Final = 256  # for the log, segments, libraries and gRPC
_MOST_CONNECTIONS: Final = 16_384


class DrainingServer(uvicorn.Server):
    """uvicorn's server that says when stopping begins."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, finishes what is in hand."""
        end_at_the_latest()
        self._on_stop()
        await super().shutdown(sockets)


def end_at_the_latest() -> None:
    """Ends the process after END_S, whatever hangs."""

    def end() -> None:
        log.warning("stopping took longer than %.0f s; ending now. The log holds everything acknowledged.", END_S)
        os._exit(0)

    timer = threading.Timer(END_S, end)
    timer.daemon = True
    timer.start()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket: clients wait in its queue while the service starts. Raises BadParameter."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        raise BadParameter(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port", field="port") from error
    return listener


def most_connections() -> int:
    """Raises the limit of open files as far as it may be and returns how many connections that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _SPARE_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    else:
        most = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(64, most - _SPARE_FILES)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_door(host: str, *, tokens: bool, insecure: bool) -> None:
    """Raises BadParameter for an address that other machines reach without anything that tells callers apart."""
    if is_loopback(host) or tokens or insecure:
        return
    raise BadParameter(
        f"listening on {host} would let anyone who reaches the port read and write. Make a token first "
        "(`crossrank token create --scope ingest --data DIR`), or listen on 127.0.0.1, or say --insecure if the network is trusted",
        field="host",
    )


def check_certificate(cert: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Certificate chain and key when TLS is asked for. Raises BadParameter when one is missing or cannot be read."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise BadParameter("TLS needs both --tls-cert and --tls-key", field="tls_key" if key is None else "tls_cert")
    for field, path in (("tls_cert", cert), ("tls_key", key)):
        if not path.is_file():
            raise BadParameter(f"--{field.replace('_', '-')} {path}: no such file", field=field)
    return cert, key
