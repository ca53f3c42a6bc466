"""One HTTP connection to the service, kept open. Posts a body and says what became of it; never raises.

A post is also a clock sample, as NTP takes them: `sent` just before the request leaves on an open connection, `received` and `replied`
by the service's clock in its answer, `got` when the answer is there.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from crossrank_client.clock import mono_ns
from crossrank_client.encode import json_text

TIMEOUT_S = 30.0
IDLE_MS = 250
CONNECT_TIMEOUT_S = 10.0
LONGEST_PAUSE_S = 60.0
ANSWER_BYTES = 4 << 20
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass
class Outcome:
    """What became of a post. status: None when no answer came. pause_s: what the service asked for. sample: monotonic sent and got."""

    status: int | None
    answer: dict[str, Any] = field(default_factory=dict)
    pause_s: float | None = None
    sample: tuple[int, int] | None = None
    broken: bool = False  # the connection was, perhaps long before

    @property
    def taken(self) -> bool:
        """The service has it."""
        return self.status == 200

    @property
    def worth_retrying(self) -> bool:
        """The same post may work later."""
        return self.status is None or self.status in RETRIED or self.status >= 500


class BadUrl(ValueError):
    """The address is not one of a service."""


class Sender:
    """Posts to one service. Raises BadUrl when made with an address that cannot be one."""

    def __init__(self, url: str, job: str, token: str | None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BadUrl(f"{url!r} is not the address of a service; it looks like http://collector:4318")
        self._secure, self._host = parts.scheme == "https", parts.hostname
        self._port = parts.port or (443 if self._secure else 4318)
        self._root = parts.path.rstrip("/")
        self._job_path = quote(job, safe="")
        self._headers = {"user-agent": "crossrank-client", **({"authorization": f"Bearer {token}"} if token else {})}
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None  # of the connection, also while it is being made
        self._aborted = False
        self.timeout_s = TIMEOUT_S
        self.idle: Callable[[], bool] = _going_on  # called while an answer is waited for; False gives up

    def post_events(self, body: bytes, encoding: str) -> Outcome:
        """Posts NDJSON."""
        return self.post("/v1/events", body, {"content-type": "application/x-ndjson", "content-encoding": encoding})

    def post_topology(self, topology: dict[str, Any]) -> Outcome:
        """Posts a part of the job's topology."""
        body = json_text(topology).encode()
        return self.post(f"/v1/jobs/{self._job_path}/topology", body, {"content-type": "application/json"})

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Outcome:
        """Posts a body to a path of the service; a kept connection that was closed meanwhile is opened again once."""
        fresh = self._connection is None
        outcome = self._once(path, body, headers)
        if outcome.broken and not fresh and not self._aborted:
            outcome = self._once(path, body, headers)
        return outcome

    def _once(self, path: str, body: bytes, headers: dict[str, str]) -> Outcome:
        if self._aborted:
            return Outcome(None)
        try:
            connection = self._connected()
            sent = mono_ns()
            connection.request("POST", self._root + path, body=body, headers={**self._headers, **headers})
            self._wait_for_answer(connection.sock)
            response = connection.getresponse()
            text = response.read(ANSWER_BYTES)
            got = mono_ns()
            if response.will_close or not response.isclosed():
                self.close()
            return Outcome(response.status, _answer(text), _pause(response.getheader("retry-after")), (sent, got))
        except (OSError, http.client.HTTPException, ValueError) as fault:
            self.close()
            return Outcome(None, broken=isinstance(fault, ConnectionError))

    def _wait_for_answer(self, connected: socket.socket) -> None:
        """Until the first byte is there; calls `idle` meanwhile, since a slow service must not keep the thread from its ring."""
        until_ns = mono_ns() + int(self.timeout_s * 1e9)
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        while not poll.poll(IDLE_MS):
            if self._aborted or mono_ns() >= until_ns or not self.idle():
                raise TimeoutError("no answer in time")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            limit = min(CONNECT_TIMEOUT_S, self.timeout_s)
            if self._secure:
                context = ssl.create_default_context()
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=limit, context=context
                )
            else:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=limit)
            connection._create_connection = self._dialled  # type: ignore[attr-defined]  # noqa: SLF001 -- so that `abort` has the socket
            self._connection = connection  # closed with it if the handshake fails
            connection.connect()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self.timeout_s)
        return self._connection

    def _dialled(self, address: tuple[str, int], timeout_s: float, _source: Any = None) -> socket.socket:
        """A connected socket; one after another, the addresses of the name share the time."""
        fault = OSError(f"no address of {address[0]}")
        until_ns = mono_ns() + int(timeout_s * 1e9)
        for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            left_s = (until_ns - mono_ns()) / 1e9
            if left_s <= 0 or self._aborted:
                break
            found = self._socket = socket.socket(family, kind, protocol)
            try:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found.settimeout(left_s)
                found.connect(place)
            except OSError as refused:
                fault = refused
                found.close()
            else:
                return found
        raise fault

    def abort(self) -> None:
        """Called by another thread: ends a post that is waiting, also for its connection; nothing is posted any more."""
        self._aborted = True
        found = self._socket
        if found is not None:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; the next post opens another."""
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.close()


def _going_on() -> bool:
    return True


def _answer(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _pause(asked: str | None) -> float | None:
    return min(float(asked), LONGEST_PAUSE_S) if asked and asked.isascii() and asked.isdecimal() else None
